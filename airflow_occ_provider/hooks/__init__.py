"""Airflow hooks: the connections of this provider, and what reads through them."""

from __future__ import annotations

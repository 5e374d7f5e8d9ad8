"""Airflow hooks: connections of this provider."""

from __future__ import annotations

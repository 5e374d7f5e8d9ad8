"""Airflow operators: the thin skin over `jobs`."""

from __future__ import annotations

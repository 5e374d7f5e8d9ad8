"""Airflow operators: the thin layer over ``attempts``."""

from __future__ import annotations

"""Airflow triggers: waiting in the triggerer, without a worker slot."""

from __future__ import annotations

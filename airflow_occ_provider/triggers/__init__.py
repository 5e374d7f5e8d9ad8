"""Airflow triggers: waiting in the triggerer, without a worker slot."""

from __future__ import annotations

from airflow_occ_provider.errors import require_airflow_release

require_airflow_release()

"""What Airflow's triggerer watches, without a worker slot."""

from __future__ import annotations

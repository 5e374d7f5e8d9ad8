"""Real ZooKeeper, Hive metastore, Spark and Airflow, started from installed wheels."""

from __future__ import annotations

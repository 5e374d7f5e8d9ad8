"""Real ZooKeeper, Hive metastore, Spark and Airflow from installed wheels."""

from __future__ import annotations

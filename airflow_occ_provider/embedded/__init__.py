"""A real ZooKeeper, Spark, JRE and Airflow started from installed wheels."""

from __future__ import annotations

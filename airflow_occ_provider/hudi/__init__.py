"""The meaning of a Hudi table's metadata: pure, no I/O and no Airflow."""

from __future__ import annotations

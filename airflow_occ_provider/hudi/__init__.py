"""Pure: what a Hudi table's metadata says. No I/O, no Airflow."""

from __future__ import annotations

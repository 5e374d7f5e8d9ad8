"""What a task run has from Airflow, and what it gives to it."""

from __future__ import annotations

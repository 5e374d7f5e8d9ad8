"""Servers that tests and rigs start: real ones, beside those of ``airflow_occ_provider.embedded``."""

from __future__ import annotations

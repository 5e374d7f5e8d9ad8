"""The pages in Airflow's own UI: a table's writers, queue and dead writers."""

from __future__ import annotations

SECTION = "hudi_occ"
"""Of Airflow's configuration."""

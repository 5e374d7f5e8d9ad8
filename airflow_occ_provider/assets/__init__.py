"""Assets of tables, and what their consumers have read."""

from __future__ import annotations

from airflow_occ_provider.errors import require_airflow_release

require_airflow_release()

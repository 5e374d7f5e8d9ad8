from __future__ import annotations

pytest_plugins = ["airflow_occ_provider.embedded.pytest_plugin"]

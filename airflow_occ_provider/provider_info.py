"""The provider's metadata for Airflow.

Airflow imports this at every start: keep it light.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_occ_provider import __version__
from airflow_occ_provider.connection_form import LOCK_FORMS

_HUDI = "Apache Hudi"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (Airflow's ``provider_info.schema.json``)."""
    locks = [form() for form in LOCK_FORMS]
    lock_modules = [one["hook-class-name"].rpartition(".")[0] for one in locks]
    return {
        "package-name": "airflow-occ-provider",
        "name": "Hudi OCC",
        "description": "Safe concurrent writers of Apache Hudi tables.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": _HUDI,
                "external-doc-url": "https://hudi.apache.org/",
                "tags": ["apache"],
            }
        ],
        "operators": _modules(
            "operators",
            *("hudi_clean", "hudi_clustering", "hudi_compaction", "hudi_incremental_read"),
            *("hudi_streamer", "hudi_trigger_dag_run", "hudi_write"),
            *("keep_lease", "lease", "release_lease"),
        ),
        "sensors": _modules("sensors", "commit", "heartbeat", "idle", "incremental_window", "lease"),
        "hooks": _modules("hooks", "hudi_table", others=sorted(lock_modules)),
        "triggers": _modules(
            "triggers", "commit", "free_scope", "heartbeat", "idle", "lease", "survivor", "window"
        ),
        "task-decorators": [
            {
                "name": "hudi_write",
                "class-name": "airflow_occ_provider.decorators.hudi_write.hudi_write_task",
            }
        ],
        "asset-uris": [
            {
                "schemes": ["hudi"],
                "handler": "airflow_occ_provider.hooks.assets.normalized",
                "factory": "airflow_occ_provider.hooks.assets.hudi_asset",
            }
        ],
        "connection-types": locks,
        "cli": ["airflow_occ_provider.cli.get_cli_commands"],
    }


def _modules(package: str, *names: str, others: Iterable[str] = ()) -> list[dict[str, Any]]:
    own = (f"airflow_occ_provider.{package}.{name}" for name in names)
    return [{"integration-name": _HUDI, "python-modules": [*own, *others]}]

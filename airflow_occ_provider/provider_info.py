"""The provider's metadata for Airflow.

Airflow imports this at every start: keep it light.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_occ_provider import __version__
from airflow_occ_provider.connection_form import hudi_table, lock_forms

_HUDI = "Apache Hudi"
_UI_TABLES = {
    "description": "Tables that have a page, as a JSON list. Each entry has ``table``, the base path. "
    "It may have ``storage_conn_id``, ``lock_conn_id``, and ``key``, by which URLs name the table. "
    "Tables of tasks that have run are found without it.",
    "version_added": __version__,
    "type": "string",
    "example": '[{"table": "s3://lake/trips", "storage_conn_id": "lake", "lock_conn_id": "hudi_lock"}]',
    "default": "[]",
}
_SITE_ID = {
    "description": "Distinguishes this Airflow deployment from others that share a lock service or "
    "write the same tables: the same in all processes of a deployment, different in each deployment. "
    "Default: a hash of ``[api] base_url``. Change it only while no lease is held.",
    "version_added": __version__,
    "type": "string",
    "example": "green",
    "default": "",
}
_WRITE_POLICY = {
    "description": "How writers behave beside each other where their tasks say nothing else: the fields "
    "of a ``WritePolicy`` that differ from its defaults, as a JSON object.",
    "version_added": __version__,
    "type": "string",
    "example": '{"early_stop": "observe", "conflict_resolution": "prefer_writer"}',
    "default": "",
}
_UI_ENABLED = {
    "description": "Whether Airflow's UI has the pages about Hudi tables. Without them the API server "
    "reads no table and starts no process.",
    "version_added": __version__,
    "type": "boolean",
    "example": None,
    "default": "True",
}
_UI_IDLE_S = {
    "description": "Seconds after the last page until an API server ends the process that reads.",
    "version_added": __version__,
    "type": "integer",
    "example": None,
    "default": "120",
}
_UI_ATTEMPTS_TAB = {
    "description": "Whether task instances have a tab *Hudi attempts*: those of all DAGs, also without "
    "a Hudi table.",
    "version_added": __version__,
    "type": "boolean",
    "example": None,
    "default": "False",
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (Airflow's ``provider_info.schema.json``)."""
    locks = list(lock_forms())
    lock_modules = [form["hook-class-name"].rpartition(".")[0] for form in locks]
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
            *("hudi_clean", "hudi_incremental_read", "hudi_sql", "hudi_streamer"),
            *("hudi_table_service", "hudi_trigger_dag_run", "hudi_write"),
            "lease",
        ),
        "sensors": _modules("sensors", "commit", "heartbeat", "idle", "incremental_window", "lease"),
        "hooks": _modules("hooks", "hudi_table", others=sorted(lock_modules)),
        "triggers": _modules("triggers", "commit", "heartbeat", "idle", "lease"),
        "task-decorators": [
            {
                "name": "hudi_write",
                "class-name": "airflow_occ_provider.decorators.hudi_write.hudi_write_task",
            }
        ],
        "asset-uris": [
            {
                "schemes": ["hudi"],
                "handler": "airflow_occ_provider.assets.table.normalized",
                "factory": "airflow_occ_provider.assets.table.hudi_asset",
            }
        ],
        "connection-types": [*locks, hudi_table()],
        "config": {
            "hudi_occ": {
                "description": "This deployment's id, its policy of writers, and its pages in the UI.",
                "options": {
                    "site_id": _SITE_ID,
                    "write_policy": _WRITE_POLICY,
                    "ui_enabled": _UI_ENABLED,
                    "ui_idle_s": _UI_IDLE_S,
                    "ui_tables": _UI_TABLES,
                    "ui_attempts_tab": _UI_ATTEMPTS_TAB,
                },
            }
        },
        "cli": ["airflow_occ_provider.cli.get_cli_commands"],
    }


def _modules(package: str, *names: str, others: Iterable[str] = ()) -> list[dict[str, Any]]:
    modules = (f"airflow_occ_provider.{package}.{name}" for name in names)
    return [{"integration-name": _HUDI, "python-modules": [*modules, *others]}]

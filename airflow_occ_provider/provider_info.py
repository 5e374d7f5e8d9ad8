"""What Airflow discovers of this provider. Imported at every start of Airflow: keep it light."""

from __future__ import annotations

from typing import Any

from airflow_occ_provider import __version__

_HUDI = "Apache Hudi"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (Airflow's ``provider_info.schema.json``)."""
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
        "operators": [
            {
                "integration-name": _HUDI,
                "python-modules": ["airflow_occ_provider.operators.hudi_write"],
            }
        ],
        "hooks": [
            {
                "integration-name": _HUDI,
                "python-modules": [
                    "airflow_occ_provider.hooks.hudi_table",
                    "airflow_occ_provider.hooks.zookeeper_lock",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": _HUDI,
                "python-modules": ["airflow_occ_provider.triggers.survivor"],
            }
        ],
        "connection-types": [_zookeeper_lock()],
        "cli": ["airflow_occ_provider.cli.get_cli_commands"],
    }


def _zookeeper_lock() -> dict[str, Any]:
    return {
        "connection-type": "hudi_zookeeper_lock",
        "hook-class-name": "airflow_occ_provider.hooks.zookeeper_lock.HudiZookeeperLockHook",
        "hook-name": "Hudi lock (ZooKeeper)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "login", "password", "port", "extra"],
            "relabeling": {"host": "Hosts"},
            "placeholders": {"host": "zk1:2181,zk2:2181,zk3:2181"},
        },
        "conn-fields": {
            "base_path": {
                "label": "Base path",
                "description": "The node under which Hudi makes its locks; the same for all writers.",
                "schema": {"type": "string", "default": "/hudi/locks", "pattern": "^/.*[^/]$"},
            },
            "connection_timeout_ms": _milliseconds(
                "Connection time-out (ms)", "How long a writer waits for a connection.", 15_000
            ),
            "session_timeout_ms": _milliseconds(
                "Session time-out (ms)", "After this long a dead writer's lock is freed.", 60_000
            ),
            "wait_time_ms": _milliseconds(
                "Lock wait (ms)", "How long one attempt to get the lock may wait.", 60_000
            ),
            "num_retries": {
                "label": "Lock retries",
                "description": "Further attempts before a writer gives up; it pauses 5 seconds between.",
                "schema": {"type": ["integer", "null"], "default": 50, "minimum": 0},
            },
        },
    }


def _milliseconds(label: str, description: str, default: int) -> dict[str, Any]:
    return {
        "label": label,
        "description": description,
        "schema": {"type": ["integer", "null"], "default": default, "minimum": 1},
    }

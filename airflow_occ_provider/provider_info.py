"""The provider's metadata for Airflow.

Airflow imports this at every start: keep it light.
"""

from __future__ import annotations

from typing import Any

from airflow_occ_provider import __version__
from airflow_occ_provider.connection_form import metastore_lock, zookeeper_lock

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
                "python-modules": [
                    "airflow_occ_provider.operators.hudi_clean",
                    "airflow_occ_provider.operators.hudi_clustering",
                    "airflow_occ_provider.operators.hudi_compaction",
                    "airflow_occ_provider.operators.hudi_write",
                    "airflow_occ_provider.operators.lease",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": _HUDI,
                "python-modules": [
                    "airflow_occ_provider.sensors.heartbeat",
                    "airflow_occ_provider.sensors.lease",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": _HUDI,
                "python-modules": [
                    "airflow_occ_provider.hooks.hudi_table",
                    "airflow_occ_provider.hooks.metastore_lock",
                    "airflow_occ_provider.hooks.zookeeper_lock",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": _HUDI,
                "python-modules": [
                    "airflow_occ_provider.triggers.free_scope",
                    "airflow_occ_provider.triggers.heartbeat",
                    "airflow_occ_provider.triggers.lease",
                    "airflow_occ_provider.triggers.survivor",
                ],
            }
        ],
        "connection-types": [zookeeper_lock(), metastore_lock()],
        "cli": ["airflow_occ_provider.cli.get_cli_commands"],
    }

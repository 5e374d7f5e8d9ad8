"""The provider's metadata for Airflow.

Airflow imports this at every start: keep it light.
"""

from __future__ import annotations

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
        "operators": [
            {
                "integration-name": _HUDI,
                "python-modules": [
                    "airflow_occ_provider.operators.hudi_clean",
                    "airflow_occ_provider.operators.hudi_clustering",
                    "airflow_occ_provider.operators.hudi_compaction",
                    "airflow_occ_provider.operators.hudi_write",
                    "airflow_occ_provider.operators.keep_lease",
                    "airflow_occ_provider.operators.lease",
                    "airflow_occ_provider.operators.release_lease",
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
                "python-modules": ["airflow_occ_provider.hooks.hudi_table", *sorted(lock_modules)],
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
        "connection-types": locks,
        "cli": ["airflow_occ_provider.cli.get_cli_commands"],
    }

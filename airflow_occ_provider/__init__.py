"""Safe concurrent writers of Apache Hudi tables, for Apache Airflow.

All that a DAG needs can be imported from here; a name is loaded when it is used first.
"""

# ruff: noqa: F401 - the imports are for type checkers
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_occ_provider.assets.table import hudi_asset
    from airflow_occ_provider.attempts.write_spec import WritePolicy
    from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
    from airflow_occ_provider.operators.hudi_incremental_read import HudiIncrementalReadOperator
    from airflow_occ_provider.operators.hudi_sql import HudiSqlOperator
    from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
    from airflow_occ_provider.operators.hudi_table_service import (
        HudiClusteringOperator,
        HudiCompactionOperator,
    )
    from airflow_occ_provider.operators.hudi_trigger_dag_run import HudiTriggerDagRunOperator
    from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
    from airflow_occ_provider.operators.lease import HudiLeaseOperator
    from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
    from airflow_occ_provider.sensors.commit import HudiCommitSensor
    from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
    from airflow_occ_provider.sensors.idle import HudiTableIdleSensor
    from airflow_occ_provider.sensors.incremental_window import HudiIncrementalWindowSensor
    from airflow_occ_provider.sensors.lease import HudiLeaseSensor
    from airflow_occ_provider.triggers.commit import HudiCommitTrigger
    from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger

__version__ = "0.1.0"

_MODULES = {
    "hudi_asset": "assets.table",
    "WritePolicy": "attempts.write_spec",
    "HudiCleanOperator": "operators.hudi_clean",
    "HudiClusteringOperator": "operators.hudi_table_service",
    "HudiCompactionOperator": "operators.hudi_table_service",
    "HudiIncrementalReadOperator": "operators.hudi_incremental_read",
    "HudiSqlOperator": "operators.hudi_sql",
    "HudiStreamerOperator": "operators.hudi_streamer",
    "HudiTriggerDagRunOperator": "operators.hudi_trigger_dag_run",
    "HudiWriteOperator": "operators.hudi_write",
    "HudiLeaseOperator": "operators.lease",
    "HudiConflictRetryPolicy": "operators.retry_policy",
    "HudiCommitSensor": "sensors.commit",
    "HudiHeartbeatSensor": "sensors.heartbeat",
    "HudiTableIdleSensor": "sensors.idle",
    "HudiIncrementalWindowSensor": "sensors.incremental_window",
    "HudiLeaseSensor": "sensors.lease",
    "HudiCommitTrigger": "triggers.commit",
    "HudiHeartbeatTrigger": "triggers.heartbeat",
}
__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 - names of this module


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

"""What users may import: a change here is a change of the interface, and belongs in the changelog."""

from __future__ import annotations

import importlib
import inspect

import pytest

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

PUBLIC = {
    "errors": {
        *("OccError", "ConfigurationError", "LockUnreachableError", "TableUnreadableError"),
        *("CommitStateUnknownError", "AttemptError", "WriteConflictError", "LockTimeoutError"),
        *("HeartbeatExpiredError", "DriverKilledError", "RolledBackError"),
        *("MisconfigurationError", "JobError", "NotHudiTableError", "UnknownTableVersionError"),
        *("StateStoreError", "FenceError", "DanglingFilesError"),
        *("DataLossError", "MetadataCorruptError", "StorageStalledError", "HistoryUnreadableError"),
    },
    "hooks.hudi_table": {"HudiTableHook", "open_table"},
    "hooks.lock": {"lock_hook"},
    "hooks.zookeeper_lock": {"HudiZookeeperLockHook"},
    "operators.hudi_write": {"HudiWriteOperator"},
    "triggers.survivor": {"HudiSurvivorTrigger"},
    "operators.retry_policy": {"HudiConflictRetryPolicy"},
    "embedded.airflow": {"EmbeddedAirflow"},
    "embedded.bundle": {"cache_folder", "find_bundle", "pyspark_home"},
    "embedded.java": {"find_java_home"},
    "embedded.pytest_plugin": {"hudi_stack", "embedded_zookeeper", "spark_submit_environment"},
    "embedded.spark": {"spark_environment"},
    "embedded.stack": {"EmbeddedStack"},
    "embedded.zookeeper": {"EmbeddedZookeeper"},
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    module = importlib.import_module(f"airflow_occ_provider.{name}")
    named = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    own = {
        key
        for key, value in named.items()
        if getattr(value, "__module__", None) == module.__name__
        and (callable(value) or inspect.isclass(value) or hasattr(value, "_get_wrapped_function"))
    }
    assert own == PUBLIC[name]


def test_the_operators_own_arguments():
    parameters = inspect.signature(HudiWriteOperator.__init__).parameters
    assert list(parameters)[1:-1] == [
        *("table", "lock_conn_id", "storage_conn_id", "early_conflict_detection"),
        *("conflict_resolution", "hudi_options", "require_commit", "survivor_timeout"),
        *("job_retries", "retries", "retry_policy"),
    ]

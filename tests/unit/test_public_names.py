"""What users may import: a change here is a change of the interface, and belongs in the changelog."""

from __future__ import annotations

import importlib
import inspect

import pytest

from airflow_occ_provider.operators.admitted import AdmittedOperator
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.protected import ProtectedOperator

PUBLIC = {
    "errors": {
        *("OccError", "ConfigurationError", "LockUnreachableError", "TableUnreadableError"),
        *("CommitStateUnknownError", "AttemptError", "WriteConflictError", "LockTimeoutError"),
        *("HeartbeatExpiredError", "DriverKilledError", "RolledBackError"),
        *("MisconfigurationError", "JobError", "NotHudiTableError", "UnknownTableVersionError"),
        *("StateStoreError", "FenceError", "DanglingFilesError"),
        *("LeaseLostError", "LeaseRefusedError", "AdmissionTimeoutError", "WriterAliveError"),
        *("WorkerLostError", "HistoryUnreadableError", "DataLossError", "MetadataCorruptError"),
        *("StorageStalledError", "StorageDeniedError"),
    },
    "hooks.hudi_table": {"HudiTableHook", "open_table"},
    "hooks.lock": {"lock_hook"},
    "hooks.hudi_lock": {"HudiLockHook", "Terms"},
    "hooks.metastore_lock": {"HudiMetastoreLockHook"},
    "hooks.zookeeper_lock": {"HudiZookeeperLockHook"},
    "leases.commit_lock": {"CommitLock", "LockEntry"},
    "leases.keeper": {"Keeper", "LossAction", "least_ttl_s"},
    "leases.lease": {"LeaseService", "Status", "Ticket"},
    "leases.queue": {"Queue"},
    "leases.rules": {
        *("Mode", "Scope", "Owner", "Request", "QueuedRequest", "Blocker"),
        *("blockers", "conflicting"),
    },
    "operators.hudi_clean": {"HudiCleanOperator"},
    "operators.hudi_clustering": {"HudiClusteringOperator", "below"},
    "operators.hudi_compaction": {"HudiCompactionOperator"},
    "operators.hudi_write": {"HudiWriteOperator"},
    "operators.lease": {
        *("HudiLeaseOperator", "HudiKeepLeaseOperator", "HudiReleaseLeaseOperator"),
    },
    "sensors.heartbeat": {"HudiHeartbeatSensor", "awaited"},
    "sensors.lease": {"HudiLeaseSensor"},
    "triggers.free_scope": {"HudiFreeScopeTrigger"},
    "triggers.heartbeat": {"HudiHeartbeatTrigger", "parse_instants", "writer_payload"},
    "triggers.lease": {"LeaseTrigger", "HudiAdmissionTrigger", "HudiKeepLeaseTrigger"},
    "triggers.survivor": {"HudiSurvivorTrigger"},
    "operators.retry_policy": {"HudiConflictRetryPolicy"},
    "embedded.airflow": {"EmbeddedAirflow"},
    "embedded.bundle": {"cache_folder", "find_bundle", "pyspark_home", "resolve_jar"},
    "embedded.java": {"find_java_home"},
    "embedded.metastore": {"EmbeddedMetastore"},
    "embedded.pytest_plugin": {
        "embedded_metastore",
        "embedded_zookeeper",
        "hudi_stack",
        "spark_submit_environment",
    },
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


def own_parameters(operator):
    return list(inspect.signature(operator.__init__).parameters)[1:-1]


def test_the_operators_own_arguments():
    assert own_parameters(AdmittedOperator) == [
        *("table", "lock_conn_id", "scope", "key_safe", "reads_table"),
        *("admission", "admission_timeout"),
    ]
    assert own_parameters(ProtectedOperator) == [
        *("table", "storage_conn_id", "early_conflict_detection"),
        *("conflict_resolution", "hudi_options", "retries"),
    ]
    assert own_parameters(HudiWriteOperator) == [
        *("require_commit", "survivor_timeout", "job_retries", "retries", "retry_policy"),
    ]
    assert own_parameters(HudiCleanOperator) == [
        *("instants", "wait", "wait_timeout", "dry_run", "retries", "retry_policy"),
    ]

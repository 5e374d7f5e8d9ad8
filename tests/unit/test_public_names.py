"""What users may import: a change here is a change of the interface, and belongs in the changelog."""

from __future__ import annotations

import importlib
import inspect

import pytest

import airflow_occ_provider
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.operators.hudi_sql import HudiSqlOperator
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
from airflow_occ_provider.operators.hudi_table_service import (
    HudiClusteringOperator,
    HudiCompactionOperator,
    HudiTableServiceOperator,
)
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

PUBLIC = {
    "errors": {
        "install_extra",
        "require_airflow_release",
        *("OccError", "ConfigurationError", "LockUnreachableError", "TableUnreadableError"),
        *("CommitStateUnknownError", "AttemptError", "WriteConflictError", "LockTimeoutError"),
        *("HeartbeatExpiredError", "CommitRefusedError", "DriverKilledError", "TaskEndedError"),
        *("ExecutionTimeoutError", "DriverNotStartedError", "RolledBackError", "FailedAfterCommitError"),
        *("MisconfigurationError", "HudiError", "JobError", "NotHudiTableError"),
        "UnknownTableVersionError",
        *("StateStoreError", "FenceError", "DanglingFilesError"),
        *("LeaseLostError", "LeaseRefusedError", "AdmissionTimeoutError", "WriterAliveError"),
        "RestorePendingError",
        *("WorkerLostError", "HistoryUnreadableError", "DataLossError", "MetadataCorruptError"),
        *("StorageStalledError", "StorageDeniedError", "SubmitterUnreachableError"),
        *("NotSubmittedError", "CheckpointLostError", "DagRunNotStartedError"),
    },
    "assets.table": {"emit_asset_events", "hudi_asset", "normalized"},
    "hooks.hudi_table": {"HudiTableHook", "open_table", "storage_of"},
    "places.of_task": {
        "Launch",
        "PlaceType",
        "PlacedTask",
        "drivers_of",
        "folder_storage",
        "follower",
        "place_type",
        "service_of",
    },
    "places.local": {"place_of_handle", "place_of_task"},
    "places.kubernetes": {
        *("api_client", "of_pod", "place_of_handle", "place_of_task"),
    },
    "hooks.spark": {
        "FoldedOutput",
        "HudiDriverLink",
        "attempt_hook",
        "environment",
        "show_driver",
        "spark_hook",
        "with_lineage",
    },
    "hooks.hudi_lock": {
        *("HudiLockHook", "answer_timeout_s", "ttl_s"),
        *("Fields", "lock_hook", "lock_hook_if_any"),
    },
    "hooks.metastore_lock": {
        "HudiMetastoreLockHook",
    },
    "hooks.storage_lock": {
        *("HudiStorageLockHook", "aws_hook", "connection_of", "storage_access"),
    },
    "hooks.zookeeper_lock": {
        "HudiZookeeperLockHook",
    },
    "places.via": {
        "StartRule",
        "ViaPlace",
        "operator_class",
        "operator_path",
        "place_of_handle",
        "place_of_task",
        "refuse_beside_via",
    },
    "leases.commit_lock": {"CommitLock", "LockEntry"},
    "leases.keeper": {"Keeper", "least_ttl_s"},
    "leases.lease": {"Status", "Terms", "Ticket"},
    "leases.queue": {"OwnNode", "OwnNodes", "Queue", "own_request", "rounds_of"},
    "leases.rules": {
        "Blocker",
        "Mode",
        "Owner",
        "QueuedRequest",
        "Request",
        "Scope",
        "all_hold",
        "blockers",
        "conflicting",
        "covering_lease",
        "digest",
        "missed_run_lease",
        "refuse_older",
    },
    "decorators.hudi_write": {"hudi_write_task"},
    "operators.hudi_clean": {"HudiCleanOperator"},
    "operators.hudi_incremental_read": {"HudiIncrementalReadOperator"},
    "operators.hudi_sql": {"HudiSqlOperator"},
    "operators.hudi_streamer": {"HudiStreamerOperator"},
    "operators.hudi_table_service": {
        *("HudiClusteringOperator", "HudiCompactionOperator", "HudiTableServiceOperator"),
    },
    "attempts.write_spec": {
        "AdmissionMode",
        "WritePolicy",
        "WriteSpec",
        "choice",
        "constant_options",
        "refuse_foreign",
        "refuse_unfit",
        "refuse_unqueued",
        "resolution_choice",
        "site_fields",
    },
    "operators.hudi_trigger_dag_run": {"HudiTriggerDagRunOperator"},
    "operators.hudi_write": {"HudiWriteOperator"},
    "operators.lease": {
        "HudiKeepLeaseOperator",
        "HudiLeaseOperator",
        "HudiReleaseLeaseOperator",
        "release_lease",
    },
    "sensors.commit": {"HudiCommitSensor"},
    "sensors.heartbeat": {"HudiHeartbeatSensor", "awaited"},
    "sensors.idle": {"HudiTableIdleSensor"},
    "sensors.incremental_window": {"HudiIncrementalWindowSensor"},
    "sensors.lease": {"HudiLeaseSensor"},
    "triggers.commit": {
        "HudiCommitTrigger",
        "HudiIncrementalWindowTrigger",
        "why_empty",
        "window_facts",
    },
    "triggers.lease": {
        "HudiAdmissionTrigger",
        "HudiFreeScopeTrigger",
        "HudiKeepLeaseTrigger",
        "LeaseTrigger",
        "shared_queue",
        "states_of",
    },
    "triggers.heartbeat": {"HudiHeartbeatTrigger", "parse_instants", "writer_payload"},
    "triggers.idle": {"HudiSurvivorTrigger", "HudiTableIdleTrigger"},
    "bounded": {"bounded"},
    "via": {"markers_in", "with_driver"},
    "operators.retry_policy": {"HudiConflictRetryPolicy", "BudgetedRetries", "budgeted", "composed"},
    "leases.store": {
        *("Store", "Node", "NodeGoneError", "NodeTakenError", "NodeVersionError"),
    },
    "submitters.place": {"Place", "StartedPlace"},
    "submitters.kubernetes_place": {"KubernetesPlace", "Pod", "PodApi", "identity_label", "pod_name"},
    "hudi.incremental.checkpoint": {"Checkpoint", "Order", "CommitPosition"},
    "hudi.incremental.window": {
        "Pending",
        "Release",
        "Window",
        "advanced",
        "next_window",
        "read_options",
        "why_scanned",
        "why_unreadable",
    },
    "storage.incremental": {
        *("IncrementalRead", "WriteListing", "completed_writes", "incremental_read"),
        *("window_after", "list_writes"),
    },
    "storage.attempt_folder": {
        "AttemptFolder",
        "FolderStorage",
        "SharedFolder",
        "TableListing",
        "identity_of",
        "run_folder",
        "shared_folder",
    },
    "attempts.submission": {
        "SparkJob",
        "Submission",
        "driver_input",
        "effective_options",
        "file_prefix",
        "local_path",
        "offered",
        "private_folder",
        "private_payload",
        "refuse_contradictions",
        "refuse_unproven",
        "remove_leftovers",
        "without_secrets",
        "write_privately",
    },
    "testing.lease_store": {
        *("open_store", "open_unreachable_store", "store", "second", "open_queue", "queue", "other"),
    },
    "testing.lost_answers": {"LostAnswerContract", "lost_calls", "repeat_after_a_lost_answer"},
    "testing.queue_contract": {"QueueContract", "ExpiryContract"},
    "testing.store_contract": {"StoreContract"},
    "embedded.bundle": {
        *("cache_folder", "find_bundle", "hudi_release", "pyspark_home", "resolve_jar", "resolve_jars"),
        "trust_store",
    },
    "embedded.java": {"find_java_home"},
    "embedded.metastore": {"EmbeddedMetastore"},
    "embedded.pytest_plugin": {
        "embedded_metastore",
        "embedded_s3",
        "embedded_zookeeper",
        "hudi_stack",
        "spark_submit_environment",
    },
    "embedded.s3proxy": {"EmbeddedS3proxy"},
    "embedded.service": {"EmbeddedService"},
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
    of_airflow = ["name", "retries", "retry_policy"]
    shared = own_parameters(HudiSparkOperator)
    assert shared == [
        *("table", "lock_conn_id", "storage_conn_id", "hudi_options", "policy", "wait_timeout"),
        *(*of_airflow, "via", "via_kwargs"),
    ]
    write = own_parameters(HudiWriteOperator)
    assert write == [
        *("scope", "isolation", "commits", "require_commit", "start_timeout", "deferrable"),
    ]
    assert len({*shared, *write}.difference(of_airflow)) <= 14
    assert own_parameters(HudiSqlOperator) == ["sql", "table_name"]
    assert own_parameters(HudiStreamerOperator) == [
        *("target_table", "application", "source_class", "source_ordering_field"),
        *("table_type", "op", "streamer_args"),
    ]
    assert own_parameters(HudiCleanOperator) == ["instants", "wait", "wait_timeout", "dry_run"]
    service = ["op", "instants", "dead_plan", "plan_timeout"]
    assert own_parameters(HudiTableServiceOperator) == service
    assert own_parameters(HudiCompactionOperator) == []
    assert own_parameters(HudiClusteringOperator) == ["scope"]


def test_what_a_dag_needs_can_be_imported_from_the_package():
    for name in airflow_occ_provider.__all__:
        assert getattr(airflow_occ_provider, name)
    with pytest.raises(AttributeError, match="has no attribute 'HudiReadOperator'"):
        _ = airflow_occ_provider.HudiReadOperator

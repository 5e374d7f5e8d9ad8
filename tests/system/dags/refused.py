"""Every task of this DAG must be refused before any Spark process starts."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

MODE = "hoodie.write.concurrency.mode"
POLICY = "hoodie.cleaner.policy.failed.writes"
CASES = {
    "missing_connection": {"lock_conn_id": "nosuch"},
    "missing_spark_connection": {"conn_id": "nosuch"},
    "unreachable_zookeeper": {"lock_conn_id": "hudi_lock_unreachable", "retries": 0},
    "table_not_a_path": {"table": "db.trips"},
    "options_single_writer": {"hudi_options": {MODE: "single_writer"}},
    "options_eager": {"hudi_options": {POLICY: "EAGER"}},
    "conf_single_writer": {"conf": {f"spark.{MODE}": "SINGLE_WRITER"}},
    "conf_eager": {"conf": {POLICY: "EAGER"}},
    "properties_single_writer": {"properties_file": "{{ params.folder }}/single_writer.properties"},
    "properties_eager": {"properties_file": "{{ params.folder }}/eager.properties"},
    "site_single_writer": {"env_vars": {"HUDI_CONF_DIR": "{{ params.folder }}/single_writer"}},
    "site_eager": {"env_vars": {"HUDI_CONF_DIR": "{{ params.folder }}/eager"}},
    "deploy_mode_cluster": {"deploy_mode": "cluster"},
}

with DAG(
    "refused",
    schedule=None,
    params={"job": Param("", type="string"), "folder": Param("", type="string")},
):
    for name, arguments in CASES.items():
        HudiWriteOperator(
            task_id=name,
            **{"application": "{{ params.job }}", "table": "{{ params.folder }}/t", **arguments},
        )

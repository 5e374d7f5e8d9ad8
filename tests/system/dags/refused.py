"""Every task of this DAG must be refused before any Spark process starts."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

# Other refusals are tested in tests/unit/test_attempt.py: these three need a real Airflow.
CASES = {
    "missing_spark_connection": {"conn_id": "nosuch"},
    "unreachable_zookeeper": {
        "lock_conn_id": "hudi_lock_unreachable",
        "retry_policy": HudiConflictRetryPolicy(budgets={"lock": 0}),
    },
    "site_eager": {"env_vars": {"HUDI_CONF_DIR": "{{ params.folder }}/eager"}},
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

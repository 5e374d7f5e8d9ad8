"""Starts runs on the commits of one table: one per commit, one per batch, and Airflow's own."""

from __future__ import annotations

import os

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_occ_provider.operators.hudi_trigger_dag_run import HudiTriggerDagRunOperator
from airflow_occ_provider.triggers.commit import HudiCommitTrigger

TABLE = os.environ["COMMIT_RUNS_TABLE"]

commits = HudiCommitTrigger(table=TABLE, start="earliest", poll_s=2, asset="commits")
asset = Asset("commits", watchers=[AssetWatcher(name="commits", trigger=commits)])

with DAG("start_runs", schedule=[asset], default_args={"retries": 20, "retry_delay": 5}):
    for per in ("commit", "batch"):
        HudiTriggerDagRunOperator(
            task_id=per, table=TABLE, trigger_dag_id=f"on_{per}", per=per, start="earliest"
        )

for dag_id, schedule in (("on_commit", None), ("on_batch", None), ("on_event", [asset])):
    with DAG(dag_id, schedule=schedule):
        EmptyOperator(task_id="nothing")

"""One run for each commit of the table that ``dags/example_chain.py`` writes."""

from __future__ import annotations

import os

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_occ_provider.operators.hudi_trigger_dag_run import HudiTriggerDagRunOperator
from airflow_occ_provider.triggers.commit import HudiCommitTrigger

TABLE = f"{os.environ.get('EXAMPLE_LAKE', '')}/chain"

commits = HudiCommitTrigger(table=TABLE, start="earliest", poll_s=1, asset="chain_commits")
asset = Asset("chain_commits", watchers=[AssetWatcher(name="commits", trigger=commits)])

with DAG("committed", schedule=[asset], default_args={"retries": 20, "retry_delay": 5}):
    HudiTriggerDagRunOperator(task_id="start", table=TABLE, trigger_dag_id="on_commit", start="earliest")

with DAG("on_commit", schedule=None):
    EmptyOperator(task_id="nothing")

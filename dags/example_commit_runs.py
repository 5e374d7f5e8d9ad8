"""Start one run of a DAG for each commit of a table, by any writer."""

from __future__ import annotations

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_occ_provider.operators.hudi_trigger_dag_run import HudiTriggerDagRunOperator
from airflow_occ_provider.triggers.commit import HudiCommitTrigger

TABLE = "/tmp/airflow_occ/cities"

commits = HudiCommitTrigger(table=TABLE, asset="example_commits")
cities = Asset("example_commits", watchers=[AssetWatcher(name="commits", trigger=commits)])

with DAG("example_commit_runs", description=__doc__, schedule=[cities], tags=["hudi", "example"]):
    HudiTriggerDagRunOperator(task_id="start", table=TABLE, trigger_dag_id="example_commit_runs_each")

with DAG("example_commit_runs_each", schedule=None, tags=["hudi", "example"]):

    @task
    def show(dag_run=None):
        """Print what was committed, by which task."""
        for commit in dag_run.conf["commits"]:
            print(f"{commit['instant']}: {commit['records']} records, by {commit['signature']}")

    show()

"""One DAG a table, a run for each of its writers, started from the trigger."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import StartTriggerArgs

from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
from tests.bench.load import FIRST_RUN, Load
from tests.bench.watchers import ProbeTrigger

LOAD = Load.from_environment()
LAST_RUN = FIRST_RUN + timedelta(hours=LOAD.writers - 1)
WRITER = "{{ logical_date.strftime('%Y%m%d%H%M%S') }}000"
COMMON = {
    "interval_ms": LOAD.interval_ms,
    "tolerable_misses": LOAD.misses,
    "deferrable": True,
    "start_from_trigger": True,
    "timeout": 86_400,
}


class Probe(BaseOperator):
    """Measures its triggerer from within, forever."""

    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(
        trigger_cls=f"{ProbeTrigger.__module__}.{ProbeTrigger.__qualname__}",
        trigger_kwargs={},
        next_method="execute",
    )


with DAG("probe", schedule="@once", start_date=FIRST_RUN):
    Probe(task_id="probe")

for number in range(LOAD.tables):
    table = str(LOAD.table(number))
    with DAG(
        f"table_{number}",
        schedule=timedelta(hours=1),
        start_date=FIRST_RUN,
        end_date=LAST_RUN,
        catchup=True,
        max_active_runs=LOAD.writers,
    ) as dag:
        for follower in range(LOAD.followers):
            HudiHeartbeatSensor(task_id=f"writer_{follower}", table=table, instants=WRITER, **COMMON)
        for watcher in range(LOAD.table_watchers):
            any_dead = {"until": ["dead"], "match": "any"}
            HudiHeartbeatSensor(task_id=f"all_{watcher}", table=table, **any_dead, **COMMON)
    globals()[dag.dag_id] = dag

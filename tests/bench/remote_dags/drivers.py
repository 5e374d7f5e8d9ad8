"""One task for each driver of a load, started from the trigger that follows the driver."""

from __future__ import annotations

import json

from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import StartTriggerArgs

from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from tests.bench.load import FIRST_RUN
from tests.bench.remote_load import RemoteLoad
from tests.bench.watchers import ProbeTrigger

LOAD = RemoteLoad.from_environment()


class Started(BaseOperator):
    """A task that begins with a trigger."""

    start_from_trigger = True

    def __init__(self, *, begins_with, arguments, **more):
        super().__init__(**more)
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=f"{begins_with.__module__}.{begins_with.__qualname__}",
            trigger_kwargs=arguments,
            next_method="execute",
        )


with DAG("probe", schedule="@once", start_date=FIRST_RUN):
    Started(begins_with=ProbeTrigger, arguments={}, task_id="probe")

with DAG("drivers", schedule="@once", start_date=FIRST_RUN, max_active_tasks=LOAD.drivers):
    for number, arguments in enumerate(json.loads(LOAD.arguments.read_text())):
        Started(begins_with=HudiDriverTrigger, arguments=arguments, task_id=f"driver_{number}")

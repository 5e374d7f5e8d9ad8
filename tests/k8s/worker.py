"""One try of a task, as a worker and a triggerer run it, with a store in a file instead of Airflow's.

Run as ``python -m tests.k8s.worker FOLDER NAME TRY``. Exit code 0 is a success, 75 a retry.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts import submission
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.errors import OccError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.submitters import folder_driver, followed_driver
from airflow_occ_provider.triggers import driver
from tests.support.fixed_options import fix_options

JOB = Path(__file__).parent / "jobs" / "insert_rows.py"
RETRY, MAX_TRIES = 75, 20
LIFE_S = 150.0  # in place of 15 minutes, for a pod that was deleted by force
NO_SITE = Site(Source("spark-defaults.conf", ()))
HEARTBEAT = {
    "hoodie.client.heartbeat.interval_in_ms": "3000",
    "hoodie.client.heartbeat.tolerable.misses": "3",
    "hoodie.metadata.enable": "false",
}


class Store:
    """A task's state store, in a file that is replaced as a whole."""

    def __init__(self, path):
        self.path = path

    def get(self, key):
        return json.loads(self.path.read_text()).get(key) if self.path.exists() else None

    def set(self, key, value, **_):
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({**kept, key: value}))
        new.rename(self.path)


class WithoutHudi(HudiWriteOperator):
    """Decides no options, and takes no lock: its driver is a stand-in, see ``stand_in.py``."""

    def _protected_run(self, context):
        run = super()._protected_run(context)
        fix_options(run, NO_SITE, HEARTBEAT, ("rig", "r", self.task_id))
        return run


class Instance:
    def __init__(self, name, number):
        self.dag_id, self.run_id, self.task_id, self.map_index = "rig", "r", name, -1
        self.try_number, self.max_tries = number, MAX_TRIES

    def xcom_push(self, **_):
        pass


async def first_event(trigger):
    return (await anext(trigger.run())).payload


def main(folder, name, number):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    table = str(folder / "lake" / "rows")
    is_stand_in = "RIG_FOLDER" in os.environ
    driver._UNSEEN_S = 60.0  # in place of ten minutes
    submission.LIFE_S = folder_driver.LIFE_S = followed_driver.LIFE_S = LIFE_S
    task = (WithoutHudi if is_stand_in else HudiWriteOperator)(
        task_id=name,
        application=str(JOB),
        application_args=[table, name, os.environ.get("RIG_SECONDS", "5")],
        table=table,
        lock_conn_id="lock",
        policy={"admission": "off" if is_stand_in else "queue"},
        deferrable=True,
        hudi_options=HEARTBEAT,
    )
    signal.signal(signal.SIGTERM, lambda *_: (task.on_kill(), sys.exit(143)))
    context = {
        "ti": Instance(name, number),
        "task": task,
        "task_state_store": Store(folder / f"{name}.json"),
    }
    steps = lambda: task.execute(context)  # noqa: E731
    while True:
        try:
            print("RESULT", json.dumps(steps()), flush=True)
        except TaskDeferred as wait:
            path, arguments = wait.trigger.serialize()
            kind = type(wait.trigger)
            assert path.endswith(kind.__name__)
            again = kind(**json.loads(json.dumps(arguments)))
            print("DEFERRED", kind.__name__, flush=True)
            event = asyncio.run(first_event(again))
            method, given = getattr(task, wait.method_name), wait.kwargs or {}
            steps = lambda method=method, event=event, given=given: method(context, event, **given)  # noqa: E731
        else:
            return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
    except OccError as error:
        print("FAILED", type(error).__name__, error, flush=True)
        sys.exit(RETRY if error.retry else 1)

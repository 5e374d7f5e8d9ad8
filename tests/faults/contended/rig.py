"""One faulty run of several tasks that write one hot partition: wait for the moment, kill, check."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import psutil

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import RECORD_KEY
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.faults.contended.dags.contended import WRITERS
from tests.faults.contended.stops import Seen
from tests.faults.processes import drivers, end_all, send, victims
from tests.faults.rig import SETTINGS, Report
from tests.services.airflow import EmbeddedAirflow
from tests.services.postgres import Postgres
from tests.support.airflow_component import Component
from tests.support.stores import Lake
from tests.support.writers import inflight

HERE = Path(__file__).parent
JOB = HERE.parents[1] / "jobs" / "contended_write.py"
TASKS = tuple(f"write_{name}" for name in WRITERS)
SECONDS = 15  # between a write's profile and its commit: the guard looks every ten
_SETTINGS = {**SETTINGS, "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8"}
_PATIENCE_S = 900
_OVER = ("success", "failed")


@contextlib.contextmanager
def airflow(folder, stack):
    """A real Airflow with the rig's DAG, on PostgreSQL: a busy SQLite may not answer for minutes."""
    with Postgres("airflow", "airflow") as database, _airflow(folder, stack, database) as running:
        lock = stack.lock_connection
        lock["extra"]["session_timeout_ms"] = 10000
        running.add_connection("hudi_lock_default", **lock)
        running.add_connection("spark_default", conn_type="spark", host="local[2]")
        deadline = time.monotonic() + 300
        while not running.has_dag("contended"):
            assert time.monotonic() < deadline, "the DAG was not read"
            time.sleep(0.5)
        yield running


def _airflow(folder, stack, database):
    settings = {**_SETTINGS, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.address}
    return EmbeddedAirflow(folder, HERE / "dags", stack.environment, settings)


class Services:
    """The triggerer and the lock service: one is killed, and started again after an outage."""

    def __init__(self, running, stack, folder):
        self._stack = stack
        self._triggerer = Component(running, "triggerer", folder)
        self._zookeeper = stack.zookeeper
        self._one = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._triggerer.stop()
        self._zookeeper.stop()

    def interrupt(self, victim, outage_s):
        """Kill a service, and start it again after so many seconds; one at a time."""
        with self._one:
            self._interrupt(victim, outage_s)

    def _interrupt(self, victim, outage_s):
        if victim == "triggerer":
            self._triggerer.kill()
            time.sleep(outage_s)
            self._triggerer.start()
            return
        self._zookeeper.stop()
        time.sleep(outage_s)
        self._zookeeper = EmbeddedZookeeper(self._zookeeper.folder, self._zookeeper.port)
        self._zookeeper.start()


class ContendedRun:
    """One run of the DAG with one fault."""

    def __init__(self, running, stack, folder, fault, services):
        self.airflow, self.fault, self.services = running, fault, services
        lake = Lake(folder / "tables", stack.store)
        self.table = lake.path(fault.name)
        self.reader = lake.open(self.table)
        self.report = Report(fault, self.table)
        self.seen = Seen(self.reader)
        self.outcomes, self.delays_s = [], []

    def run(self):
        started = time.monotonic()
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - reported with all others at the end
            self.report.wrong.append(f"{type(error).__name__}: {error}")
        if drivers(self.table):
            self.report.wrong.append("a driver still runs after its run")
            end_all(self.table)
        self.report.seconds = time.monotonic() - started
        return self.report

    def _run(self):
        conf = {"job": str(JOB), "table": self.table, "seconds": str(SECONDS)}
        self.run_id = self.airflow.trigger("contended", conf)
        self._path = f"/dags/contended/dagRuns/{self.run_id}"
        self._wait(self.fault.point, getattr(self, f"_{self.fault.point}"))
        time.sleep(self.fault.delay_s)
        self._inject()
        state = self._wait("the end of the run", self._ended)
        tasks = self._tasks()
        self.report.tries = sum(task["try_number"] for task in tasks)
        if state != "success":
            failed = [task["task_id"] for task in tasks if task["state"] != "success"]
            logs = "\n".join(self._log(one) for one in failed)
            self.report.wrong.append(f"the run ended as {state}: {logs}")
        self._audit()

    def _planned(self):
        return inflight(self.reader)

    def _yielded(self):
        return any(task["try_number"] > 1 or task["state"] == "up_for_retry" for task in self._tasks())

    def _committed(self):
        return self._commits()

    def _inject(self):
        victim = self.fault.victim
        if victim in ("triggerer", "lock_service"):
            self.report.reached = victim
            self.services.interrupt(victim, self.fault.outage_s)
            return
        running = sorted(drivers(self.table), key=lambda one: one.pid)
        if running:
            driver = running[int(self.fault.choice * len(running))]
            with contextlib.suppress(psutil.Error):
                send(victims(victim, driver), signal.SIGKILL)
                self.report.reached = victim

    def _audit(self):
        signatures = [one for one in self._commits() if one.dag_id == "contended"]
        self.report.identities = tuple(one.identity for one in signatures)
        for task in TASKS:
            tries = [one.try_number for one in signatures if one.task_id == task]
            if len(tries) != 1:
                self.report.wrong.append(f"signed commits of {task}: tries {tries}")
            store = f"{self._path}/taskInstances/{task}/state-store/{RECORD_KEY}"
            record = self.airflow.call("GET", store)["value"]
            self.outcomes += [one["outcome"] or "none" for one in record["attempts"]]
            self._time(self._logs(task), record["attempts"])
            left = [one["try_number"] for one in record["attempts"] if not one["settled"]]
            if left or not record["succeeded"] or record["waiting"]:
                self.report.wrong.append(f"the record of {task} is not closed: unsettled tries {left}")
            if any(Path("/tmp").glob(f"airflow_occ_{record['identity']}_*")):
                self.report.wrong.append(f"files of an attempt of {task} were left")

    def _time(self, logs, attempts):
        for log in logs:
            self.delays_s += self.seen.delays_s(log)
        for one in attempts:
            if one["outcome"] == "commit_conflict" and one["instants"]:
                log = logs[one["try_number"] - 1]
                self.delays_s += self.seen.delays_of_refused_s(log, one["instants"][-1])

    def _commits(self):
        """Return the signatures of the tasks' completed writes."""
        snapshot = self.reader.snapshot()
        found = [snapshot.reader.commit(one) for one in snapshot.timeline.completed_writes()]
        signed = [Signature.from_extra(one.extra) for one in found if not one.is_table_service]
        return [one for one in signed if one and one.task_id in TASKS]

    def _tasks(self):
        return self.airflow.call("GET", f"{self._path}/taskInstances")["task_instances"]

    def _ended(self):
        state = self.airflow.call("GET", self._path)["state"]
        return state if state in _OVER else None

    def _log(self, task):
        number = next(one["try_number"] for one in self._tasks() if one["task_id"] == task)
        return "\n".join(self.airflow.log_lines("contended", self.run_id, task, number)[-25:])

    def _logs(self, task):
        """Return the lines of each try of a task, with their times."""
        path = f"{self._path}/taskInstances/{task}"
        last = self.airflow.call("GET", path)["try_number"]
        return [
            self.airflow.call("GET", f"{path}/logs/{number}?full_content=true")["content"]
            for number in range(1, last + 1)
        ]

    def _wait(self, what, happened):
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(EmbeddedError):
                self.seen.look()
                if answer := happened() or self._ended():
                    return answer
            if time.monotonic() > deadline:
                states = {one["task_id"]: one["state"] for one in self._tasks()}
                raise TimeoutError(f"{what}: not in {_PATIENCE_S} s: {states}")
            time.sleep(0.3)

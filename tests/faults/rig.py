"""One faulty run through real Airflow, Spark and Hudi: reach the point, inject the fault, check."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import RECORD_KEY
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.storage.attempt_folder import run_folder
from tests.faults.aftermath import run_job
from tests.faults.processes import Census, drivers, end_all, is_living, programs, send, wait_until_gone
from tests.services.airflow import EmbeddedAirflow
from tests.support.commit_locks import lock_held
from tests.support.observed import processes_in
from tests.support.stores import Lake
from tests.support.writers import has_markers, inflight

HERE = Path(__file__).parent
JOB = HERE.parent / "jobs" / "stepped_write.py"
SETTINGS = {
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "AIRFLOW__CORE__PARALLELISM": "8",
    "PYTHONPATH": str(HERE / "triggers"),
}
LEFT_BEHIND = "the commit stays in the table"  # of a FailedAfterCommitError
STATEMENT = re.compile(r"CALL rollback_to_instant\([^)]*\)")
SQL = {
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}
PARTITIONS = ("0", "1")
DAGS = ("faulty", "detached", "enduring", "by_bash")
LOST_HOST = {
    "host": "lost-host",
    "boot": "another boot",
    "namespace": "pid:[1]",
    "folder": "/nonexistent/of/lost-host",  # the driver's folder was on that host's disk
}
_PATIENCE_S = 1800  # a lost node ends a driver by its silence alone: 17 minutes
_LOOK_S = 10
_END_S = 60


@dataclass
class Report:
    """The result of one run.

    :param wrong: what should not have happened; empty for a good run.
    """

    fault: object
    table: str
    wrong: list[str] = field(default_factory=list)
    tries: int = 0
    seconds: float = 0.0
    reached: str = ""
    identities: tuple[str, ...] = ()


@contextlib.contextmanager
def airflow(folder, stack):
    """A real Airflow with the DAGs of the faults."""
    path = os.pathsep.join([str(HERE / "bin"), stack.environment["PATH"]])
    lake = Lake(folder, stack.store)
    environment = {**stack.environment, **lake.variables, "PATH": path}
    with EmbeddedAirflow(folder, HERE / "dags", environment, SETTINGS) as running:
        lock = stack.lock_connection
        if stack.lock == "zookeeper":
            lock["extra"]["session_timeout_ms"] = 10000
        running.add_connection("hudi_lock_default", **lock)
        for name, connection in lake.connections.items():
            running.add_connection(name, **connection)
        running.add_connection("spark_default", conn_type="spark", host="local[2]")
        deadline = time.monotonic() + 120
        while not all(map(running.has_dag, DAGS)):
            assert time.monotonic() < deadline, "the DAGs were not read"
            time.sleep(0.5)
        yield running


class FaultyRun:
    """One run of one DAG with one fault."""

    @property
    def dag_id(self):
        """The DAG whose driver meets the fault.

        A frozen driver shall meet nothing but Hudi's fence, so it does not end itself after the pause.
        No fence reaches one that has not requested an instant: only its own end keeps it from a second
        commit.
        """
        if self.fault.victim != "frozen":
            return "faulty"
        return "detached" if self.fault.point == "before" else "enduring"

    def __init__(self, running, stack, folder, fault):
        self.airflow, self.stack, self.fault = running, stack, fault
        self.lake = Lake(folder / "tables", stack.store)
        self.table = self.lake.path(fault.name)
        self.reader = self.lake.open(self.table)
        self.gate = folder / "gates" / fault.name
        self.gate.mkdir(parents=True)
        self.lake.folder.mkdir(exist_ok=True)
        self.report = Report(fault, self.table)
        self.is_red = False
        self.frozen = []

    def run(self):
        started = time.monotonic()
        census = Census(self.table)
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - reported with all others at the end
            self.report.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            census.close()
            send(self.frozen, signal.SIGCONT)
        if self.frozen:
            with contextlib.suppress(AssertionError):
                wait_until_gone(self.frozen, 120)
        elif census.most > 1:
            self.report.wrong.append(f"{census.most} drivers ran at the same time")
        if drivers(self.table):
            self.report.wrong.append("a driver still runs after its run")
            end_all(self.table)
        self.report.seconds = time.monotonic() - started
        return self.report

    def _run(self):
        held = {"before": "before", "requested": "rows", "committed": "after"}.get(self.fault.point)
        if held:
            (self.gate / f"{held}.hold").touch()
        else:
            (self.gate / "rows.hold").touch()
        conf = {"job": str(JOB), "table": self.table, "gate": str(self.gate)}
        conf["storage_conn_id"] = self.lake.conn_id
        self.run_id = self.airflow.trigger(self.dag_id, conf)
        self._path = f"/dags/{self.dag_id}/dagRuns/{self.run_id}"
        with self._at_the_point():
            instants = self._freeze() if self.fault.victim == "frozen" else self._kill()
        for hold in self.gate.glob("*.hold"):
            hold.unlink()
        if self.fault.victim == "frozen":
            self._thaw(instants)
        state = self._wait("the end of the run", self._ended)
        if state == "failed" and self.fault.victim == "frozen":
            state = self._apply_remedy(self._last_log())
        self.report.tries = self._task()["try_number"]
        if state != "success" and not self._is_red_after_its_commit(state):
            self.report.wrong.append(f"the run ended as {state}: {self._last_log()}")
        self._audit()

    def _is_red_after_its_commit(self, state):
        """Whether the run failed since its driver was lost after its commit: no try writes again."""
        self.is_red = state == "failed" and LEFT_BEHIND in self._last_log()
        return self.is_red

    def _apply_remedy(self, log):
        """Do what a ``DataLossError`` tells the user to do: run its statement, clear the task."""
        statement = STATEMENT.search(log)
        if "DataLossError" not in log or not statement:
            return "failed"
        folder = self.gate / "statement"
        run_job(self.stack, folder, "run_statement.py", self.table, statement[0], conf=SQL)
        self._clear()
        return self._wait("the end of the cleared run", self._ended)

    def _clear(self):
        """Clear the task as a user does, and wait for its next try."""
        tries = self._task()["try_number"]
        body = {"dry_run": False, "dag_run_id": self.run_id, "only_failed": False, "task_ids": ["write"]}
        self.airflow.call("POST", f"/dags/{self.dag_id}/clearTaskInstances", body)
        self._wait("the cleared try", lambda: self._task()["try_number"] > tries)

    @contextlib.contextmanager
    def _at_the_point(self):
        """Run the driver to the fault's point, which it cannot pass while this is open.

        A fault of a run beside this one may end the driver on the way, on a node that they share. Then
        the next try's driver is run to the point: a lock kept for the lost one would stop its clean.
        """
        point = self.fault.point
        step = {"before": "before", "committed": "after"}.get(point, "rows")
        while True:
            self._wait(f"step {step}", (self.gate / f"{step}.reached").exists)
            if point in ("before", "requested", "committed"):
                self.report.reached = point
                yield
                return
            driver = drivers(self.table)
            with contextlib.ExitStack() as lock:
                lock.enter_context(lock_held(self.stack, self.table))
                if self._writes_to_the_point(driver, lock):
                    self.report.reached = point
                    yield
                    return
            print(
                f"{self.fault.name}: its driver was lost before {point}",
                flush=True,
            )

    def _writes_to_the_point(self, driver, lock):
        """Let the driver write as far as the point, or return that it is lost, and hold the next one."""
        hold = self.gate / "rows.hold"
        hold.unlink()
        with contextlib.suppress(ProcessLookupError):
            self._wait("inflight", lambda: inflight(self.reader), by=driver)
            if self.fault.point != "inflight":
                (instant,) = inflight(self.reader)
                self._wait("markers", lambda: has_markers(self.reader, instant), by=driver)
            if self.fault.point == "committing":
                lock.close()
                self._wait("the commit", lambda: self._commits(instant), by=driver)
            return True
        hold.touch()
        (self.gate / "rows.reached").unlink()
        return False

    def _commits(self, instant):
        """Whether Hudi writes the commit's part of the metadata table, under its lock."""
        names = self._names(f".hoodie/metadata/{self._timeline}")
        return any(name.startswith(instant) and ".deltacommit" in name for name in names)

    def _names(self, folder=""):
        return self.reader.files.listing(folder or self._timeline).names

    @functools.cached_property
    def _timeline(self):
        """The folder of the timeline, by the table's layout."""
        return self.reader.snapshot().config.timeline_folder

    def _kill(self):
        (driver,) = drivers(self.table)
        task = self._task_of(driver)
        victims = {
            "jvm": [driver],
            "python": programs(self.table),
            "task": [task],
            "supervisor": [task.parent()],
            "group": [task.parent(), task, driver, *driver.children(recursive=True)],
        }[self.fault.victim]
        assert victims, f"no {self.fault.victim}"
        send(victims, signal.SIGKILL)

    def _task_of(self, driver):
        """Return the task's process."""
        return psutil.Process(driver.ppid())

    def _freeze(self):
        """Pause the driver and all below it, kill its task, and record that its host is lost."""
        (driver,) = drivers(self.table)
        send([driver], signal.SIGSTOP)
        self.frozen = [driver, *driver.children(recursive=True)]
        send(self.frozen, signal.SIGSTOP)
        wrapper = psutil.Process(driver.ppid())
        while "spark2-submit" not in " ".join(wrapper.cmdline()):
            wrapper = wrapper.parent()
        task = wrapper.parent()
        send([task], signal.SIGKILL)
        self._wait("the retry", lambda: self._task()["state"] == "up_for_retry")
        store = f"{self._path}/taskInstances/write/state-store/{RECORD_KEY}"
        record = self.airflow.call("GET", store)["value"]
        for attempt in record["attempts"]:
            attempt["driver"] = {**attempt["driver"], **LOST_HOST}
        self.airflow.call("PATCH", store, {"value": record})
        return record["attempts"][-1]["instants"]

    def _thaw(self, instants):
        """Resume the driver at one step of the fence, with its Python program and that one's workers.

        A JVM alone waits for its program after each task that has run Python, while its heartbeat
        ticks: it never comes to Hudi's fence, and the retry waits for it without end.
        """
        step = self.fault.thawed
        if step == "waiting":
            self._wait("the wait", lambda: self._task()["state"] in ("deferred", "success"))
        elif step == "rollback_planned":
            self._wait(step, lambda: any(".rollback." in n for n in self._names()), quick=True)
        elif step == "files_deleted":
            begun = ".rollback.inflight"
            self._wait("a rollback", lambda: any(begun in n for n in self._names()), quick=True)
            files = self._data_files
            self._wait(step, lambda: not files(instants[-1]) or self._gone(instants[-1]), quick=True)
        else:
            self._wait(step, lambda: self._gone(instants[-1]), quick=True)
        send(self.frozen, signal.SIGCONT)

    def _data_files(self, instant):
        found = [name for partition in PARTITIONS for name in self._names(partition)]
        return [name for name in found if name.endswith(".parquet") and instant in name]

    def _gone(self, instant):
        """Whether the instant's inflight file (or, of one never inflight, its request) is gone."""
        return not any(name.startswith(instant) for name in self._names())

    def _audit(self):
        snapshot = self.reader.snapshot()
        found = [snapshot.reader.commit(one) for one in snapshot.timeline.completed_writes()]
        signed = [Signature.from_extra(one.extra) for one in found if not one.is_table_service]
        signatures = [one for one in signed if one.dag_id == self.dag_id]
        self.report.identities = tuple(one.identity for one in signatures)
        if len(signatures) != 1:
            self.report.wrong.append(f"signed commits of tries {[s.try_number for s in signatures]}")
        store = f"{self._path}/taskInstances/write/state-store/{RECORD_KEY}"
        record = self.airflow.call("GET", store)["value"]
        left = [one["try_number"] for one in record["attempts"] if not one["settled"]]
        if not self.is_red and (left or not record["succeeded"] or record["waiting"]):
            self.report.wrong.append(f"the record is not closed: unsettled tries {left}")
        lost = self.fault.victim == "frozen"  # its files are on the lost host
        if not lost and any(Path("/tmp").glob(f"airflow_occ_{record['identity']}_*")):
            self.report.wrong.append("an attempt's files were left")

    def _task(self):
        return self.airflow.call("GET", f"{self._path}/taskInstances/write")

    def _ended(self):
        state = self.airflow.call("GET", self._path)["state"]
        return state if state in ("success", "failed") else None

    def _last_log(self):
        lines = self.airflow.log_lines(self.dag_id, self.run_id, "write", self._task()["try_number"])
        return "\n".join(lines[-25:])

    def _wait(self, what, happened, *, quick=False, by=None):
        """Wait until something has happened.

        :param by: the processes that do it, if only they can.
        :raises ProcessLookupError: if all of those are gone.
        """
        deadline, look_at_task = time.monotonic() + _PATIENCE_S, time.monotonic() + _LOOK_S
        while True:
            with contextlib.suppress(EmbeddedError):
                answer = happened()
                if answer:
                    return answer
            if by is not None and not any(map(is_living, by)):
                raise ProcessLookupError(what)
            # A run ends after its task: what waits for that is not in vain.
            if happened != self._ended and time.monotonic() > look_at_task:
                look_at_task = time.monotonic() + _LOOK_S
                if self._task()["state"] == "failed":
                    raise RuntimeError(f"{what}: never, the task failed: {self._last_log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not in {_PATIENCE_S} s (task {self._task()['state']})")
            time.sleep(0.005 if quick or by is not None else 0.3)


class RunByBash(FaultyRun):
    """One run whose driver a command starts, and starts again if it fails."""

    dag_id = "by_bash"

    def _task_of(self, driver):
        return next(process for process in driver.parents() if process.name() != "bash")

    def _audit(self):
        super()._audit()
        folder = run_folder(self.table, "").removesuffix("/")
        # The command may outlive the task, and start one more driver, which leaves.
        with contextlib.suppress(AssertionError):
            wait_until_gone(processes_in(folder), _END_S)
        self.report.wrong += [f"left: {process}" for process in processes_in(folder)]
        attempts = Path(folder.removeprefix("file://")).glob("*/*")
        self.report.wrong += [f"left: {attempt}" for attempt in attempts]

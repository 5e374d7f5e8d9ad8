"""One faulty run in YARN's cluster mode: reach the point, inject the fault, check."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

from airflow_occ_provider.errors import SubmitterUnreachableError
from airflow_occ_provider.submitters.yarn_place import ResourceManager
from tests.demo import yarn_connection
from tests.faults.processes import drivers, programs, send, wait_until_gone
from tests.faults.rig import JOB, FaultyRun
from tests.faults.rig import SETTINGS as OF_CLIENT_MODE
from tests.services.airflow import EmbeddedAirflow
from tests.support.writers import LOCK_BASE_PATH

HERE = Path(__file__).parent
SETTINGS = {
    **OF_CLIENT_MODE,
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "PYTHONPATH": str(HERE / "triggers"),
}
EXPIRY_MS = 15_000
YARN_SETTINGS = {
    "yarn.nm.liveness-monitor.expiry-interval-ms": EXPIRY_MS,
    "yarn.resourcemanager.nm.liveness-monitor.expiry-interval-ms": EXPIRY_MS,
}
HELD = {"requested": ("rows",), "committed": ("after",), "launching": ()}
WITHOUT_DRIVER = ("submitting", "unrecorded", "recorded")
OF_JOB = ("requested", "inflight", "markers", "committing", "committed")
_END_S = 60


@contextlib.contextmanager
def airflow(folder, stack, yarn):
    """A real Airflow with the rig's DAG and the connections to the stack and YARN."""
    environment = yarn.environment(stack.environment)
    environment["PATH"] = os.pathsep.join([str(HERE / "bin"), environment["PATH"]])
    with EmbeddedAirflow(folder, HERE / "dags", environment, SETTINGS) as running:
        running.add_connection(
            "hudi_lock_default",
            conn_type="hudi_zookeeper_lock",
            host=stack.zookeeper.hosts,
            extra={"base_path": LOCK_BASE_PATH, "session_timeout_ms": 10000},
        )
        running.add_connection("spark_default", **yarn_connection(yarn))
        deadline = time.monotonic() + 120
        while not running.has_dag("remote"):
            assert time.monotonic() < deadline, "the DAG was not read"
            time.sleep(0.5)
        yield running


class RemoteRun(FaultyRun):
    """One run of the DAG ``remote`` with one fault."""

    dag_id = "remote"

    def __init__(self, running, stack, folder, fault, yarn, services):
        super().__init__(running, stack, folder, fault)
        self.manager = ResourceManager([yarn.resource_manager])
        self.services = services
        self.lost_before = len(services.lost)
        self.applications = ()

    def _run(self):
        point = self.fault.point
        own = (point,) if point in (*WITHOUT_DRIVER, "resumed") else ()
        of_job = HELD.get(point, ("rows",) if point in OF_JOB else ("before",))
        for step in (*own, *(() if point == "resumed" else of_job)):
            (self.gate / f"{step}.hold").touch()
        conf = {"job": str(JOB), "table": str(self.table), "gate": str(self.gate)}
        self.run_id = self.airflow.trigger(self.dag_id, conf)
        self._path = f"/dags/{self.dag_id}/dagRuns/{self.run_id}"
        with contextlib.ExitStack() as outage:
            with self._at_the_point():
                outage.enter_context(self._fault())
            for hold in self.gate.glob("*.hold"):
                hold.unlink()
        state = self._wait("the end of the run", self._ended)
        self.report.tries = self._task()["try_number"]
        if state != "success" and not self._is_red_after_its_commit(state):
            self.report.wrong.append(f"the run ended as {state}: {self._last_log()}")
        self._audit()

    @contextlib.contextmanager
    def _at_the_point(self):
        point = self.fault.point
        if point == "launching":
            self._wait(point, (self.gate / "submitting.reached").exists, quick=True)
            time.sleep(self.fault.delay_s)
        elif point in (*WITHOUT_DRIVER, "resumed"):
            self._wait(point, (self.gate / f"{point}.reached").exists)
        else:
            self._wait("the deferral", lambda: self._task()["state"] == "deferred")
        if point in ("recorded", "deferred"):
            self._wait("the driver", (self.gate / "before.reached").exists)
        with super()._at_the_point() if point in OF_JOB else contextlib.nullcontext():
            self.report.reached = point
            yield

    def _fault(self):
        """Inject the fault; what is returned mends it when it is left."""
        victim = self.fault.victim
        if victim == "user":
            self._clear()
            return contextlib.nullcontext()
        if victim not in ("am", "program", "task", "worker"):
            return self.services.without(victim, self.fault.outage_s)
        if victim in ("am", "program"):
            killed = drivers(self.table) if victim == "am" else programs(self.table)
        else:
            killed = self._task_processes(whole=victim == "worker")
        assert killed or self.fault.point == "launching", f"no {victim}"
        send(killed, signal.SIGKILL)
        return contextlib.nullcontext()

    def _task_processes(self, *, whole):
        """Return the task's process, or all of its worker; none if the task has just deferred."""
        with contextlib.suppress(psutil.NoSuchProcess):
            task = psutil.Process(int((self.gate / "task.pid").read_text()))
            return [task.parent(), task, *task.children(recursive=True)] if whole else [task]
        return []

    def _audit(self):
        super()._audit()
        self.applications = self._tagged()
        if self._keeps_its_driver and len(self.applications) != 1:
            self.report.wrong.append(f"{len(self.applications)} applications, not one")
        deadline = time.monotonic() + _END_S
        while left := [one.id for one in self._tagged() if not one.is_over]:
            if time.monotonic() > deadline:
                self.report.wrong.append(f"alive in YARN: {', '.join(left)}")
                return
            time.sleep(0.5)
        with contextlib.suppress(AssertionError):
            wait_until_gone([*drivers(self.table), *programs(self.table)], _END_S)

    def _tagged(self):
        """Return the run's applications, once a ResourceManager that another run has ended is back."""
        deadline = time.monotonic() + _END_S
        while True:
            try:
                return self.manager.applications(self.fault.name)
            except SubmitterUnreachableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    @property
    def _keeps_its_driver(self):
        """Whether nothing has ended a driver: a task that Airflow resets ends its own, and is killed."""
        lost = self.services.lost[self.lost_before :]
        ends = {"node", "frozen_node", "manager", "scheduler"}.intersection(lost)
        is_recorded = self.fault.point not in ("launching", "unrecorded")  # else it is not granted
        return is_recorded and not ends and self.fault.victim not in ("am", "program", "user")

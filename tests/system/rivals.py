"""Others in line beside the tasks of a test, and what such a test asks of its runs."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.client import Access
from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes
from airflow_occ_provider.storage.table import HudiTable
from tests.writers import JOB

ROOT = "/airflow_occ/leases"
TTL_MS = 10_000
TTL_S = TTL_MS / 1000


def open_line(hudi_stack):
    return Queue(ZookeeperNodes(Access(hudi_stack.zookeeper.hosts), ROOT))


def hold(line, table, partitions=None, mode=Mode.EXCLUSIVE):
    """Stand in line as somebody else, with a term that outlasts the test."""
    owner = Owner(("test", uuid.uuid4().hex[:6], "rival"))
    scope = Scope.of(str(table), partitions, mode)
    ticket = line.request(Request(uuid.uuid4().hex, owner, (scope,), TTL_MS))
    line.renew(ticket, 600_000)
    return ticket


@contextmanager
def waiting(hudi_stack, table, partitions=None):
    """Somebody who waits in line, and looks all the time; the list gets when he was granted."""
    line, granted, ended = open_line(hudi_stack), [], threading.Event()
    ticket = hold(line, table, partitions)

    def look():
        while not ended.wait(0.3):
            if line.status(ticket).held:
                granted.append(time.monotonic())
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield granted
    finally:
        ended.set()
        thread.join(30)
        line.release(ticket)
        line.close()


def conf(tmp_path, **more):
    paths = {name: tmp_path / name for name in ("gate", "table", "other")}
    paths["gate"].mkdir(exist_ok=True)
    return {"job": JOB, **paths, "scope": "1", **more}


def ours(line, table):
    """Who stands in line for a table, but for the test's own."""
    return [one for one in line.requests(str(table)) if one.request.owner.path[0] != "test"]


def wait_for_state(run, task_id, state, number=1):
    def there():
        task = run.task(task_id)
        return (task["state"], task["try_number"]) == (state, number)

    run.wait_for(there, f"{task_id}: try {number} {state}")


def wait_for_trigger(run, task_id, number=1):
    wait_for_state(run, task_id, "deferred", number)
    run.wait_for(lambda: "Waiting: " in run.log(task_id, number), "the trigger")


def state(run):
    return run.airflow.call("GET", run._path)["state"]


def states(run, *task_ids):
    return [run.task(task_id)["state"] for task_id in task_ids]


def commits(table):
    snapshot = HudiTable(str(table)).snapshot(missing_ok=True)
    return [snapshot.reader.commit(one) for one in snapshot.timeline.completed_writes()]

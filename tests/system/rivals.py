"""Rival requests in the queue beside a test's tasks, and questions that the tests ask of runs."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from airflow_occ_provider.storage.table import HudiTable
from tests.support.writers import JOB

ROOT = "/airflow_occ/leases"
TTL_MS = 10_000
TTL_S = TTL_MS / 1000


def open_queue(hudi_stack):
    return Queue(ZookeeperStore(ZookeeperAccess(hudi_stack.zookeeper.hosts), ROOT))


def hold(queue, table, partitions=None, mode=Mode.EXCLUSIVE):
    """Add a rival's request to the queue, with a lifetime longer than the test."""
    owner = Owner(("test", uuid.uuid4().hex[:6], "rival"))
    scope = Scope.of(str(table), partitions, mode)
    ticket = queue.request(Request(uuid.uuid4().hex, owner, (scope,), TTL_MS))
    queue.renew(ticket, 600_000)
    return ticket


@contextmanager
def waiting(hudi_stack, table, partitions=None):
    """Queue a waiter that polls its status; the yielded list gets the time at which it is granted."""
    queue, granted, ended = open_queue(hudi_stack), [], threading.Event()
    ticket = hold(queue, table, partitions)

    def poll():
        while not ended.wait(0.3):
            if queue.status(ticket).held:
                granted.append(time.monotonic())
                return

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield granted
    finally:
        ended.set()
        thread.join(30)
        queue.release(ticket)
        queue.close()


def conf(tmp_path, **more):
    paths = {name: tmp_path / name for name in ("gate", "table", "other")}
    paths["gate"].mkdir(exist_ok=True)
    return {"job": JOB, **paths, "scope": "1", **more}


def ours(queue, table):
    """Return the requests queued for a table, without those that the test made."""
    return [one for one in queue.requests(str(table)) if one.request.owner.path[0] != "test"]


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

"""A ``spark-submit`` that runs no Spark: a script that does to a table what a plan says.

It speaks to its task as a real driver does: it waits for its grant, reads its payload, reports the
runner's facts and Hudi's records, and writes a timeline of layout 2.
"""

from __future__ import annotations

import json

from airflow_occ_provider.hudi.writer.options import zookeeper_lock_options
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.support.task_state import Store, Task

LOCK = zookeeper_lock_options(
    "localhost:2181",
    "/hudi",
    session_timeout_ms=1,
    connection_timeout_ms=1,
    wait_time_ms=1,
    num_retries=1,
)
SCRIPT = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time

HOME, FOLDER = pathlib.Path(__file__).parents[1], pathlib.Path(sys.argv[-1])
SIGNED = {}
CONFLICT = (
    "org.apache.hudi.exception.HoodieWriteConflictException: Cannot resolve conflicts for overlapping "
    "writes between first operation = {actionType=commit, instantTime=%s, actionState=INFLIGHT}, "
    "second operation = {actionType=commit, instantTime=%s, actionState=COMPLETED}"
)


def fact(fact, **more):
    with (FOLDER / "facts.jsonl").open("a") as facts:
        facts.write(json.dumps({"fact": fact, **more}) + "\\n")


def hudi(message, logger="ActiveTimelineV2"):
    fact("hudi", logger=logger, thread="main", message=message)


def begin(instant, table):
    metadata = pathlib.Path(table, ".hoodie")
    (metadata / "timeline").mkdir(parents=True, exist_ok=True)
    (metadata / ".heartbeat").mkdir(exist_ok=True)
    hudi(f"Creating a new instant [==>{instant}__commit__REQUESTED]")
    (metadata / ".heartbeat" / instant).touch()
    for kind in ("commit.requested", "inflight"):
        (metadata / "timeline" / f"{instant}.{kind}").touch()
    hudi(f"Create new file for toInstant ?{metadata}/timeline/{instant}.inflight")


def transaction(step, instant):
    hudi("State change %s Option{val=[==>%s__commit__INFLIGHT]}" % (step, instant), "TransactionManager")


def write(instant, table, heard=True, checked=True, followed_again=False):
    begin(instant, table)
    if followed_again:
        fact("followed_again")
    tell = hudi if heard else (lambda *_: None)
    path = pathlib.Path(table, "p=1", f"f1-0_1-0_{instant}.parquet")
    path.parent.mkdir(exist_ok=True)
    path.touch()
    if heard:
        transaction("starting for", instant)
    if checked:
        tell("Successfully resolved conflicts, if any", "TransactionUtils")
    stat = {"fileId": "f1-0", "path": f"p=1/{path.name}", "prevCommit": "null", "numInserts": 1}
    made = {"partitionToWriteStats": {"p=1": [stat]}, "operationType": "UPSERT", "extraMetadata": SIGNED}
    timeline = pathlib.Path(table, ".hoodie", "timeline")
    name = f"{instant}_{int(instant) + 500}.commit"
    (timeline / f"{name}.part").write_text(json.dumps(made))
    (timeline / f"{name}.part").rename(timeline / name)
    tell(f"Created new file for toInstant ?{timeline}/{name}")
    if heard:
        transaction("ending for action instant", instant)
    pathlib.Path(table, ".hoodie", ".heartbeat", instant).unlink()


def fatal(text, jvm=True):
    name, _, message = text.partition(": ")
    fact("fatal", causes=[{"type": name, "message": message, "jvm": jvm, "frames": []}])


def wait():
    (FOLDER / "hello.scripted").write_text("{}")
    while not (FOLDER / "grant").exists():
        time.sleep(0.01)
    payload = json.loads((FOLDER / "payload").read_text())
    SIGNED.update((key, text) for key, text in payload["options"].items() if key.startswith("_airflow_"))


plans = json.loads((HOME / "plans.json").read_text())
plan = plans.pop(0)
(HOME / "plans.json").write_text(json.dumps(plans))
if plan[:1] != [["hang"]]:
    wait()
for step, *given in plan:
    if step == "protected":
        fact("protected", followed=True, reports_end=True)
    elif step == "write":
        write(*given)
    elif step == "write_unheard":  # log4j is configured anew once the write has begun
        write(*given, heard=False)
    elif step == "write_heard_again":  # the check is in a gap, after which the runner hears Hudi again
        write(*given, checked=False, followed_again=True)
    elif step == "write_unchecked":  # the job changes its concurrency mode, where no rule sees it
        write(*given, checked=False)
    elif step == "conflict":
        hudi("Found conflicting writes between " + CONFLICT.partition("between ")[2] % tuple(given), "S")
    elif step == "throw":
        fatal(given[0])
    elif step == "begin":
        begin(*given)
    elif step == "lose":
        fatal(CONFLICT % tuple(given))
    elif step == "raise":
        fatal("ValueError: " + given[0], jvm=False)
    elif step == "end":
        fact("end", exit_code=given[0])
    elif step == "gone":
        for path in pathlib.Path(given[1], ".hoodie", "timeline").glob(given[0] + "*"):
            path.unlink()
    elif step == "hang":  # before the runner has begun
        time.sleep(600)
    elif step == "exit":
        sys.exit(given[0])
    elif step == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""
PROTECTED = ["protected"]


class ScriptedSpark:
    """The drivers of a task run, each with a plan of its own."""

    def __init__(self, home, table):
        self.home, self.table, self.store = home, table, Store()
        self.job = home / "job.py"
        self.job.touch()

    def plan(self, *steps, **given):
        """Add the steps of the next driver, which a table without a name means the task's."""
        path = self.home / "plans.json"
        plans = json.loads(path.read_text()) if path.exists() else []
        placed = [self._placed(list(step)) for step in steps]
        path.write_text(json.dumps([*plans, [PROTECTED, *placed]]))

    def unprotected(self, *steps):
        """Add the steps of a driver that reports nothing by itself."""
        path = self.home / "plans.json"
        path.write_text(json.dumps([[self._placed(list(step)) for step in steps]]))

    @property
    def left(self):
        """The number of drivers that were not started."""
        return len(json.loads((self.home / "plans.json").read_text()))

    def run(self, number=1, max_tries=14, **given):
        """Make a try of the task; return its result."""
        task, context = self.task(number, max_tries, **given)
        return task.execute(context)

    def task(self, number=1, max_tries=14, **given):
        """Return the operator of a try, and its context."""
        given = {"task_id": "t", "application": str(self.job), "table": self.table, **given}
        task = HudiWriteOperator(**given)
        instance = Task(number, max_tries)
        instance.xcom_push = lambda *_, **__: None
        return task, {
            "ti": instance,
            "task_state_store": self.store,
            "task": task,
            "outlet_events": {},
        }

    def _placed(self, step):
        needs_table = step[0].startswith(("write", "begin", "gone")) and len(step) == 2
        return [*step, self.table] if needs_table else step

"""The shapes of jobs, and what is expected of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent / "jobs"
MODULES = Path(__file__).parent / "modules"
"""What jobs import from elsewhere than their own folder."""
ONE_COMMIT = ("MisconfigurationError", "commits='one'")
"""How a job that makes several commits fails without ``commits="many"``."""


@dataclass(frozen=True)
class Shape:
    """A job, run plainly and by a task.

    :param job: the name of its file in ``jobs``; its first line says what it does.
    :param base: the job that makes the table first; empty for a new table.
    :param label: words of its name, beside those of the job.
    :param words: further arguments of the job.
    :param hudi_defaults: options of Hudi that the plain run has from its site.
    :param conf: plain ``spark-submit`` options, with the task's arguments of the same effect.
    :param task: arguments of the operator.
    :param runs: how often both are started until they succeed.
    :param fails: a text of the plain run's output if it fails.
    :param refused: the error of the task, and a text of it, if its outcome differs from the plain one's.
    :param without_many: the error of the task without its ``commits="many"``, and a text of it.
    :param remark: what a reader should know.
    """

    job: str
    base: str = ""
    words: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    hudi_defaults: Mapping[str, str] = field(default_factory=dict)
    conf: tuple[str, ...] = ()
    task: Mapping[str, Any] = field(default_factory=dict)
    runs: int = 1
    fails: str = ""
    refused: tuple[str, str] | None = None
    without_many: tuple[str, str] | None = None
    remark: str = ""

    @property
    def name(self) -> str:
        """The name on the page."""
        return " ".join([self.job, *self.words, *self.label])

    @property
    def path(self) -> Path:
        """The job's file."""
        return JOBS / f"{self.job}.py"

    @property
    def commits(self) -> str:
        """What the task declares."""
        return str(self.task.get("commits", "one"))


OCC = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
"""What lets the threads of one driver lose conflicts to each other."""
MANY = {"commits": "many"}
MODULE = str(MODULES / "trip_rules.py")
SHAPES = (
    Shape("upsert"),
    Shape("foreach_batch", task=MANY, without_many=ONE_COMMIT),
    Shape("delete_then_upsert", base="upsert", task=MANY, without_many=ONE_COMMIT),
    Shape("two_tables", task=MANY, without_many=ONE_COMMIT),
    Shape("two_tables", words=("fails_once",), task=MANY, runs=2),
    Shape(
        "sql_merge",
        label=("snapshot",),
        base="upsert",
        refused=("MisconfigurationError", "reads what it writes"),
    ),
    Shape(
        "sql_merge",
        label=("serializable",),
        base="upsert",
        task={"isolation": "serializable"},
    ),
    Shape("writer_v2"),
    Shape("several_sessions", task=MANY),
    Shape("stop_and_exit"),
    Shape("os_exit"),
    Shape("os_exit", words=("3",), fails=" ", refused=("FailedAfterCommitError", "exit code 3")),
    Shape("caught_conflict", base="upsert", hudi_defaults=OCC, task=MANY),
    Shape(
        "caught_conflict",
        words=("goes_on",),
        base="upsert",
        hudi_defaults=OCC,
        task=MANY,
        remark="The job gives its own write up in both: a conflict that a job catches fails no task.",
    ),
    Shape("own_lock", refused=("MisconfigurationError", "hoodie.write.lock.provider")),
    Shape("own_concurrency_mode", refused=("MisconfigurationError", "hoodie.write.concurrency.mode")),
    Shape("mor_inline_compaction", task=MANY),
    Shape("bucket_index"),
    Shape("record_level_index"),
    Shape("non_partitioned"),
    Shape("typed_pandas_udf"),
    Shape("py_files", conf=("--py-files", MODULE), task={"py_files": MODULE}),
    Shape("daemon_child"),
    Shape("gigabyte_of_output"),
    Shape("log_reconfigured"),
    Shape("threads_two_tables", task=MANY),
)
SMOKE = ("two_tables", "sql_merge", "typed_pandas_udf", "os_exit", "own_lock", "py_files")
"""The jobs of a short run."""

"""The shapes of jobs, and what is expected of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent / "jobs"
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


MANY = {"commits": "many"}
SHAPES = (
    Shape("upsert"),
    Shape("foreach_batch", task=MANY, without_many=ONE_COMMIT),
    Shape("delete_then_upsert", base="upsert", task=MANY, without_many=ONE_COMMIT),
    Shape("two_tables", task=MANY, without_many=ONE_COMMIT),
    Shape("two_tables", words=("fails_once",), task=MANY, runs=2),
    Shape("sql_merge", label=("with reads_table=True",), base="upsert", task={"reads_table": True}),
    Shape("stop_and_exit"),
    Shape("own_lock", refused=("MisconfigurationError", "hoodie.write.lock.provider")),
    Shape("typed_pandas_udf"),
)
SMOKE = ("two_tables", "sql_merge", "typed_pandas_udf", "own_lock")
"""The jobs of a short run."""

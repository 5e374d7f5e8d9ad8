"""Races with leases and without, and the results that they must not have."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.attempts.sql_text import read_sql
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.races.writer import Task, TaskResult
from tests.races.writes import PARTITIONS, Table
from tests.support.stores import Lake
from tests.support.writers import stack_lock

_WRITERS = 3


@dataclass(frozen=True)
class Result:
    """The result of one run.

    :param bad: what must not happen; empty in a good run.
    :param conflicts: tries that lost.
    """

    bad: str
    conflicts: int
    results: Sequence[TaskResult]


class Course:
    """Runs races on one Spark and one lock service, each on a fresh table.

    :param spark: the session.
    :param stack: has the lock service.
    :param lake: where the tables are.
    """

    def __init__(self, spark: Any, stack: EmbeddedStack, lake: Lake) -> None:
        self._spark = spark
        self._stack = stack
        self.lake = lake
        self._threads = ThreadPoolExecutor(64, "race")
        self._count = 0

    def table(self) -> Table:
        """Return a copy of a table that has three rows in one file of each partition."""
        self._count += 1
        table = self._named(f"t{self._count}")
        self.lake.copy(self._written.path, table.path)
        return table

    def _named(self, name: str) -> Table:
        return Table(self._spark, self.lake.path(name), self._stack)

    @cached_property
    def _written(self) -> Table:
        table = self._named("written")
        table.write([(f"{p}-{n}", p, 0) for p in PARTITIONS for n in range(3)])
        return table

    def run(self, tasks: Iterable[Task]) -> list[TaskResult]:
        """Run tasks at once, each in a session of its own."""
        return [one.result(timeout=600) for one in [self.start(task) for task in tasks]]

    def start(self, task: Task) -> Any:
        """Start one task."""
        return self._threads.submit(self._run, task)

    def _run(self, task: Task) -> TaskResult:
        queue = self._leases()
        try:
            return task.run(queue, self._spark._jvm, self._threads, self.lake)
        finally:
            queue.close()

    def _leases(self) -> Queue:
        if self._stack.lock == "zookeeper":
            return Queue(ZookeeperStore(ZookeeperAccess(self._stack.zookeeper.hosts), "/races/leases"))
        return stack_lock(self._stack).leases()


def _isolation(*, guarded: bool) -> Isolation:
    return Isolation.SERIALIZABLE if guarded else Isolation.SNAPSHOT


def same_new_keys(course: Course, seed: int, *, guarded: bool) -> Result:
    """Upsert the same new keys from several writers at once."""
    rng, table = random.Random(f"keys {seed}"), course.table()
    partition = rng.choice(PARTITIONS)

    def job(number: int) -> Callable[[], None]:
        return lambda: table.write([(f"new-{n}", partition, number) for n in range(3)])

    results = course.run(
        Task(
            f"w{number}", table, job(number), isolation=_isolation(guarded=guarded),
            delay_s=rng.uniform(0, 0.4),
        )
        for number in range(_WRITERS)
    )  # fmt: skip
    twice = table.duplicates()
    return _result(f"keys twice: {twice}" if twice else "", results)


def increments(course: Course, seed: int, *, guarded: bool) -> Result:
    """Read a counter and write it back plus one, from several writers at once."""
    rng, table = random.Random(f"increments {seed}"), course.table()
    partition = rng.choice(PARTITIONS)

    def job(pause_s: float) -> Callable[[], None]:
        def increment() -> None:
            value = next(v for k, _, v in table.rows() if k == f"{partition}-0")
            time.sleep(pause_s)
            table.write([(f"{partition}-0", partition, value + 1)])

        return increment

    results = course.run(
        Task(
            f"w{number}", table, job(pause_s + rng.uniform(0, 1.0)), delay_s=rng.uniform(0, 1.0),
            isolation=_isolation(guarded=guarded),
        )
        # One pauses for so long that others commit between its read and its write.
        for number, pause_s in enumerate((4.0, 0.0, 0.0))
    )  # fmt: skip
    value = next(v for k, _, v in table.rows() if k == f"{partition}-0")
    return _result(f"counted {value} of {_WRITERS}" if value != _WRITERS else "", results)


def merges(course: Course, seed: int, *, guarded: bool) -> Result:
    """Increment a counter by MERGE with what was read before, from two writers at once.

    Both have no scope: only what the text of the SQL implies keeps them apart.
    """
    rng, table = random.Random(f"merge {seed}"), course.table()
    partition, name = rng.choice(PARTITIONS), f"merged_{table.name}"
    table.register(name)

    def text(value: int) -> str:
        return (
            f"MERGE INTO {name} AS t USING "
            f"(SELECT '{partition}-0' AS k, '{partition}' AS p, {value} AS v) AS s "
            "ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.v = s.v"
        )

    def job(pause_s: float) -> Callable[[], None]:
        def merge() -> None:
            value = next(v for k, _, v in table.rows() if k == f"{partition}-0")
            time.sleep(pause_s)
            table.run(text(value + 1))

        return merge

    assert read_sql(text(0), table.path, name).reads
    results = course.run(
        Task(
            f"w{number}", table, job(pause_s + rng.uniform(0, 1.0)), delay_s=rng.uniform(0, 1.0),
            isolation=_isolation(guarded=guarded),
        )
        # One pauses for so long that the other commits between its read and its MERGE.
        for number, pause_s in enumerate((6.0, 0.0))
    )  # fmt: skip
    value = next(v for k, _, v in table.rows() if k == f"{partition}-0")
    return _result(f"counted {value} of 2" if value != 2 else "", results)


def scopes(course: Course, seed: int, *, guarded: bool) -> Result:
    """Update rows of random partitions, declared or not, from several writers at once."""
    rng, table = random.Random(f"scopes {seed}"), course.table()

    def task(number: int) -> Task:
        own = sorted(rng.sample(PARTITIONS, rng.choice((1, 1, 2))))
        return Task(
            f"w{number}",
            table,
            lambda: table.write([(f"{p}-0", p, number) for p in own]),
            own if guarded else None,
            delay_s=rng.uniform(0, 0.5),
        )

    results = course.run([task(number) for number in range(_WRITERS + 1)])
    conflicts = sum(one.conflicts for one in results)
    return _result(f"{conflicts} conflicts" if conflicts else "", results)


@dataclass(frozen=True)
class LongDelete:
    """The result of a long delete among short upserts.

    :param bad: what must not happen; empty in a good run.
    :param delete: the delete.
    :param upserts: in the order of their arrival.
    :param usual_s: what an upsert takes alone.
    """

    bad: str
    delete: TaskResult
    upserts: Sequence[TaskResult]
    usual_s: float

    @property
    def latest_s(self) -> float:
        """The delay of the most delayed upsert, beyond its usual time."""
        return max(one.took_s for one in self.upserts) - self.usual_s


def long_delete(course: Course, *, times: float = 20, every: float = 5) -> LongDelete:
    """Delete slowly over all partitions, while upserts of them start every few seconds.

    :param times: length of the delete, in upserts.
    :param every: time between two starts, in upserts.
    """
    table = course.table()

    def upsert(number: int) -> Task:
        own = PARTITIONS[number % len(PARTITIONS)]
        return Task(f"u{number}", table, lambda: table.write([(f"{own}-0", own, number)]))

    usual_s = min(course.run([upsert(0)])[0].took_s for _ in range(3))
    delete = Task(
        "delete",
        table,
        lambda: table.write([(f"{p}-1", p, 0) for p in PARTITIONS], "delete"),
        pause_s=times * usual_s,
    )
    ended, upserts = threading.Event(), []
    running = course.start(delete)
    running.add_done_callback(lambda _: ended.set())
    number = 0
    while not ended.is_set():
        number += 1
        upserts.append(course.start(upsert(number)))
        ended.wait(every * usual_s)
    results = [one.result(timeout=600) for one in upserts]
    wrong = sorted({k for k, _, _ in table.rows()} ^ {f"{p}-{n}" for p in PARTITIONS for n in (0, 2)})
    bad = _result(f"lost or left: {', '.join(wrong)}" if wrong else "", [running.result(), *results]).bad
    return LongDelete(bad, running.result(), results, usual_s)


def _result(bad: str, results: Sequence[TaskResult]) -> Result:
    failed = [f"{one.name}: {one.error}" for one in results if one.error]
    return Result(
        "; ".join(filter(None, [bad, *failed])), sum(one.conflicts for one in results), results
    )

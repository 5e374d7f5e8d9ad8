"""A table's writers in virtual time, and what a real ``WriterWatch`` reports of them.

Each request to the storage takes a while, in which the writers continue: they begin, beat, commit, and
are killed. It is answered with the state of some moment of that while; now and then it takes
almost as long as it may, or the watching host pauses before it reads the answer.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import Observation, WriterWatch
from tests.support.table_properties import table_properties

_ROOT = "/simulated"
_HEARTBEATS, _TIMELINE = f"{_ROOT}/.hoodie/.heartbeat", f"{_ROOT}/.hoodie/timeline"
_PROPERTIES = table_properties(version=8).encode()
_STEP_MS = 2000  # between the steps in which a writer begins and ends, at most
_SLOW_MS, _FROZEN_MS = 59_000, 180_000


@dataclass(frozen=True)
class Odds:
    """How often things happen.

    :param beats: of a writer, on average.
    :param killed: share of the writers that are.
    :param slow: share of the requests that take almost as long as a request may.
    :param frozen: share of the answers after which the watching host pauses.
    """

    beats: int = 50
    killed: float = 0.02
    slow: float = 0.002
    frozen: float = 0.001


USUAL = Odds()


@dataclass(slots=True)
class Writer:
    """The true state of a writer.

    :param instant: its requested time.
    :param beats: how often it will beat.
    :param beating: whether it lives, and does not commit or fail on the next occasion.
    :param last_ms: when it last beat.
    :param expired_ms: when its heartbeat expires, of one that was killed.
    :param reported: whether an observation called it dead, or a lazy clean removed it.
    """

    instant: str
    beats: int
    beating: bool = True
    last_ms: float = 0.0
    expired_ms: float | None = None
    reported: bool = False


@dataclass
class Findings:
    """The result of a simulation.

    :param beats: how many there were.
    :param observations: how often the table was observed.
    :param committed: how many writers did.
    :param false: writers that were called dead and were not, with when.
    :param reported: how many were killed and called dead.
    :param overlooked: observations that began after Hudi's tolerance for a killed writer, and
        did not call it dead.
    """

    beats: int = 0
    observations: int = 0
    committed: int = 0
    false: list[tuple[str, float]] = field(default_factory=list)
    reported: int = 0
    overlooked: int = 0


class World:
    """The storage of one table, and its writers, as an fsspec file system shows them.

    :param rng: decides everything.
    :param rule: of the heartbeats.
    :param writers: how many write at any time.
    :param jitter: share of the interval by which a beat may be early or late.
    :param odds: of what else happens.
    """

    protocol = "simulated"

    def __init__(
        self, rng: random.Random, rule: HeartbeatRule, writers: int, jitter: float, odds: Odds
    ) -> None:
        self.now_ms = 1e12
        self.findings = Findings()
        self.writers: dict[str, Writer] = {}
        self.killed: list[Writer] = []
        self._rng, self._rule, self._jitter, self._odds = rng, rule, jitter, odds
        self._folders: dict[str, dict[str, float]] = {
            f"{_ROOT}/.hoodie": {"hoodie.properties": 0},
            _HEARTBEATS: {},
            _TIMELINE: {},
        }
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        for _ in range(writers):
            self._after(rng.uniform(0, rule.interval_ms), self._begin)

    def pass_time(self, ms: float) -> None:
        """Let the writers go on for a while."""
        until_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, happens = heapq.heappop(self._events)
            happens()
        self.now_ms = until_ms

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        assert detail
        return self._answered(
            lambda: [{"name": name, "mtime": ms / 1e3} for name, ms in self._folders[path].items()]
        )

    def cat_file(self, path: str) -> bytes:
        if not path.endswith("/hoodie.properties"):
            raise FileNotFoundError(path)
        return self._answered(lambda: _PROPERTIES)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Do nothing: there is no cache."""

    def _strip_protocol(self, path: str) -> str:
        return path

    def _answered(self, answer: Callable[[], Any]) -> Any:
        slow, frozen = (self._rng.random() < odds for odds in (self._odds.slow, self._odds.frozen))
        took_ms = self._rng.uniform(0, _SLOW_MS if slow else 500)
        before_ms = self._rng.uniform(0, took_ms)
        self.pass_time(before_ms)
        found = answer()
        self.pass_time(took_ms - before_ms + (self._rng.uniform(0, _FROZEN_MS) if frozen else 0))
        return found

    def _after(self, ms: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + ms, next(self._numbers), happens))

    def _step(self, happens: Callable[[], None]) -> None:
        self._after(self._rng.uniform(0, _STEP_MS), happens)

    def _begin(self) -> None:
        """Begin a write as Hudi does: heartbeat, then request; then heartbeats at a fixed rate."""
        writer = Writer(
            f"{20260101000000000 + next(self._numbers)}", self._rng.randint(1, 2 * self._odds.beats)
        )
        self.writers[writer.instant] = writer
        self._step(lambda: self._write(_TIMELINE, f"{writer.instant}.commit.requested"))
        self._beat(writer, self.now_ms)

    def _beat(self, writer: Writer, due_ms: float) -> None:
        if not writer.beating:
            return
        writer.last_ms = self.now_ms
        writer.beats -= 1
        self.findings.beats += 1
        self._write(_HEARTBEATS, writer.instant)
        if writer.beats == 0:
            self._step(lambda: self._end(writer))
        at_ms = due_ms + self._rule.interval_ms * (1 + self._rng.uniform(-1, 1) * self._jitter)
        self._after(at_ms - self.now_ms, lambda: self._beat(writer, at_ms))

    def _end(self, writer: Writer) -> None:
        killed = self._rng.random() < self._odds.killed
        writer.beating = False
        self._after(self._rng.uniform(0, self._rule.interval_ms), self._begin)
        if killed:
            tolerance_ms = self._rule.interval_ms * self._rule.tolerable_misses
            writer.expired_ms = writer.last_ms + tolerance_ms
            self.killed.append(writer)
            self._after(tolerance_ms * 4, lambda: self._clean(writer))
            return
        self.findings.committed += 1
        self._write(_TIMELINE, f"{writer.instant}_{int(writer.instant) + 1}.commit")
        self._step(lambda: self._forget(writer))

    def _clean(self, writer: Writer) -> None:
        """Remove a dead writer's files as a lazy clean does."""
        writer.reported = True
        self._folders[_TIMELINE].pop(f"{writer.instant}.commit.requested")
        self._step(lambda: self._forget(writer))

    def _forget(self, writer: Writer) -> None:
        self._folders[_HEARTBEATS].pop(writer.instant)
        self._after(10 * self._rule.interval_ms, lambda: self._archive(writer))

    def _archive(self, writer: Writer) -> None:
        timeline = self._folders[_TIMELINE]
        for name in [name for name in timeline if name.startswith(writer.instant)]:
            del timeline[name]

    def _write(self, folder: str, name: str) -> None:
        self._folders[folder][name] = self.now_ms


def simulate(
    seed: int,
    beats: int,
    *,
    rule: HeartbeatRule = DEFAULT_RULE,
    writers: int = 20,
    jitter: float = 0.2,
    odds: Odds = USUAL,
) -> Findings:
    """Watch a table until its writers have beaten so often; return what the watch reported.

    :param seed: decides everything.
    :param beats: of all writers together.
    :param rule: of the heartbeats; the table is observed four times in an interval.
    :param writers: how many write at any time.
    :param jitter: share of the interval by which a beat may be early or late.
    :param odds: of what else happens.
    """
    rng = random.Random(seed)
    world = World(rng, rule, writers, jitter, odds)
    watch = WriterWatch(HudiTable(_ROOT, world), rule, lambda: round(world.now_ms))
    findings = world.findings
    while findings.beats < beats:
        begun_ms = world.now_ms
        sight = watch.observe()
        findings.observations += 1
        _compare(sight, world, begun_ms)
        world.pass_time(max(0, rule.interval_ms / 4 - (world.now_ms - begun_ms)))
    return findings


def _compare(sight: Observation, world: World, begun_ms: float) -> None:
    dead = {instant for instant, writer in sight.pending.items() if writer.fate is Fate.DEAD}
    for instant in dead:
        expired_ms = world.writers[instant].expired_ms
        if expired_ms is None or expired_ms > world.now_ms:
            world.findings.false.append((instant, world.now_ms))
    for writer in world.killed:
        if writer.instant in dead:
            world.findings.reported += not writer.reported
            writer.reported = True
        elif writer.expired_ms < begun_ms and not writer.reported:
            world.findings.overlooked += 1
    world.killed = [writer for writer in world.killed if not writer.reported]

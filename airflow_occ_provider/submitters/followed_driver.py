"""What a process has read of a driver in its folder, and what that proves."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from airflow_occ_provider.attempts.log.facts import Entry, Fact, parse_fact
from airflow_occ_provider.attempts.submitter import LEASE_TTL_FACT, Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.attempt import (
    LIFE_S,
    NOW,
    LookLater,
    Over,
    Proof,
    View,
    Watch,
    answered_tick,
    next_settle_step,
    stored_quiet_s,
)
from airflow_occ_provider.driver.contract import (
    EXIT_REFUSED,
    FACTS,
    FIXED_FACTS,
    GRANT,
    HELLO_PREFIX,
    HUDI_FACTS,
    LIFE,
    REVOKED,
    End,
    Grant,
    Hello,
    answer_to_bytes,
    longest_period_s,
)
from airflow_occ_provider.errors import SubmitterUnreachableError, TableUnreadableError
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.processes import Flag

_log = logging.getLogger(__name__)
_KILLED, _TERMINATED = -9, -15
_PERIODS = ((60.0, 1.0),)
_LONGEST_PERIOD_S = 10.0  # each look is a request; a trigger looks as often
_LOCAL_PERIOD_S = 0.5


@dataclass
class Patience:
    """Counts the time since a storage's last answer.

    :param limit_s: seconds after which it is over.
    :ivar failure: why there is no answer now; empty if there was one.
    """

    limit_s: float = 600.0
    failure: str = field(default="", init=False)
    _since_s: float = field(default=0.0, init=False)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Go on after a block that found no answer.

        :param what: is asked for, in a sentence.
        :raises SubmitterUnreachableError: if there was none for too long.
        """
        try:
            yield
        except TableUnreadableError as error:
            now_s = time.monotonic()
            if not self.failure:
                self._since_s = now_s
                minutes = self.limit_s / 60
                _log.warning(
                    "Asking for %s again, for up to %g minutes: %s", what, minutes, error.message
                )
            self.failure, silent_s = error.message, now_s - self._since_s
            if silent_s >= self.limit_s:
                raise SubmitterUnreachableError(
                    f"the storage has not answered for {silent_s / 60:.0f} minutes ({error.message}): "
                    f"whether {what} runs, and whether it commits, is unknown",
                    remedy="make the storage reachable again: the next try follows the driver",
                ) from error

    def end(self, what: str) -> None:
        """Note an answer.

        :param what: was asked for.
        """
        if self.failure:
            _log.info("For %s, the storage answers again.", what)
            self.failure = ""


class FileStatus(Protocol):
    """What the storage says of a file."""

    @property
    def written_ms(self) -> int:
        """Epoch milliseconds of its last write, by the storage's clock."""

    @property
    def version(self) -> Hashable:
        """A value that differs once the file was written again."""


class AttemptFiles(Protocol):
    """The files of one attempt, such as ``storage.attempt_folder.AttemptFolder``."""

    @property
    def url(self) -> str:
        """The address of the folder, as Hadoop spells it."""

    @property
    def stale_s(self) -> float:
        """How much older than its call a listing may be, in seconds."""

    def entries(self) -> Mapping[str, FileStatus]:
        """Return what the storage says of each file."""

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Return a file's content, from a byte on; ``None`` if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""


@dataclass(slots=True)
class FollowedDriver:
    """What this process has read of one driver.

    :param place: where it runs.
    :param has_ended: whether an earlier process has proven its end, and its place does not deny it.
    :param new: its facts that no call has returned yet.
    :param exit_code: as its runner reported it, or as its end implies; of a process of this host that
        another process of the task has started, it is unknown.
    :param proof: that it has ended.
    :param proven_at: monotonic time at which that was known.
    :param doubt: what the proof is missing, for people.
    :param looked_at: monotonic time of the last look.
    :param state: what its place has said last, if it was asked.
    :param killing: set once the place's last attempt to end it is over; ``None`` before the first.
    :param is_there: whether the folder is there.
    :param is_followed: whether Hudi's loggers in its JVM report, so that nothing depends on its lines.
    :param is_whole: whether its facts were read to its own end, and none is missing.
    """

    handle: Handle
    folder: AttemptFiles
    place: Place
    has_ended: bool = False
    new: list[Entry] = field(default_factory=list)
    exit_code: int | None = None
    proof: Over | None = None
    proven_at: float = float("inf")
    doubt: str = ""
    is_there: bool = False
    is_followed: bool = False
    is_revoked: bool = False
    is_whole: bool = False
    is_read: bool = False
    looked_at: float = float("-inf")
    state: Running | Ended | Unseen | None = None
    killing: Flag | None = None
    watch: Watch = field(default_factory=Watch)
    _begun_s: float = field(default_factory=time.monotonic, init=False)
    _asked_at: float = field(default=float("-inf"), init=False)
    _end: End | None = field(default=None, init=False)
    _of_runner: _Facts = field(init=False)
    _of_hudi: _Facts = field(init=False)
    _unanswered: dict[int, float] = field(default_factory=dict, init=False)
    _has_grant: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._of_runner = _Facts(self.folder, FACTS, self.place.is_local)
        self._of_hudi = _Facts(self.folder, HUDI_FACTS, self.place.is_local)

    @property
    def period_s(self) -> float:
        """Seconds between two looks: often while it begins, then rarely."""
        if self.place.is_local:
            return _LOCAL_PERIOD_S
        followed_s = time.monotonic() - self._begun_s
        period_s = next((period for until, period in _PERIODS if followed_s < until), _LONGEST_PERIOD_S)
        ttl_s = self.lease_ttl_s
        return period_s if ttl_s is None else min(period_s, longest_period_s(ttl_s))

    @property
    def lease_ttl_s(self) -> float | None:
        """The TTL of its lease; ``None`` if its commits depend on none."""
        ttl_s = self.handle.facts.get(LEASE_TTL_FACT)
        return None if ttl_s is None else float(ttl_s)

    @property
    def awaits_extension(self) -> bool:
        """Whether the driver can be answered once the lease is extended."""
        return bool(self._unanswered) and not (self.is_revoked or self.proof)

    def look(self) -> None:
        """Ask the place, read what is new, and judge whether the driver is over."""
        is_local, request_s = self.place.is_local, self.place.request_s
        self.looked_at = time.monotonic()  # a storage that fails is asked no sooner again
        self._ask_place()
        began = self.looked_at - self.folder.stale_s
        grant, names = grant_of(self.handle), self.folder.entries()
        # Only a process that has just begun needs more than its own clock.
        asks_clock = bool(names) and not (self.is_there or is_local)
        if asks_clock:
            self.folder.write(NOW, b"")
            names = self.folder.entries()
        self.is_there, name = bool(names), HELLO_PREFIX + grant.nonce
        self._has_grant, self.is_revoked = GRANT in names, self.is_revoked or REVOKED in names
        tick = self._read_facts(names)
        if tick > self.watch.tick:
            self._unanswered[tick] = time.monotonic()
        hellos: tuple[Hello, ...] = ()
        if name in names and not tick:
            hellos = (Hello.from_bytes(name, self.folder.read(name) or b""),)
        times = {name: file.written_ms for name, file in names.items()}
        # An end that is uncertain is the word of a runner that then ends its JVM. On this host the end
        # of all processes is seen, and nothing less proves it.
        end = None if is_local else self._end
        view = View(
            *(grant, hellos, self._has_grant, self.is_revoked, tick, end),
            is_gone=end is not None or isinstance(self.state, Ended),
            quiet_s=stored_quiet_s(times, has_ticked=tick > 0) if asks_clock else 0.0,
        )
        watch = self.watch = self.watch.after(view, began, time.monotonic())
        ttl_s = self.lease_ttl_s or LIFE_S
        step = next_settle_step(view, watch, why="", ttl_s=ttl_s, request_s=request_s)
        # An earlier process has waited until no request could be under way, and a place forgets.
        self.has_ended &= not isinstance(self.state, Running)
        if self.has_ended and not isinstance(step, Over):
            step = Over(Proof.EARLIER, f"driver {grant.nonce} has ended, as its trigger has proven")
        if isinstance(step, Over) and (not is_local or isinstance(self.state, Ended)):
            self._conclude(step)
        elif isinstance(step, LookLater):
            self.doubt = step.reason if names else f"{self.folder.url} is not there any more"

    def _ask_place(self) -> None:
        if isinstance(self.state, Ended) or self.looked_at - self._asked_at < self.place.period_s:
            return
        self._asked_at = self.looked_at
        try:
            self.state = self.place.state(self.handle)
        except SubmitterUnreachableError as error:  # the folder may prove the end
            self.state = Unseen(error.message)

    def answer(self, extended_s: float = float("-inf")) -> None:
        """Do what a granted driver waits for: the grant itself, or an answer to its ticks.

        That is known once a look was made. A driver that was revoked, or is over, waits for nothing.

        :param extended_s: monotonic time at which the last extension began that succeeded.
        """
        if not self.is_there or self.is_revoked or self.proof:
            return
        if not self._has_grant:
            self.folder.write(GRANT, grant_of(self.handle).to_bytes())
            self._has_grant = True
        until_s = float("inf") if self.lease_ttl_s is None else extended_s
        tick, unanswered = answered_tick(self._unanswered, until_s)
        if tick is not None:
            self.folder.write(LIFE, answer_to_bytes(tick))
            self._unanswered = unanswered

    def _read_facts(self, names: Mapping[str, FileStatus]) -> int:
        """Read the facts that are new; return the highest tick.

        What the runner reports, such as the job's end, follows what Hudi's loggers had reported before.
        So on this host, where they have a file of their own, that is read after the runner's.
        """
        facts = self._of_runner.new(names)
        ticks = [int(fact.get("number", 0)) for fact in facts if fact["fact"] == "tick"]
        for fact in (*self._of_hudi.new(names), *facts):
            if fact["fact"] != "tick":
                self._take(fact)
        return max([self.watch.tick, *ticks])

    def _take(self, fact: Fact) -> None:
        if fact["fact"] == "end":
            committed = tuple(map(str, fact.get("committed", ())))
            self._end = End(committed, is_certain=fact.get("is_certain") is True)
            self.exit_code = int(fact.get("exit_code", _TERMINATED))
            self.is_whole = not self._of_runner.missed
        self.is_followed |= fact["fact"] == "protected" and fact.get("followed") is True
        self.new.append(fact)

    def _conclude(self, over: Over) -> None:
        """Note the end."""
        self.proof, self.proven_at = over, time.monotonic()
        if isinstance(self.state, Ended):
            self.exit_code = self.state.exit_code or self.exit_code  # a wrapper may fail after its job
        if self.place.is_local:
            self.is_whole |= self.is_there  # what is appended outlives a process
            return
        self.new.append(f"{over.evidence}.\n")
        self.is_whole |= over.proof is Proof.LEFT  # it has done nothing
        if self.exit_code is None:
            self.exit_code = EXIT_REFUSED if over.proof is Proof.LEFT else _KILLED


@dataclass(slots=True)
class _Facts:
    """One file of facts, and how far it was read.

    :param is_appended: whether nothing of it is ever replaced.
    :param missed: how many of its lines were left out before they were read.
    """

    folder: AttemptFiles
    name: str
    is_appended: bool
    missed: int = field(default=0, init=False)
    _lines: int = field(default=0, init=False)
    _version: Hashable = field(default=None, init=False)
    _fixed: tuple[int, int] = field(default=(-1, 0), init=False)

    def new(self, names: Mapping[str, FileStatus]) -> list[Fact]:
        """Return the facts since the last call.

        :param names: a listing of the folder; a file that was read has nothing new. An appended file may
            have grown since.
        """
        version = names[self.name].version if self.name in names else None
        if version == self._version and not self.is_appended:
            return []
        # From the line break before the first line that may be another one by now.
        at, number = self._fixed
        *lines, _ = (self.folder.read(self.name, max(at, 0)) or b"").split(b"\n")
        facts: list[Fact] = []
        is_fixed = True
        for line in lines[1:] if at >= 0 else lines:
            at += len(line) + 1
            is_read = number < self._lines and b"left_out" not in line
            fact = {} if is_read else parse_fact(line.decode(errors="replace")) or {}
            if fact.get("fact") == "left_out":  # of a long file the first and the last lines are kept
                is_fixed = False
                read, number = max(self._lines, number), number + int(fact.get("lines", 0))
                if number > read:
                    self.missed += number - read
                    facts.append({"fact": "left_out", "lines": number - read})
                continue
            number += 1
            if is_fixed and (self.is_appended or at < FIXED_FACTS):
                self._fixed = at, number
            if number > self._lines and fact:
                facts.append(fact)
        self._lines, self._version = max(self._lines, number), version
        return facts


def grant_of(handle: Handle) -> Grant:
    """Return the journal's entry of a driver."""
    return Grant(str(handle.facts["nonce"]), str(handle.facts["payload"]))

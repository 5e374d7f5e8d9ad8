"""The attempt's half of the contract: which driver runs, and when none can.

Each function decides the next step by one look at the journal and the folder. After the step the caller
looks again: so a lost answer needs no rule of its own, and any process can continue where another one
stopped. What a look shows stays true. What it does not show may be there now, so only the journal's
compare-and-set acts on that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.driver.contract import FACTS, REVOKED, End, Grant, Hello

NOW = "now"
"""A file that a process writes to read the storage's clock: a later process need not wait anew."""
LIFE_S = 900.0
"""How long a driver runs on without an answer of the process that follows it."""
REQUEST_S = 60.0
"""The longest time that a request of a driver is under way."""


def silence_s(ttl_s: float, request_s: float) -> float:
    """Return after how many seconds a silence proves the end of a driver.

    A late write of older facts hides an answered tick for up to one request, and the commit that began
    in time lands after up to another one.

    :param ttl_s: of the driver's life.
    :param request_s: the longest time that a request of the driver is under way.
    """
    return ttl_s + 2 * request_s


SILENCE_S = silence_s(LIFE_S, REQUEST_S)
"""The silence that proves the end of a driver with such a life."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The journal's entry of an attempt whose drivers are never granted."""

    why: str


class View(NamedTuple):
    """What one look at an attempt shows.

    :param entry: of the journal, which is set once, from nothing.
    :param hellos: of its drivers, in the storage's order of their times.
    :param is_granted: whether the file ``grant`` is there.
    :param is_revoked: whether the file ``revoked`` is there.
    :param tick: the highest that was ever read in the driver's facts; 0 for none.
    :param end: of the granted driver, from its facts.
    :param is_gone: whether the place says that the granted driver has ended.
    :param quiet_s: how long the driver has been silent by the storage's clock, see ``stored_quiet_s``.
    """

    entry: Grant | Closed | None = None
    hellos: tuple[Hello, ...] = ()
    is_granted: bool = False
    is_revoked: bool = False
    tick: int = 0
    end: End | None = None
    is_gone: bool = False
    quiet_s: float = 0.0


def stored_quiet_s(times: Mapping[str, int], *, has_ticked: bool) -> float:
    """Return how long a driver has been silent, by the times of its folder's files.

    What its last facts show had happened when they were written. All times are the storage's own, so
    any process may measure, and none has to wait as long as the silence lasts.

    :param times: epoch milliseconds of each file's last write; ``NOW`` is the youngest.
    :param has_ticked: whether the facts have a tick; else the driver may begin until it is revoked.
    """
    since = times.get(FACTS if has_ticked else REVOKED, 0)
    return max(0.0, (times.get(NOW, 0) - since) / 1000) if since else 0.0


@dataclass(frozen=True, slots=True)
class CompareAndSet:
    """Set the journal's entry if it has none; look again, whatever the answer is."""

    entry: Grant | Closed


@dataclass(frozen=True, slots=True)
class WriteGrant:
    """Write the payload, and once that is answered the file ``grant``."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class WriteRevoked:
    """Write the file ``revoked``."""

    why: str


@dataclass(frozen=True, slots=True)
class LookLater:
    """There is nothing to do until a later look shows more."""

    reason: str


@dataclass(frozen=True, slots=True)
class MayRun:
    """The grant is visible to its driver."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class NotGranted:
    """Grant nothing: the attempt is to be revoked and settled."""

    reason: str


class Proof(StrEnum):
    """Why no driver of an attempt can run any more."""

    NEVER_GRANTED = "never granted"
    LEFT = "left"
    END = "end"
    PLACE = "place"
    SILENCE = "silence"
    EARLIER = "earlier"


@dataclass(frozen=True, slots=True)
class Over:
    """No driver of the attempt runs, or begins a commit.

    :param proof: the kind of evidence.
    :param evidence: for people.
    :param end: of the driver, if that is the proof.
    """

    proof: Proof
    evidence: str
    end: End | None = None

    @property
    def has_run(self) -> bool:
        """Whether the job's first line may have run."""
        return self.proof not in (Proof.NEVER_GRANTED, Proof.LEFT)


def next_grant_step(
    view: View, payload: str
) -> CompareAndSet | WriteGrant | LookLater | MayRun | NotGranted:
    """Return the next step of an attempt that lets one driver run.

    :param payload: digest of what is to run.
    """
    match view.entry:
        case _ if view.is_revoked:
            return NotGranted("the attempt was revoked")
        case Closed(why):
            return NotGranted(f"the attempt was closed: {why}")
        case Grant(nonce, other) if other != payload:
            return NotGranted(f"driver {nonce} was granted with the payload {other}, not {payload}")
        case Grant() as grant:
            # A copy of the journal: a process that is late writes what is there.
            return MayRun(grant) if view.is_granted else WriteGrant(grant)
    waiting = [hello for hello in view.hellos if hello.left is None]
    if not waiting:
        return LookLater("no driver has said hello")
    # A service that starts a driver again does so because the one before has died.
    return CompareAndSet(Grant(waiting[-1].nonce, payload))


def answered_tick(
    unanswered: Mapping[int, float], extended_s: float
) -> tuple[int | None, dict[int, float]]:
    """Return the tick that an answer may name, if any, and those that remain.

    If a driver's commits depend on a lease, a tick is answered that had been read when an extension
    began: the lease lasts for at least its TTL from that tick on, wherever a process was stopped in
    between.

    :param unanswered: the ticks, each with the monotonic time at which it was read.
    :param extended_s: monotonic time at which the last extension began that succeeded; infinite if
        nothing depends on a lease.
    """
    tick = max((tick for tick, read_s in unanswered.items() if read_s < extended_s), default=None)
    if tick is None:
        return None, dict(unanswered)
    return tick, {number: read_s for number, read_s in unanswered.items() if number > tick}


@dataclass(frozen=True, slots=True)
class Watch:
    """What a process that settles an attempt has observed, by its own monotonic clock.

    Silence counts from the moment at which the newest tick was read. A tick that is not visible by then
    cannot have been answered. A driver without a tick may not have begun: its silence counts from the
    moment at which ``revoked`` was read, too.

    :param tick: the newest that was read.
    :param quiet_since: when the tick was read, or ``revoked``; ``None`` if neither is there.
    :param gone_since: when the place's word was read.
    :param now: when the last look began.
    """

    tick: int = 0
    quiet_since: float | None = None
    gone_since: float | None = None
    now: float = 0.0

    def after(self, view: View, began: float, answered: float) -> Watch:
        """Return the observation after one more look.

        :param began: when the look began.
        :param answered: when all of it was read.
        """
        watch = replace(self, now=began, tick=max(self.tick, view.tick))
        if not (view.is_revoked or watch.tick):  # a driver that has not begun may begin
            watch = replace(watch, quiet_since=None)
        elif self.quiet_since is None or view.tick > self.tick:
            watch = replace(watch, quiet_since=answered)
        if view.is_gone and self.gone_since is None:
            watch = replace(watch, gone_since=answered)
        return watch

    @property
    def quiet_s(self) -> float:
        """How long the driver has been silent."""
        return 0.0 if self.quiet_since is None else max(0.0, self.now - self.quiet_since)

    @property
    def gone_s(self) -> float:
        """How long ago the place said that the driver has ended."""
        return 0.0 if self.gone_since is None else max(0.0, self.now - self.gone_since)


def next_settle_step(
    view: View, watch: Watch, *, why: str, ttl_s: float | None, request_s: float
) -> CompareAndSet | WriteRevoked | LookLater | Over:
    """Return the next step towards the proof that an attempt is over.

    :param watch: after this look.
    :param why: the attempt is ended; for people.
    :param ttl_s: of the driver's life; ``None`` if it has no limit, so that silence proves nothing.
    :param request_s: the longest time that a request of the driver is under way.
    """
    entry = view.entry
    if entry is None:
        return CompareAndSet(Closed(why))
    if isinstance(entry, Closed):
        return Over(Proof.NEVER_GRANTED, f"no driver was granted; closed: {entry.why}")
    proof = _proof(entry, view, watch, ttl_s, request_s)
    if proof is not None:
        return proof
    if not view.is_revoked:
        return WriteRevoked(why)
    return LookLater(_missing(entry, view, watch, ttl_s, request_s))


def _proof(grant: Grant, view: View, watch: Watch, ttl_s: float | None, request_s: float) -> Over | None:
    """Return the proof that the granted driver is over, if there is one."""
    driver = f"driver {grant.nonce}"
    for hello in view.hellos:
        if hello.nonce == grant.nonce and hello.left is not None:
            return Over(Proof.LEFT, f"{driver} left before the job's first line: {hello.left}")
    if view.end is not None and view.end.is_certain:
        commits = ", ".join(view.end.committed) or "none"
        return Over(Proof.END, f"{driver} reported its end; commits: {commits}", view.end)
    # A request of a process that is dead may still be carried out.
    if view.is_gone and watch.gone_s >= request_s:
        return Over(Proof.PLACE, f"{driver} ended at least {watch.gone_s:.0f} s ago, says its place")
    quiet_s = max(watch.quiet_s, view.quiet_s)
    if ttl_s is not None and quiet_s > silence_s(ttl_s, request_s):
        return Over(
            Proof.SILENCE,
            f"{driver} was silent for {quiet_s:.0f} s after tick {watch.tick} and any revocation; "
            f"its life is {ttl_s:g} s, a request's {request_s:g} s",
        )
    return None


def _missing(grant: Grant, view: View, watch: Watch, ttl_s: float | None, request_s: float) -> str:
    """Return what the proof is missing, for people."""
    if view.is_gone:
        return f"driver {grant.nonce} has ended; a request of it may be under way for {request_s:g} s"
    doubt = "its `end` is uncertain" if view.end else "it has not reported its end"
    if ttl_s is None:
        return f"driver {grant.nonce} was revoked; {doubt}, and its life has no limit"
    left_s = silence_s(ttl_s, request_s) - max(watch.quiet_s, view.quiet_s)
    return f"driver {grant.nonce} was revoked; {doubt}, and its silence counts in {left_s:.0f} s"

"""The driver's half of the contract with its attempt.

A driver and its attempt communicate through the files of one folder, and through nothing else. The
folder belongs to one attempt and is never used again. This module decides; it reads no clock or file.

    waiting ── grant ──> granted ── first line ──> running ── revoked, life over ──> ending ──> killed
       │                    │                         │
       └──────> left <──────┘                         └── end of the job ──> ended

It is shipped to the driver as source: it runs on Python 3.7, and imports the standard library only.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

HELLO_PREFIX = "hello."
"""A file of each driver, ``hello.<nonce>``: that it waits, or that it left."""
STANDBY = "standby"
"""A file that is there before the driver starts: it warms up, and waits for its grant for longer."""
GRANT = "grant"
"""The attempt's copy of what the journal says: which driver runs. Written once."""
PAYLOAD = "payload"
"""The job, before the grant. The driver removes it once it is read."""
FACTS = "facts.jsonl"
"""What the granted driver reports: its ticks, its instants, its end."""
HUDI_FACTS = "hudi.jsonl"
"""In a folder of the driver's host: the facts of Hudi's loggers, apart from those of the runner."""
LIFE = "life"
"""The driver's tick that the holder of the lease had read before it extended the lease."""
REVOKED = "revoked"
"""Its existence revokes the attempt, whatever it contains. Written once, never removed."""

EXIT_REFUSED = 78
"""The exit code of a driver that leaves before the job's first line (``EX_CONFIG``)."""
LIMIT_S = 1800.0
"""The longest wait of a driver for its grant."""
FAST_POLL_S = 0.2
POLLS = ((5.0, FAST_POLL_S), (60.0, 1.0))
"""How long each period of the gate's polls is in use: a grant normally comes within seconds."""
SLOW_POLL_S = 5.0
TICK_S = 120.0
POLL_S = 10.0
"""At this period a driver that was revoked ends within 20 s of the reason in 95 of 100 cases."""
FIRST_POLL_S = 1.0
FIRST_S = 60.0
FIXED_FACTS = 512 * 1024
"""Lines that end within so many bytes of the facts stay as they are; of later ones some are left out."""
REPORT_PAUSE_S = 30.0
"""Between two writes of the facts, where each is a request, once a burst of them is used up."""
LONGEST_MARGIN_S = 30.0
PATIENCE_S = 60.0
"""The longest wait of a commit for an answer; the committing thread holds Hudi's lock."""
DRAIN_S = 30.0
REPORT_S = 20.0


class Moment(NamedTuple):
    """A reading of both clocks of a host, in seconds.

    The monotonic clock stops while a virtual machine is suspended, and a wall clock can be set back.
    """

    monotonic: float
    wall: float

    def until(self, later: Moment) -> float:
        """Return the seconds until a later moment, by the clock that advanced more."""
        return max(later.monotonic - self.monotonic, later.wall - self.wall)


def digest(payload: bytes) -> str:
    """Return the digest by which a driver knows what its task has written."""
    return hashlib.sha256(payload).hexdigest()


def _fields(content: bytes) -> dict[str, object]:
    """Return the fields of a file; none if it is not understood, such as half a file."""
    try:
        fields = json.loads(content.decode())
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def is_hello(name: str) -> bool:
    """Whether a file's name is that of a driver's own file.

    A store may list a file that it is still writing by a longer name, such as ``hello.<nonce>-<uuid>``
    (seen with s3proxy), as the last one: a grant for it would be for no driver.
    """
    return re.fullmatch(re.escape(HELLO_PREFIX) + r"\w+", name) is not None


@dataclass(frozen=True)
class Hello:
    """The content of a driver's own file, ``hello.<nonce>``.

    :param left: why the driver left before the job's first line; ``None`` while it waits or runs.
    :param details: of the driver and its host, for people, and for its place to find it: no more is
        decided by them.
    """

    nonce: str
    left: str | None = None
    details: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """The name of the file."""
        return HELLO_PREFIX + self.nonce

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return json.dumps({"left": self.left, "details": self.details}).encode()

    @classmethod
    def from_bytes(cls, name: str, content: bytes) -> Hello:
        """Read a file; what is not understood says that the driver waits."""
        fields = _fields(content)
        why, details = fields.get("left"), fields.get("details")
        texts = details.items() if isinstance(details, dict) else ()
        return cls(
            name[len(HELLO_PREFIX) :],
            None if why is None else str(why),
            {key: str(value) for key, value in texts},
        )


@dataclass(frozen=True)
class Grant:
    """The right of one driver to run one payload.

    The journal has the same value, so that all processes of an attempt write the same file.

    :param nonce: of the driver.
    :param payload: digest of the payload.
    """

    nonce: str
    payload: str

    def to_bytes(self) -> bytes:
        """Return the content of the file ``grant``."""
        return json.dumps({"nonce": self.nonce, "payload": self.payload}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Grant | None:
        """Read the file; ``None`` if it is not understood, as if it were not there."""
        fields = _fields(content)
        nonce, payload = fields.get("nonce"), fields.get("payload")
        return cls(nonce, payload) if isinstance(nonce, str) and isinstance(payload, str) else None


def answer_to_bytes(tick: int) -> bytes:
    """Return the content of the file ``life`` that answers a tick."""
    return json.dumps({"answers": tick}).encode()


def answer_from_bytes(content: bytes) -> int | None:
    """Read the file ``life``; ``None`` if it is not understood."""
    tick = _fields(content).get("answers")
    return tick if isinstance(tick, int) else None


@dataclass(frozen=True)
class Poll:
    """Look at the folder again."""

    after_s: float


@dataclass(frozen=True)
class Run:
    """Run the granted payload.

    :param since: when the look began that showed the grant: the driver's life starts there.
    """

    grant: Grant
    since: Moment

    def refusal(self, payload: bytes) -> Leave | None:
        """Return why this payload is not run, if it is not the one that the grant names."""
        if digest(payload) == self.grant.payload:
            return None
        return Leave(f"the payload's digest is {digest(payload)}, and {self.grant.payload} was granted")


@dataclass(frozen=True)
class Leave:
    """Write the reason into the driver's hello, then end with ``EXIT_REFUSED``."""

    why: str


@dataclass(frozen=True)
class Gate:
    """The gate at which a driver waits for its grant.

    :param nonce: drawn at random by this process.
    :param since: when the driver wrote its hello.
    :param limit_s: after so long without a grant the driver leaves.
    :param is_near: whether the folder is on the driver's host, so that a look is no request.
    """

    nonce: str
    since: Moment
    limit_s: float
    is_near: bool = False

    def decide(self, now: Moment, grant: Grant | None, *, revoked: bool) -> Poll | Run | Leave:
        """Decide what one look at the folder means.

        A storage that does not answer is a look that shows nothing. It may block for longer than the
        limit, so a thread without I/O decides as well, by such a look.

        :param now: when the look began.
        :param grant: read first.
        :param revoked: whether the file is there, looked for after the grant.
        """
        if revoked:
            return Leave("the attempt was revoked")
        if grant is not None:
            if grant.nonce == self.nonce:
                return Run(grant, now)
            return Leave(f"driver {grant.nonce} of the same attempt was granted")
        waited_s = self.since.until(now)
        if waited_s >= self.limit_s:
            return Leave(f"no grant within {self.limit_s:g} s")
        period_s = next((period for until_s, period in POLLS if waited_s < until_s), SLOW_POLL_S)
        return Poll(min(FAST_POLL_S if self.is_near else period_s, self.limit_s - waited_s))


@dataclass(frozen=True)
class Life:
    """The time that is left to a driver, by the ticks that were answered.

    The holder of the lease reads a tick, extends the lease, and then answers the tick. So the lease
    lasts for at least the TTL from that tick on, whatever was stopped or late in between. A count of
    extensions does not show that: to a driver that was stopped, an old extension is news.

    :param ttl_s: of the lease; ``None`` if nothing ends the driver that is not followed.
    :param is_leased: whether only its lease keeps other writers away from the driver. Else its life is
        there to end, and no commit waits for an answer.
    :param ticks: when each tick was, from the one last answered on; tick 0 is the driver's first moment.
    :param answered: the last tick that was answered. Nothing answers tick 0.
    """

    ttl_s: float | None
    ticks: Mapping[int, Moment] = field(hash=False)
    answered: int = 0
    is_leased: bool = True

    @classmethod
    def begin(cls, ttl_s: float | None, since: Moment, *, is_leased: bool = True) -> Life:
        """Return the life of a driver that was granted.

        :param since: when the look began that showed the grant.
        """
        return cls(ttl_s, {0: since}, is_leased=is_leased)

    def tick(self, now: Moment) -> Life:
        """Return the life with one more tick; its number is the highest of ``ticks``."""
        return replace(self, ticks={**self.ticks, max(self.ticks) + 1: now})

    def answer(self, tick: int | None, now: Moment) -> Life:
        """Return the life after a look at the answered tick; an older one changes nothing.

        A life that is over stays over: its driver may have been stopped, and its silence taken for its
        end, before it notices the deadline.
        """
        if tick is None or tick <= self.answered or tick not in self.ticks or self.is_over(now):
            return self
        later = {number: moment for number, moment in self.ticks.items() if number >= tick}
        return replace(self, ticks=later, answered=tick)

    def left_s(self, now: Moment) -> float:
        """Return the seconds until the deadline, at which the driver ends itself."""
        if self.ttl_s is None:
            return float("inf")
        return self.ttl_s - self.ticks[self.answered].until(now)

    def is_over(self, now: Moment) -> bool:
        """Return whether the deadline has passed.

        The runner looks at it before the job's first line, too.
        """
        return self.left_s(now) <= 0

    @property
    def awaits_answer(self) -> bool:
        """Whether no commit may begin before a tick is answered for the first time."""
        return self.ttl_s is not None and self.is_leased and not self.answered

    def needed_s(self, margin_s: float | None = None) -> float:
        """Return the seconds without which no commit begins.

        A stop that is shorter than the margin is harmless. Without an answered tick no commit begins:
        a grant may be the late write of a process that has lost the lease.

        :param margin_s: by default half a minute, or a quarter of a shorter TTL than two minutes.
        """
        if self.ttl_s is None or not self.is_leased:
            return 0.0
        if self.awaits_answer:
            return float("inf")
        return min(LONGEST_MARGIN_S, self.ttl_s / 4) if margin_s is None else margin_s

    def may_begin_commit(self, now: Moment, margin_s: float | None = None) -> bool:
        """Return whether a commit may begin.

        :param margin_s: as above.
        """
        return self.left_s(now) >= self.needed_s(margin_s)


def longest_period_s(ttl_s: float) -> float:
    """Return the longest period of a driver's ticks and looks, and its follower's.

    Between a tick and the next answer are all three, and twice the way of a request. With a longer
    period an answer may come when too little of the life is left for a commit.

    :param ttl_s: of the driver's life.
    """
    return ttl_s / 9


@dataclass(frozen=True)
class DriverPace:
    """How often a granted driver ticks and looks at its folder.

    :param tick_s: the period of its ticks.
    :param poll_s: the period of its looks, once it has run for a minute.
    """

    tick_s: float = TICK_S
    poll_s: float = POLL_S

    @classmethod
    def of(
        cls, ttl_s: float | None, tick_s: float | None = None, poll_s: float | None = None
    ) -> DriverPace:
        """Return the pace of a driver with a life.

        :param tick_s: another period of the ticks.
        :param poll_s: another period of the looks.
        """
        longest_s = float("inf") if ttl_s is None else longest_period_s(ttl_s)
        return cls(tick_s or min(TICK_S, longest_s), poll_s or min(POLL_S, longest_s))

    def pause_s(self, run_s: float) -> float:
        """Return the seconds until the next look.

        At its begin an attempt is given up most often, and a short job's commit needs an answer soon.

        :param run_s: since the grant.
        """
        return min(FIRST_POLL_S, self.poll_s) if run_s < FIRST_S else self.poll_s

    @property
    def report_pause_s(self) -> float:
        """The seconds for one more write after a burst: no tick waits longer."""
        return min(REPORT_PAUSE_S, self.tick_s)


@dataclass(frozen=True)
class End:
    """The last fact of a driver.

    :param committed: requested times of the instants that it committed.
    :param is_certain: whether no other commit of this driver can follow.
    """

    committed: tuple[str, ...] = ()
    is_certain: bool = True


class GuardState(NamedTuple):
    """The state of the guard on the thread that commits.

    That thread first names its instant as ``passing`` and only then reads ``is_closed``, and the thread
    that ends the driver sets ``is_closed`` first and only then reads ``passing``. In another order each
    of them can miss the other.

    :param passing: the instant whose commit has begun and is not over.
    :param committed: the instants whose commits are over.
    """

    is_closed: bool = False
    passing: str | None = None
    committed: tuple[str, ...] = ()


class EndingStep(enum.Enum):
    """The next step of a driver that ends itself before its job is over."""

    CLOSE = "close the guard: no commit begins any more"
    DRAIN = "wait until the commit that has begun is over"
    REPORT = "write `end`"
    KILL = "kill the driver's JVM with SIGKILL"


@dataclass(frozen=True)
class Ending:
    """The end of a driver that was revoked, or whose life is over.

    ``System.exit`` is no way to kill: its hooks take as long as a commit does.

    :param since: when it was decided.
    :param drain_s: the longest wait for a commit that has begun.
    :param report_s: the longest wait for the storage to accept ``end``.
    """

    since: Moment
    drain_s: float = DRAIN_S
    report_s: float = REPORT_S

    def decide(self, now: Moment, guard: GuardState | None, *, is_reported: bool) -> EndingStep:
        """Return the next step.

        :param guard: ``None`` if this driver has no guard.
        :param is_reported: whether the storage accepted ``end``.
        """
        ending_s = self.since.until(now)
        if is_reported or ending_s >= self.drain_s + self.report_s:
            return EndingStep.KILL
        # A JVM that does not answer cannot keep its driver alive: then `end` is not certain.
        if guard and ending_s < self.drain_s:
            if not guard.is_closed:
                return EndingStep.CLOSE
            if guard.passing is not None:
                return EndingStep.DRAIN
        return EndingStep.REPORT

    @staticmethod
    def end(guard: GuardState | None) -> End:
        """Return what ``end`` says.

        It is certain only behind a closed guard that no commit is passing.
        """
        if guard is None:
            return End(is_certain=False)
        return End(guard.committed, is_certain=guard.is_closed and guard.passing is None)

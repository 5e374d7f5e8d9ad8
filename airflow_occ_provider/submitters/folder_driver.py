"""Drivers of any service: granted, followed and revoked by files of a folder."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from airflow_occ_provider.attempts.log.facts import Entry, Fact, parse_fact
from airflow_occ_provider.attempts.start_limit import NO_LIMIT, late_start
from airflow_occ_provider.attempts.submitter import (
    LEASE_TTL_FACT,
    SILENCE_FACT,
    Ended,
    Extensions,
    Handle,
    Running,
    Unseen,
)
from airflow_occ_provider.driver.attempt import (
    LIFE_S,
    NOW,
    REQUEST_S,
    CompareAndSet,
    LookLater,
    MayRun,
    NotGranted,
    Over,
    Proof,
    View,
    Watch,
    WriteGrant,
    answered_tick,
    next_grant_step,
    next_settle_step,
    silence_s,
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
    PAYLOAD,
    REVOKED,
    End,
    Grant,
    Hello,
    answer_to_bytes,
    digest,
    longest_period_s,
)
from airflow_occ_provider.errors import (
    NotSubmittedError,
    OccError,
    SubmitterUnreachableError,
    TableUnreadableError,
)
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.place import Place

_KILLED, _TERMINATED = -9, -15
_GATE_S = 0.3
_SLOW_GATE_S = 5.0
_GATE_SLOWS_S = 60.0
_COMES_S = 60.0  # until what a driver has written is seen
_PERIODS = ((60.0, 1.0),)
_LONGEST_PERIOD_S = 10.0  # each look is a request; a trigger looks as often
_LOCAL_PERIOD_S = 0.5
_TAIL = 20  # lines of an error
_QUIET_S = 60.0  # a driver that was revoked drains its commit and reports in less
_RETURN_S = 15.0  # what has started a driver logs the rest of its output, and returns
_END_S, _KILL_S = 30.0, 2.5  # Airflow ends a task five seconds after its request to stop


class File(Protocol):
    """What the storage says of a file."""

    @property
    def written_ms(self) -> int:
        """Epoch milliseconds of its last write, by the storage's clock."""

    @property
    def version(self) -> Hashable:
        """A value that differs once the file was written again."""


class Folder(Protocol):
    """The files of one attempt, such as ``storage.attempt_folder.AttemptFolder``."""

    @property
    def url(self) -> str:
        """The address of the folder, as Hadoop spells it."""

    @property
    def stale_s(self) -> float:
        """How much older than its call a listing may be, in seconds."""

    def entries(self) -> Mapping[str, File]:
        """Return what the storage says of each file."""

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Return a file's content, from a byte on; ``None`` if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A driver's work, before one is granted it.

    :param runner: URL of the file to run, whose one argument is the folder's.
    :param payload: what the granted driver reads.
    :param limit: the longest wait for a driver.
    :param lease_ttl_s: for how long each extension of the lease lasts that alone keeps other writers
        away; ``None`` if the driver's commits depend on no lease.
    """

    folder: Folder
    runner: str
    payload: bytes
    limit: timedelta = NO_LIMIT.in_cluster
    lease_ttl_s: float | None = None


@dataclass
class FolderDriver:
    """Grants a driver that something else starts, follows it and revokes it.

    The driver does nothing before it is granted, and it is granted once the journal has recorded it. So
    a second driver of the attempt, such as a service's own retry, leaves. How it ends is known by the
    folder, and sooner if its place proves that it has ended: that a start has returned proves nothing.

    :param open_folder: opens the folder of an earlier process's driver by its URL.
    :param place: where it runs.
    :param offer: the work; ``None`` to follow and end drivers of earlier processes.
    :param origin: more facts of its handles, by which another process opens the folder.
    :param killed: set when the task was asked to stop.
    :param patience: for a storage that does not answer.
    """

    open_folder: Callable[[str], Folder]
    place: Place
    offer: Offer | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    killed: Flag = field(default_factory=Flag)
    patience: Patience = field(default_factory=partial(Patience, 600, "the storage"))
    _drivers: dict[str, Followed] = field(default_factory=dict, init=False)
    _call: _Call | None = field(default=None, init=False)
    _extensions: Extensions | None = field(default=None, init=False)
    _printed: deque[str] = field(default_factory=partial(deque, maxlen=_TAIL), init=False)

    @property
    def name(self) -> str:
        """The name of the place."""
        return self.place.name

    @property
    def outlives_task(self) -> bool:
        """Whether a driver runs on when the process ends that has started it."""
        return not self.place.waits

    def feed(self, extensions: Extensions) -> None:
        """Take the extensions of the drivers' lease; see ``Submitter``."""
        self._extensions = extensions

    def submit(
        self,
        started: Callable[[Handle], None],
        echo: Callable[[str], object] = lambda _: None,
    ) -> Handle:
        """Have a driver started, record the first that waits in the folder, and grant it.

        :raises NotSubmittedError: if the start fails before a driver waits.
        """
        offer = self.offer
        if offer is None:
            raise AssertionError("there is nothing to submit")
        call = self._call = _Call(partial(self.place.start, offer.runner, (offer.folder.url,)))
        call.begin()
        try:
            return self._granted(offer, call, started, echo)
        except BaseException:
            self._revoke(offer.folder, "the attempt was given up before a driver was granted")
            self.place.kill(None)
            raise

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver may run, by what the folder proves."""
        driver = self._followed(handle)
        try:
            if driver.proof is None:
                self._look(driver)
        except SubmitterUnreachableError as error:
            return Unseen(error.message, is_away=not self.patience.is_over)
        if driver.proof:
            ended = Ended(driver.exit_code, log_is_whole=driver.is_whole)
            return ended if self._is_over(driver) else Running()
        if isinstance(driver.state, Running):
            return driver.state
        if not driver.is_there or (driver.is_revoked and driver.watch.quiet_s > _QUIET_S):
            said = driver.state.reason if isinstance(driver.state, Unseen) else ""
            return Unseen("; ".join(filter(None, (driver.doubt, said))))
        return Running()

    def read(self, handle: Handle, wait_s: float) -> Sequence[Entry] | None:
        """Return the driver's facts since the last call; ``None`` after its end.

        :raises SubmitterUnreachableError: if the storage has not answered for long, or if the task was
            asked to stop and the driver's end is not seen at once: the task has no time to wait for it.
        """
        driver = self._followed(handle)
        if self.killed.is_set():
            self.end(handle)
            if driver.proof is None:
                raise SubmitterUnreachableError(
                    f"{handle} was revoked, and its end was not seen: {driver.doubt}",
                    remedy="no action if the task is cleared: its next try waits for that end",
                )
        if driver.is_read:
            return None
        early_s = driver.looked_at + driver.period_s - time.monotonic()
        has_returned = self._call is not None and self._call.returned_s is not None
        if driver.proof is None:
            wait_s = max(0.0, min(wait_s, early_s))
        is_last = has_returned and (self.place.is_local or driver.proof is not None)
        lines = self.place.output(0 if driver.new or is_last else wait_s)
        # What the runner reports before the job's first line says how the job's lines are read.
        is_due = early_s <= 0 or (self.place.is_local and (has_returned or not driver.is_followed))
        with self.patience.waiting():
            if is_due and driver.proof is None:
                self._look(driver)
            self._answer(driver)
        if driver.is_followed:
            self.place.skip_output()
        facts, driver.new = driver.new, []
        if self._is_over(driver):
            rest = self.place.output(0)
            driver.is_read = not rest
            lines += rest or (self.place.last_lines(handle) if driver.exit_code else [])
        entries = [*facts, *lines]
        return entries or (None if driver.is_read else [])

    def end(self, handle: Handle) -> None:
        """Revoke the driver, and wait a little for its end."""
        driver = self._followed(handle)
        if self._is_over(driver):
            return
        is_killed, is_again = self.killed.is_set(), driver.is_revoked
        # A driver that ends itself lets a commit finish that it has begun. On this host that is not
        # waited for, and the folder of an earlier process may be gone.
        if not (self.place.is_local or driver.is_revoked or driver.proof):
            driver.is_revoked = self._revoke(driver.folder, "its task was asked to end it")
        if is_killed or is_again or self.place.is_local:
            self.place.kill(handle)
        until_s = time.monotonic() + (_KILL_S if is_killed else _END_S)
        while isinstance(self.poll(handle), Running) and time.monotonic() < until_s:
            time.sleep(_GATE_S)

    def _is_over(self, driver: Followed) -> bool:
        """Whether a driver has ended, and what has started it has returned, or had time to.

        On this host nothing of a driver is left alive.
        """
        if driver.proof is None or self._call is None:
            return driver.proof is not None
        late_s = float("inf") if self.place.is_local else driver.proven_at + _RETURN_S
        return self._call.returned_s is not None or time.monotonic() > late_s

    def _granted(
        self,
        offer: Offer,
        call: _Call,
        started: Callable[[Handle], None],
        echo: Callable[[str], object],
    ) -> Handle:
        """Return the driver that was granted."""
        handle, payload = None, digest(offer.payload)
        while True:
            try:
                view = self._view(offer.folder, handle)
                if view.is_granted and not handle:
                    raise NotSubmittedError(
                        f"a driver in {offer.folder.url} of this task run is alive, so no other was "
                        "started beside it: another process of the task has started it meanwhile",
                        remedy="no action if the task is retried: the next try finds its commit, or "
                        "ends it; else revoke it and clear the task",
                    )
                step = next_grant_step(view, payload)
                if isinstance(step, MayRun) and handle:
                    return handle
                handle = self._go_on(offer, view, step, started) or handle
            except TableUnreadableError as error:
                self._count(offer.folder.url, error)
                step = LookLater("the storage is away")
            if isinstance(step, LookLater):
                self._wait_for_driver(offer, call, echo)

    def _go_on(
        self, offer: Offer, view: View, step: object, started: Callable[[Handle], None]
    ) -> Handle | None:
        """Make one step towards a grant; return the driver that it has recorded, if any."""
        match step:
            case CompareAndSet(Grant() as grant):
                # No driver is recorded before its payload is there.
                offer.folder.write(PAYLOAD, offer.payload)
                hello = next(hello for hello in view.hellos if hello.nonce == grant.nonce)
                handle = self._handle(offer.folder, grant, hello, offer.lease_ttl_s)
                started(handle)
                return handle
            case WriteGrant(grant):
                offer.folder.write(GRANT, grant.to_bytes())
            case NotGranted(reason):
                raise NotSubmittedError(
                    f"no driver was granted: {reason}",
                    remedy="no action if the task is retried: the next try starts another one",
                )
        return None

    def _wait_for_driver(self, offer: Offer, call: _Call, echo: Callable[[str], object]) -> None:
        """Wait until the next look for a driver, and hand on what is printed.

        A request to stop and a failed start are seen sooner.

        :raises NotSubmittedError: if nothing will start a driver.
        """
        waited_s = 0.0 if self.place.is_local else time.monotonic() - call.begun_s
        until_s = time.monotonic() + _gate_period_s(waited_s)
        while True:
            self._hand_on(echo)
            self._refuse_failed(offer, call, echo)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, _GATE_S))

    def _hand_on(self, echo: Callable[[str], object]) -> bool:
        """Hand on some of what was printed; return whether there was anything."""
        lines = self.place.output(0)
        for line in lines:
            echo(line)
        self._printed.extend(lines)
        return bool(lines)

    def _refuse_failed(self, offer: Offer, call: _Call, echo: Callable[[str], object]) -> None:
        """Stop to wait for a driver that nothing will start.

        :raises NotSubmittedError: if the start has failed or lasts too long, or the task was asked to
            stop.
        """
        if self.killed.is_set():
            raise NotSubmittedError(
                "no driver was granted: the task was asked to stop", remedy="clear the task"
            )
        if call.error:
            while self._hand_on(echo):
                """Its last lines say why."""
        if isinstance(call.error, NotSubmittedError):
            lines = f":\n{''.join(self._printed)}" if self._printed else ""
            message = f"{call.error.message}{lines}"
            raise NotSubmittedError(message, remedy=call.error.remedy) from call.error
        if call.error:
            raise NotSubmittedError(
                f"the start of the driver failed before it was there: {call.error}",
                remedy="correct what the task's log shows of it; nothing was run",
            ) from call.error
        now = time.monotonic()
        late = late_start(now - call.begun_s, offer.limit)
        if late:
            raise NotSubmittedError(
                f"no driver was granted: {late}", remedy="correct that; nothing was run"
            )
        if self.place.waits and call.returned_s is not None and now - call.returned_s > _COMES_S:
            raise NotSubmittedError(
                "the operator has returned, and no driver of it is in the attempt's folder",
                remedy="have it run the driver's PySpark file, with access to the table's storage; "
                "nothing was run",
            )

    def _view(self, folder: Folder, handle: Handle | None) -> View:
        """Look for the drivers that wait."""
        names = folder.entries()
        hellos = () if handle else hellos_in(folder, names)
        return View(_grant_of(handle) if handle else None, hellos, GRANT in names, REVOKED in names)

    def _look(self, driver: Followed) -> None:
        """Ask the place, then read what is new of a driver, and judge whether it is over."""
        now = time.monotonic()
        if not isinstance(driver.state, Ended) and now - driver.asked_at >= self.place.period_s:
            driver.asked_at = now
            try:
                driver.state = self.place.state(driver.handle)
            except SubmitterUnreachableError as error:  # the folder may prove the end
                driver.state = Unseen(error.message)
        try:
            driver.look(self.place.request_s)
        except TableUnreadableError as error:
            raise self._count(str(driver.handle), error) from error
        self.patience.reset(str(driver.handle))

    def _answer(self, driver: Followed) -> None:
        """Complete the grant and answer the ticks of a driver that this process follows."""
        extensions = self._extensions
        try:
            driver.answer(extensions.extended_s if extensions else float("-inf"))
        except TableUnreadableError as error:
            raise self._count(str(driver.handle), error) from error
        if extensions and driver.awaits_extension:
            extensions.extend_soon()

    def _count(self, what: str, error: OccError) -> SubmitterUnreachableError:
        """Count a request without an answer, and return the error for it.

        :raises SubmitterUnreachableError: if there was none for too long.
        """
        unreachable = SubmitterUnreachableError(error.message, remedy=error.remedy)
        self.patience.count(what, unreachable)
        return unreachable

    def _revoke(self, folder: Folder, why: str) -> bool:
        """Revoke an attempt; whether the storage has accepted that."""
        try:
            folder.write(REVOKED, why.encode())
        except OccError:
            return False  # the next look tries again
        return True

    def revoke_unrecorded(self, folder: Folder, life_s: float) -> Handle | None:
        """Revoke an attempt whose record is lost; return its driver if one was granted.

        A driver reads its grant before it looks for the revocation. So one whose grant is not there yet,
        now that the revocation is, never runs.

        :param life_s: the longest that a driver of the task may have.
        :raises SubmitterUnreachableError: if the grant is not whole yet.
        """
        folder.write(REVOKED, b"the task run's record is lost")
        if GRANT not in folder.entries():
            return None
        grant = Grant.from_bytes(folder.read(GRANT) or b"")
        if grant is None:
            raise SubmitterUnreachableError(
                f"the grant in {folder.url} is not whole", remedy="no action: the next try reads it"
            )
        return self._handle(folder, grant, Hello(grant.nonce), life_s)

    def _handle(self, folder: Folder, grant: Grant, hello: Hello, ttl_s: float | None) -> Handle:
        """Return the handle of a driver.

        :param ttl_s: of the lease on which its commits depend.
        """
        name, place = self.place.identify(hello)
        facts = {"folder": folder.url, "nonce": grant.nonce, "payload": grant.payload}
        life = {LEASE_TTL_FACT: ttl_s, SILENCE_FACT: silence_s(ttl_s or LIFE_S, REQUEST_S)}
        return Handle(self.name, name, {**self.origin, **place, **facts, **life})

    def _followed(self, handle: Handle) -> Followed:
        nonce = str(handle.facts["nonce"])
        if nonce not in self._drivers:
            url = str(handle.facts["folder"])
            is_offered = self.offer is not None and self.offer.folder.url == url
            folder = self.offer.folder if self.offer and is_offered else self.open_folder(url)
            self._drivers[nonce] = Followed(handle, folder, is_local=self.place.is_local)
        return self._drivers[nonce]


@dataclass(slots=True)
class Followed:
    """What this process has read of one driver.

    :param is_local: whether it is a process of this host, whose facts are appended to.
    :param new: its facts that no call has returned yet.
    :param exit_code: as its runner reported it, or as its end implies; of a process of this host that
        another process of the task has started, it is unknown.
    :param proof: that it has ended.
    :param proven_at: monotonic time at which that was known.
    :param doubt: what the proof is missing, for people.
    :param looked_at: monotonic time of the last look.
    :param state: what its place has said last, if it was asked.
    :param asked_at: monotonic time at which the place was asked for that.
    :param is_there: whether the folder is there.
    :param is_followed: whether Hudi's loggers in its JVM report, so that nothing depends on its lines.
    :param is_whole: whether its facts were read to its own end, and none is missing.
    """

    handle: Handle
    folder: Folder
    is_local: bool = False
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
    asked_at: float = float("-inf")
    watch: Watch = field(default_factory=Watch)
    _begun_s: float = field(default_factory=time.monotonic, init=False)
    _end: End | None = field(default=None, init=False)
    _of_runner: _Facts = field(init=False)
    _of_hudi: _Facts = field(init=False)
    _unanswered: dict[int, float] = field(default_factory=dict, init=False)
    _has_grant: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._of_runner = _Facts(self.folder, FACTS, self.is_local)
        self._of_hudi = _Facts(self.folder, HUDI_FACTS, self.is_local)

    @property
    def period_s(self) -> float:
        """Seconds between two looks: often while it begins, then rarely."""
        if self.is_local:
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

    def look(self, request_s: float) -> None:
        """Read the folder once.

        :param request_s: for which a request of the driver may be under way after its end.
        """
        looked_at = time.monotonic()
        began = looked_at - self.folder.stale_s
        grant, names = _grant_of(self.handle), self.folder.entries()
        # Only a process that has just begun needs more than its own clock.
        asks_clock = bool(names) and self.looked_at == float("-inf")
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
        end = None if self.is_local else self._end
        view = View(
            *(grant, hellos, self._has_grant, self.is_revoked, tick, end),
            is_gone=end is not None or isinstance(self.state, Ended),
            quiet_s=stored_quiet_s(times, has_ticked=tick > 0) if asks_clock else 0.0,
        )
        watch = self.watch.after(view, began, time.monotonic())
        self.watch, self.looked_at = watch, looked_at
        ttl_s = self.lease_ttl_s or LIFE_S
        step = next_settle_step(view, watch, why="", ttl_s=ttl_s, request_s=request_s)
        if isinstance(step, Over):
            self._conclude(step)
        elif isinstance(step, LookLater):
            self.doubt = step.reason if names else f"{self.folder.url} is not there any more"

    def answer(self, extended_s: float = float("-inf")) -> None:
        """Do what a granted driver waits for: the grant itself, or an answer to its ticks.

        That is known once a look was made. A driver that was revoked, or is over, waits for nothing.

        :param extended_s: monotonic time at which the last extension began that succeeded.
        """
        if not self.is_there or self.is_revoked or self.proof:
            return
        if not self._has_grant:
            self.folder.write(GRANT, _grant_of(self.handle).to_bytes())
            self._has_grant = True
        until_s = float("inf") if self.lease_ttl_s is None else extended_s
        tick, unanswered = answered_tick(self._unanswered, until_s)
        if tick is not None:
            self.folder.write(LIFE, answer_to_bytes(tick))
            self._unanswered = unanswered

    def _read_facts(self, names: Mapping[str, File]) -> int:
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
        if self.exit_code is None and isinstance(self.state, Ended):
            self.exit_code = self.state.exit_code
        if self.exit_code is None and not self.is_local:
            self.exit_code = EXIT_REFUSED if over.proof is Proof.LEFT else _KILLED
        if over.proof is Proof.LEFT:
            self.is_whole = True  # it has done nothing
        if not self.is_local:
            self.new.append(f"{over.evidence}.\n")
        elif isinstance(self.state, Ended) and self.is_there:
            self.is_whole = True  # what is appended outlives a process


@dataclass(slots=True)
class _Facts:
    """One file of facts, and how far it was read.

    :param is_appended: whether nothing of it is ever replaced.
    :param missed: how many of its lines were left out before they were read.
    """

    folder: Folder
    name: str
    is_appended: bool
    missed: int = field(default=0, init=False)
    _lines: int = field(default=0, init=False)
    _version: Hashable = field(default=None, init=False)
    _fixed: tuple[int, int] = field(default=(-1, 0), init=False)

    def new(self, names: Mapping[str, File]) -> list[Fact]:
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
        facts, is_fixed = [], True
        for line in lines[1:] if at >= 0 else lines:
            at += len(line) + 1
            is_read = number < self._lines and b"left_out" not in line
            fact = {} if is_read else parse_fact(line.decode(errors="replace")) or {}
            if fact.get("fact") == "left_out":  # of a long file the first and the last lines are kept
                is_fixed = False
                read, number = max(self._lines, number), number + int(fact.get("lines", 0))
                self.missed += max(0, number - read)
                continue
            number += 1
            if is_fixed and (self.is_appended or at < FIXED_FACTS):
                self._fixed = at, number
            if number > self._lines and fact:
                facts.append(fact)
        self._lines, self._version = max(self._lines, number), version
        return facts


def hellos_in(folder: Folder, names: Iterable[str]) -> tuple[Hello, ...]:
    """Return the hellos among the files of an attempt's folder.

    :param names: of its files.
    """
    of_drivers = (name for name in sorted(names) if name.startswith(HELLO_PREFIX))
    return tuple(Hello.from_bytes(name, folder.read(name) or b"") for name in of_drivers)


def _gate_period_s(waited_s: float) -> float:
    """Return the seconds between two looks for a driver that waits.

    It normally comes within a minute. In a full cluster it may take hours, and each look is a request.

    :param waited_s: since its start began.
    """
    return _GATE_S if waited_s < _GATE_SLOWS_S else min(_SLOW_GATE_S, waited_s / _GATE_SLOWS_S)


def _grant_of(handle: Handle) -> Grant:
    """Return the journal's entry."""
    return Grant(str(handle.facts["nonce"]), str(handle.facts["payload"]))


@dataclass(slots=True)
class _Call:
    """A call in a thread of its own, which may last as long as the driver.

    :param error: with which it has failed.
    :param begun_s: monotonic time of its begin.
    :param returned_s: the same of its end.
    """

    call: Callable[[], None]
    error: Exception | None = None
    begun_s: float = field(default_factory=time.monotonic)
    returned_s: float | None = None

    def begin(self) -> None:
        """Begin the call."""
        threading.Thread(target=self._run, daemon=True, name="start-driver").start()

    def _run(self) -> None:
        try:
            self.call()
        except Exception as error:  # noqa: BLE001 - told by the process that waits for the driver
            self.error = error
        self.returned_s = time.monotonic()

"""Drivers of any place: granted, followed and revoked by files of a folder."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.site import late_start
from airflow_occ_provider.attempts.submission import Submission
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
    REQUEST_S,
    CompareAndSet,
    LookLater,
    MayRun,
    NotGranted,
    View,
    WriteGrant,
    next_grant_step,
    silence_s,
)
from airflow_occ_provider.driver.contract import (
    GRANT,
    PAYLOAD,
    REVOKED,
    Grant,
    Hello,
    digest,
    is_hello,
)
from airflow_occ_provider.errors import (
    FenceError,
    NotSubmittedError,
    OccError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters.followed_driver import (
    AttemptFiles,
    FollowedDriver,
    Patience,
    grant_of,
)
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.processes import Flag, call_apart

_GATE_S = 0.3
_SLOW_GATE_S = 5.0
_GATE_SLOWS_S = 60.0
_COMES_S = 60.0  # until what a driver has written is seen
_TAIL = 20  # lines of an error
_LOOK_S = 0.3
_QUIET_S = 60.0  # a driver that was revoked drains its commit and reports in less
_RETURN_S = 15.0  # what has started a driver logs the rest of its output, and returns
_END_S = 30.0
# Airflow kills a task five seconds after its request to stop. What remains is for the lease's release.
_KILL_S = 3.5
_REVOKE_S = 1.5
_HANDLER_S = 0.5


@dataclass
class DriverStart:
    """Has a driver started, records the first that waits in the folder, and grants it.

    :param place: where it runs.
    :param submission: what it runs, and its folder.
    :param limit: the longest wait for it.
    :param describe: returns the handle of a driver of a folder, by its grant, its hello and the TTL of
        the lease on which its commits depend.
    :param killed: set when the task was asked to stop.
    :param patience: for a storage that does not answer.
    :param echo: takes each line that is printed meanwhile.
    :ivar error: with which the place's call has failed.
    :ivar returned_s: monotonic time at which that call has returned.
    """

    place: Place
    submission: Submission
    limit: timedelta
    describe: Callable[[AttemptFiles, Grant, Hello, float | None], Handle]
    killed: Flag
    patience: Patience
    echo: Callable[[str], object]
    error: Exception | None = field(default=None, init=False)
    returned_s: float | None = field(default=None, init=False)
    _begun_s: float = field(default=0.0, init=False)
    _printed: deque[str] = field(default_factory=partial(deque, maxlen=_TAIL), init=False)

    def granted(self, started: Callable[[Handle], None]) -> Handle:
        """Return the driver that was granted.

        :param started: records it.
        :raises NotSubmittedError: if the start fails before a driver waits.
        """
        folder, payload = self.submission.files, digest(self.submission.payload)
        handle = None
        self._begun_s = time.monotonic()  # a driver on standby is not late
        while True:
            is_waiting = True
            with self.patience.waiting(f"a driver in {folder.url}"):
                view = _view(folder, handle)
                if view.is_granted and not handle:
                    raise NotSubmittedError(
                        f"a driver in {folder.url} of this task run is alive, so no other was "
                        "started beside it: another process of the task has started it meanwhile",
                        remedy="no action if the task is retried: the next try finds its commit, or "
                        "ends it; else revoke it and clear the task",
                    )
                step = next_grant_step(view, payload)
                if isinstance(step, MayRun) and handle:
                    return handle
                handle = self._go_on(view, step, started) or handle
                is_waiting = isinstance(step, LookLater)
                self.patience.end(folder.url)
            if is_waiting:
                self._wait_for_driver()

    def _go_on(self, view: View, step: object, started: Callable[[Handle], None]) -> Handle | None:
        """Make one step towards a grant; return the driver that it has recorded, if any."""
        folder = self.submission.files
        match step:
            case CompareAndSet(Grant() as grant):
                # No driver is recorded before its payload is there.
                folder.write(PAYLOAD, self.submission.payload)
                hello = next(hello for hello in view.hellos if hello.nonce == grant.nonce)
                handle = self.describe(folder, grant, hello, self.submission.lease_ttl_s)
                started(handle)
                return handle
            case WriteGrant(grant):
                folder.write(GRANT, grant.to_bytes())
            case NotGranted(reason):
                raise NotSubmittedError(
                    f"no driver was granted: {reason}",
                    remedy="no action if the task is retried: the next try starts another one",
                )
        return None

    def _wait_for_driver(self) -> None:
        """Wait until the next look for a driver, and hand on what is printed.

        A request to stop and a failed start are seen sooner.

        :raises NotSubmittedError: if nothing will start a driver.
        """
        now_s = time.monotonic()
        until_s = now_s + _gate_period_s(now_s - self._begun_s)
        while True:
            has_printed = self.look()
            self._refuse_late()
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(0 if has_printed else min(left_s, _GATE_S))

    def look(self) -> bool:
        """Hand on some of what was printed; return whether there was anything.

        :raises NotSubmittedError: if the start has failed, or the task was asked to stop.
        """
        has_printed = self._hand_on()
        self._refuse_failed()
        return has_printed

    def _hand_on(self) -> bool:
        """Hand on some of what was printed; return whether there was anything."""
        lines = self.place.output(0)
        for line in lines:
            self.echo(line)
        self._printed.extend(lines)
        return bool(lines)

    def _refuse_failed(self) -> None:
        """Stop to wait for a driver that nothing will start.

        :raises NotSubmittedError: if the start has failed, or the task was asked to stop.
        """
        error = self.error
        if self.killed.is_set():
            raise NotSubmittedError(
                "no driver was granted: the task was asked to stop", remedy="clear the task"
            )
        if error:
            while self._hand_on():
                """Its last lines say why."""
            if not isinstance(error, NotSubmittedError):
                remedy = "correct what the task's log shows of it; nothing was run"
                error = NotSubmittedError(f"the start of the driver failed: {error}", remedy=remedy)
            lines = f":\n{''.join(self._printed)}" if self._printed else ""
            raise NotSubmittedError(f"{error.message}{lines}", remedy=error.remedy) from self.error

    def _refuse_late(self) -> None:
        """Stop to wait for a driver that takes too long.

        :raises NotSubmittedError: then.
        """
        now = time.monotonic()
        late = late_start(now - self._begun_s, self.limit)
        if late:
            raise NotSubmittedError(
                f"no driver was granted: {late}", remedy="correct that; nothing was run"
            )
        if self.place.waits and self.returned_s is not None and now - self.returned_s > _COMES_S:
            raise NotSubmittedError(
                "the operator has returned, and no driver of it is in the attempt's folder",
                remedy="have it run the driver's PySpark file, with access to the table's storage; "
                "nothing was run",
            )

    def begin(self) -> None:
        """Begin the place's call in a thread of its own.

        It may last as long as the driver.
        """
        threading.Thread(target=self._run, daemon=True, name="start-driver").start()

    def _run(self) -> None:
        try:
            self.place.start(self.submission.application, self.submission.arguments)
        except Exception as error:  # noqa: BLE001 - told by the process that waits for the driver
            self.error = error
        self.returned_s = time.monotonic()


def _view(folder: AttemptFiles, handle: Handle | None) -> View:
    """Look for the drivers that wait."""
    names = folder.entries()
    of_drivers = () if handle else sorted(filter(is_hello, names))
    hellos = tuple(Hello.from_bytes(name, folder.read(name) or b"") for name in of_drivers)
    return View(grant_of(handle) if handle else None, hellos, GRANT in names, REVOKED in names)


def _gate_period_s(waited_s: float) -> float:
    """Return the seconds between two looks for a driver that waits.

    It normally comes within a minute. In a full cluster it may take hours, and each look is a request.

    :param waited_s: since its start began.
    """
    return _GATE_S if waited_s < _GATE_SLOWS_S else min(_SLOW_GATE_S, waited_s / _GATE_SLOWS_S)


@dataclass
class FolderDriver:
    """Grants a driver that something else starts, follows it and revokes it.

    The driver does nothing before it is granted, and it is granted once the journal has recorded it. So
    a second driver of the attempt, such as a service's own retry, leaves. How it ends is known by the
    folder, and sooner if its place proves that it has ended: that a start has returned proves nothing.

    :param open_folder: opens the folder of an earlier process's driver by its URL.
    :param place: where it runs.
    :param submission: the work; ``None`` to follow and end drivers of earlier processes.
    :param origin: more facts of its handles, by which another process opens the folder.
    :param killed: set when the task was asked to stop.
    :param start_limit: the longest wait for a driver.
    :param patience: for a storage that does not answer.
    :param has_ended: whether an earlier process has proven the end of the driver that is followed.
    """

    open_folder: Callable[[str], AttemptFiles]
    place: Place
    submission: Submission | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    killed: Flag = field(default_factory=Flag)
    start_limit: timedelta = timedelta.max
    patience: Patience = field(default_factory=Patience)
    has_ended: bool = False
    _drivers: dict[str, FollowedDriver] = field(default_factory=dict, init=False)
    _start: DriverStart | None = field(default=None, init=False)
    _extensions: Extensions | None = field(default=None, init=False)

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
        try:
            return self._begun(echo).granted(started)
        except BaseException:
            self.give_up()
            raise

    def stand_by(self, echo: Callable[[str], object]) -> bool:
        """Have the driver started once, which does nothing before ``submit``."""
        return self._begun(echo).look()

    def offer(self, payload: bytes, lease_ttl_s: float | None) -> None:
        """Take what the driver on standby is to run.

        The payload is written at once: by it a driver that is still warming up knows that it is enough.
        """
        if self._start is None:
            raise AssertionError("no driver is on standby")
        self._start.look()
        self._start.submission.files.write(PAYLOAD, payload)
        changed = replace(self._start.submission, payload=payload, lease_ttl_s=lease_ttl_s)
        self.submission = self._start.submission = changed

    def give_up(self) -> None:
        """End what was started, none of which was granted."""
        if self._start is None:
            return
        why = "the attempt was given up before a driver was granted"
        self._in_time(partial(self._revoke, self._start.submission.files, why))
        call_apart(partial(self.place.kill, None)).wait(self.killed.left_s(_KILL_S))

    def _begun(self, echo: Callable[[str], object]) -> DriverStart:
        """Return the start of the driver, which it begins if nothing has."""
        if self.submission is None:
            raise AssertionError("there is nothing to submit")
        if self._start is None:
            self._start = DriverStart(
                place=self.place,
                submission=self.submission,
                limit=self.start_limit,
                describe=self._handle,
                killed=self.killed,
                patience=self.patience,
                echo=echo,
            )
            self._start.begin()
        return self._start

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver may run, by what the folder proves."""
        driver = self._followed(handle)
        try:
            with self.patience.waiting(str(handle)):
                if driver.proof is None:
                    self._look(driver)
        except SubmitterUnreachableError as error:
            return Unseen(error.message)
        if driver.proof:
            ended = Ended(driver.exit_code, log_is_whole=driver.is_whole)
            return ended if self._is_over(driver) else Running()
        if isinstance(driver.state, Running):
            return driver.state
        if self.patience.failure:
            return Unseen(self.patience.failure, is_away=True)
        if not driver.is_there or (driver.is_revoked and driver.watch.quiet_s > _QUIET_S):
            said = driver.state.reason if isinstance(driver.state, Unseen) else ""
            return Unseen("; ".join(filter(None, (driver.doubt, said))))
        return Running()

    def read(self, handle: Handle, wait_s: float) -> Sequence[Entry] | None:
        """Return the driver's facts since the last call; ``None`` after its end.

        :raises FenceError: if something that the driver started does not end.
        :raises SubmitterUnreachableError: if the storage has not answered for long, or if the task was
            asked to stop and the driver's end is not seen at once: the task has no time to wait for it.
        """
        driver = self._followed(handle)
        if self.killed.is_set():
            self._end_killed(driver)
        if driver.is_read:
            return None
        due_s = max(0.0, driver.looked_at + driver.period_s - time.monotonic())
        error = self._start.error if self._start else None
        if driver.proof and not self._is_over(driver):
            due_s = wait_s  # what has started it is about to return, and to print its last lines
        lines = self.place.output(0 if driver.new or self._is_over(driver) else min(wait_s, due_s))
        # What the runner reports before the job's first line says how the job's lines are read.
        is_due = due_s == 0 or error is not None or (lines and not driver.is_followed)
        with self.patience.waiting(str(handle)):
            if is_due and driver.proof is None:
                self._look(driver)
            self._answer(driver)
        if isinstance(error, FenceError) and driver.proof is None and not lines:
            raise error
        if driver.is_followed:
            self.place.skip_output()
        facts, driver.new = driver.new, []
        if self._is_over(driver):
            rest = self.place.output(0)
            driver.is_read = not (rest or driver.new)
            lines += rest or (self.place.last_lines(handle) if driver.exit_code else [])
        entries = [*facts, *lines]
        return entries or (None if driver.is_read else [])

    def end(self, handle: Handle) -> None:
        """Revoke the driver, and wait a little for its end.

        Once the task was asked to stop, a signal handler may make this call: what it has interrupted may
        hold any lock, or be about to note what it has read. So it looks at nothing then.
        """
        driver = self._followed(handle)
        if self._is_over(driver):
            return
        # A driver that ends itself lets a commit finish that it has begun.
        ends_itself = not (driver.is_revoked or self.place.is_local)
        self._in_time(partial(self._revoke_driver, driver))
        if self.killed.is_set():
            left_s = self.killed.left_s(_KILL_S)
            self._kill(driver, left_s if self.place.is_local else min(left_s, _HANDLER_S))
            return
        if not ends_itself:
            self._kill(driver, _KILL_S)
        self._await_end(driver, _END_S)

    def _in_time(self, revoke: Callable[[], object]) -> None:
        """Revoke, and let a task go on in time that was asked to stop."""
        if self.killed.is_set():
            call_apart(revoke).wait(self.killed.left_s(_REVOKE_S))
        else:
            revoke()

    def _revoke_driver(self, driver: FollowedDriver) -> None:
        # On this host a commit is not waited for, and the folder of an earlier process may be gone.
        if not (self.place.is_local or driver.is_revoked or driver.proof):
            driver.is_revoked = self._revoke(driver.folder, "its task was asked to end it")

    def _kill(self, driver: FollowedDriver, longest_s: float) -> None:
        """Have the place end a driver, unless an earlier call is about to, and wait for that."""
        if driver.killing is None or driver.killing.is_set():
            driver.killing = call_apart(partial(self.place.kill, driver.handle))
        driver.killing.wait(longest_s)

    def _end_killed(self, driver: FollowedDriver) -> None:
        """End a driver whose task was asked to stop.

        The place may take longer than the task has: another operator's ``on_kill`` does what it likes.
        So the lease is released while that goes on.

        :raises SubmitterUnreachableError: if its end is not seen at once.
        """
        self.end(driver.handle)
        self._await_end(driver, self.killed.left_s(_KILL_S))
        if driver.proof is None:
            raise SubmitterUnreachableError(
                f"{driver.handle} was asked to end, and its end was not seen: {driver.doubt}",
                remedy="no action if the task is cleared: its next try waits for that end",
            )

    def _await_end(self, driver: FollowedDriver, longest_s: float) -> None:
        until_s = time.monotonic() + longest_s
        while isinstance(self.poll(driver.handle), Running) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)

    def _is_over(self, driver: FollowedDriver) -> bool:
        """Whether a driver has ended, and what has started it has returned, or had time to."""
        if driver.proof is None or self._start is None or self.killed.is_set():
            return driver.proof is not None
        return self._start.returned_s is not None or time.monotonic() > driver.proven_at + _RETURN_S

    def _look(self, driver: FollowedDriver) -> None:
        driver.look()
        self.patience.end(str(driver.handle))

    def _answer(self, driver: FollowedDriver) -> None:
        """Complete the grant and answer the ticks of a driver that this process follows."""
        extensions = self._extensions
        driver.answer(extensions.extended_s if extensions else float("-inf"))
        if extensions and driver.awaits_extension:
            extensions.extend_soon()

    def _revoke(self, folder: AttemptFiles, why: str) -> bool:
        """Revoke an attempt; whether the storage has accepted that."""
        try:
            folder.write(REVOKED, why.encode())
        except OccError:
            return False  # the next look tries again
        return True

    def revoke_unrecorded(self, folder: AttemptFiles, life_s: float) -> Handle | None:
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

    def _handle(self, folder: AttemptFiles, grant: Grant, hello: Hello, ttl_s: float | None) -> Handle:
        """Return the handle of a driver.

        :param ttl_s: of the lease on which its commits depend.
        """
        name, place = self.place.identify(hello)
        facts = {"folder": folder.url, "nonce": grant.nonce, "payload": grant.payload}
        life = {LEASE_TTL_FACT: ttl_s}
        if not self.place.is_local:  # no process of another host sees its silence
            life[SILENCE_FACT] = silence_s(ttl_s or LIFE_S, REQUEST_S)
        return Handle(self.name, name, {**self.origin, **place, **facts, **life})

    def _followed(self, handle: Handle) -> FollowedDriver:
        nonce = str(handle.facts["nonce"])
        if nonce not in self._drivers:
            url = str(handle.facts["folder"])
            submission = self.submission
            is_mine = submission and submission.files.url == url
            folder = submission.files if submission and is_mine else self.open_folder(url)
            self._drivers[nonce] = FollowedDriver(handle, folder, self.place, self.has_ended)
        return self._drivers[nonce]

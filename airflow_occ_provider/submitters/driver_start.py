"""The start of one driver, until it is granted."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from airflow_occ_provider.attempts.site import late_start
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.driver.attempt import (
    CompareAndSet,
    LookLater,
    MayRun,
    NotGranted,
    View,
    WriteGrant,
    next_grant_step,
)
from airflow_occ_provider.driver.contract import (
    GRANT,
    HELLO_PREFIX,
    PAYLOAD,
    REVOKED,
    Grant,
    Hello,
    digest,
)
from airflow_occ_provider.errors import NotSubmittedError
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.followed_driver import AttemptFiles, grant_of
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.place import Place

_GATE_S = 0.3
_SLOW_GATE_S = 5.0
_GATE_SLOWS_S = 60.0
_COMES_S = 60.0  # until what a driver has written is seen
_TAIL = 20  # lines of an error


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
    _begun_s: float = field(default_factory=time.monotonic, init=False)
    _printed: deque[str] = field(default_factory=partial(deque, maxlen=_TAIL), init=False)

    def granted(self, started: Callable[[Handle], None]) -> Handle:
        """Return the driver that was granted.

        :param started: records it.
        :raises NotSubmittedError: if the start fails before a driver waits.
        """
        folder, payload = self.submission.files, digest(self.submission.payload)
        handle = None
        self._begin()
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
            has_printed = self._hand_on()
            self._refuse_failed()
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(0 if has_printed else min(left_s, _GATE_S))

    def _hand_on(self) -> bool:
        """Hand on some of what was printed; return whether there was anything."""
        lines = self.place.output(0)
        for line in lines:
            self.echo(line)
        self._printed.extend(lines)
        return bool(lines)

    def _refuse_failed(self) -> None:
        """Stop to wait for a driver that nothing will start.

        :raises NotSubmittedError: if the start has failed or lasts too long, or the task was asked to
            stop.
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

    def _begin(self) -> None:
        """Begin the place's call in a thread of its own: it may last as long as the driver."""
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
    of_drivers = sorted(name for name in names if name.startswith(HELLO_PREFIX) and not handle)
    hellos = tuple(Hello.from_bytes(name, folder.read(name) or b"") for name in of_drivers)
    return View(grant_of(handle) if handle else None, hellos, GRANT in names, REVOKED in names)


def _gate_period_s(waited_s: float) -> float:
    """Return the seconds between two looks for a driver that waits.

    It normally comes within a minute. In a full cluster it may take hours, and each look is a request.

    :param waited_s: since its start began.
    """
    return _GATE_S if waited_s < _GATE_SLOWS_S else min(_SLOW_GATE_S, waited_s / _GATE_SLOWS_S)

"""The guards that look at a running driver's table, in one view per period.

A view has the heartbeats of the writers, and then the timeline. All that ask within a time share it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_T = TypeVar("_T")
_END_TIMEOUT_S = 2.0


class SharedCall(Generic[_T]):
    """Makes a call at most once in a period, however many threads want its answer.

    A failure is an answer, too: a service that does not answer is not asked by each of its users.

    :param call: the call.
    :param period_s: seconds for which an answer is shared, from the beginning of its call.
    """

    def __init__(self, call: Callable[[], _T], period_s: float) -> None:
        self._call = call
        self._period_s = period_s
        self._lock = threading.Lock()
        self._asked_s = float("-inf")
        self._answer: _T | None = None
        self._error: Exception | None = None

    def get(self) -> _T:
        """Return the answer, or raise what the call raised."""
        with self._lock:
            if time.monotonic() - self._asked_s >= self._period_s:
                self._ask()
            answer = self._answer
            error = self._error
        if error:
            raise error.with_traceback(None)
        return answer  # type: ignore[return-value]

    def _ask(self) -> None:
        begun_s = time.monotonic()
        self._answer = None
        self._error = None
        try:
            self._answer = self._call()
        except Exception as error:  # noqa: BLE001 - raised in all that ask
            self._error = error
            begun_s = time.monotonic()  # it may have taken longer than the period
        self._asked_s = begun_s


class TableView(NamedTuple):
    """One view of a table.

    :param ticks: epoch milliseconds of each heartbeat's last tick.
    :param snapshot: of the timeline, read after the heartbeats; ``None`` if there is no table.
    :param now_ms: epoch milliseconds just before the heartbeats were listed.
    :param now_s: seconds of a monotonic clock just after.
    """

    ticks: Mapping[str, int]
    snapshot: Snapshot | None
    now_ms: int
    now_s: float


class TableViews:
    """Reads a table again and again.

    :param period_s: seconds for which a view is shared; by default each is a new one.
    """

    def __init__(self, table: HudiTable, period_s: float = 0.0) -> None:
        self._table = table
        self._snapshot: Snapshot | None = None
        self._shared = SharedCall(self._read, period_s)

    def current(self) -> TableView:
        """Return a view that is not older than the period.

        :raises TableUnreadableError: if the table cannot be read.
        """
        return self._shared.get()

    def newest(self) -> TableView:
        """Return a view that begins now.

        :raises TableUnreadableError: if the table cannot be read.
        """
        return self._read()

    def _read(self) -> TableView:
        """Read the heartbeats, then the timeline: a write completed in between is not dead."""
        now_ms = round(time.time() * 1000)
        snapshot = self._snapshot or self._table.snapshot(missing_ok=True)
        ticks = snapshot.heartbeats()
        now_s = time.monotonic()
        if not snapshot.config.exists:
            return TableView(ticks, None, now_ms, now_s)
        self._snapshot = self._table.snapshot(snapshot)
        return TableView(ticks, self._snapshot, now_ms, now_s)


class TableGuard(Protocol):
    """Watches one danger of a running driver that its table shows."""

    @property
    def danger(self) -> str:
        """What it watches, in a few words."""

    @property
    def period_s(self) -> float:
        """The longest time between two looks, in seconds."""

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; known without a request."""

    def look(self, view: TableView) -> None:
        """Look once, and log what has changed."""

    def end(self) -> None:
        """Log and find nothing more, also in a look that is under way."""


@dataclass(slots=True)
class TableGuards:
    """Has its guards look at a table, one after another, all in the same view of it.

    Within a ``with`` block a thread does so every period. A storage that does not answer proves nothing:
    it is logged once, until it answers again. A driver that has not requested a write costs no request.

    :param views: of the driver's table.
    :param log: the driver's.
    """

    views: TableViews
    log: DriverLog
    guards: Sequence[TableGuard]
    logger: Any
    _unanswered: set[str] = field(default_factory=set, init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True, name="table-guards")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for guard in self.guards:
            guard.end()
        self._thread.join(_END_TIMEOUT_S)

    @property
    def period_s(self) -> float:
        """The seconds between two looks: as many as each guard allows."""
        return min(guard.period_s for guard in self.guards)

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; known without a request."""
        return next(filter(None, (guard.stop for guard in self.guards)), None)

    def check(self) -> None:
        """Have each guard look once, unless there is a reason to stop."""
        if self.stop or not self.log.own_instants:
            return
        view = self._answer("table", self.views.current)
        if view is not None:
            for guard in self.guards:
                self._answer(guard.danger, partial(guard.look, view))

    def _run(self) -> None:
        while not self._ended.wait(self.period_s):
            self.check()

    def _answer(self, what: str, ask: Callable[[], _T]) -> _T | None:
        """Return an answer; log a failure, if the last answer was none."""
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - a guard is no reason for a task to fail
            if what not in self._unanswered and not self._ended.is_set():
                name = type(error).__name__
                self.logger.warning(
                    "The driver's %s cannot be looked at, which says nothing of the driver: %s",
                    what,
                    error.message if isinstance(error, TableUnreadableError) else f"{name}: {error}",
                )
            self._unanswered.add(what)
            return None
        self._unanswered.discard(what)
        return answer

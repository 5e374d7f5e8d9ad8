"""The guards that look at a running driver's table, in one view per period."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from airflow_occ_provider.attempts.guards.table_views import TableView, TableViews
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.errors import TableUnreadableError

_END_TIMEOUT_S = 2.0
_T = TypeVar("_T")


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

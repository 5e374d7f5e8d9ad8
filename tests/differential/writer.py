"""One writer on its own thread, which runs to a given point and stops there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Literal

Point = Literal["requested", "before_inflight", "inflight", "commit"]
_PATIENCE_S = 60.0


class RigError(RuntimeError):
    """A pair did not run as planned; this says nothing about Hudi."""


class Writer:
    """A write that stops at a given point until it may continue.

    :param jvm: the session's view of the JVM.
    :param threads: where it runs.
    :param table: base path of its table.
    :param work: the write itself.
    :param patience_s: seconds after which a stopped write fails.
    """

    def __init__(
        self,
        jvm: Any,
        threads: Executor,
        table: str,
        work: Callable[[], None],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._latches = jvm.differential.Latches
        self._latch = self._latches.create(table, round(patience_s * 1000))
        self._patience_s = patience_s
        self._threads = threads
        self._work = work
        self._future: Future[BaseException | None] | None = None

    def run_to(self, point: Point) -> bool:
        """Let it run to a point; return whether it reached the point before it ended.

        :raises RigError: if it neither reached the point nor ended in time.
        """
        self._latch.send(point)
        self._start()
        state = self._latch.arrive(point)
        if state not in ("reached", "ended"):
            raise RigError(f"a writer did not reach '{point}': {state}")
        return bool(state == "reached")

    def finish(self) -> BaseException | None:
        """Let it run to its end and return its error, if it failed.

        :raises TimeoutError: if it does not end.
        """
        self._latch.send("")
        return self._start().result(timeout=2 * self._patience_s)

    @property
    def instants(self) -> tuple[str, ...]:
        """The writer's instants as ``time.action``, in the order of their requests."""
        text = self._latch.requests()
        return tuple(text.split(",")) if text else ()

    def _start(self) -> Future[BaseException | None]:
        if self._future is None:
            self._future = self._threads.submit(self._run)
        return self._future

    def _run(self) -> BaseException | None:
        self._latches.enter(self._latch)
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - whatever Hudi throws is the observation
            return error
        finally:
            self._latches.leave()
        return None

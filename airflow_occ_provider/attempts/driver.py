"""One driver: recorded, started, watched, and ended with all its processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Ended, Handle, Submitter
from airflow_occ_provider.errors import FenceError

_LOOKS = 3
TICK_S = 0.5
"""The seconds after which the guards are asked again, however quiet the driver's log is."""


class Guard(Protocol):
    """Watches one danger of a running driver."""

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; returned at once."""


@dataclass(slots=True)
class Driver:
    """A driver that a submitter runs for this attempt.

    :param echo: takes each line of its log before the attempt does.
    """

    submitter: Submitter
    echo: Callable[[str], object] = lambda _: None
    stop: Stop | None = field(default=None, init=False)
    log_read: bool = field(default=False, init=False)
    _handle: Handle | None = field(default=None, init=False)

    def run(
        self,
        key: str,
        listeners: Sequence[Callable[[str], object]],
        on_start: Callable[[Handle], None] = lambda _: None,
        guards: Sequence[Guard] = (),
    ) -> None:
        """Start the driver, watch it to its end, and end all that it started.

        :param on_start: records its handle; if it raises, a gated driver never starts.
        :param guards: asked after each batch of lines and at every tick; the first stop ends it.
        :raises FenceError: if one of its processes does not end.
        """

        def started(handle: Handle) -> None:
            self._handle = handle
            on_start(handle)

        try:
            handle = self.submitter.submit(key, started)
            while (lines := self.submitter.read(handle, TICK_S)) is not None:
                for line in lines:
                    for listen in (self.echo, *listeners):
                        listen(line)
                self.stop = self.stop or next(filter(None, (guard.stop for guard in guards)), None)
                if self.stop:
                    self.submitter.end(handle)  # again, until it has ended
            self.log_read = True
        finally:
            self.end()
        if not self.ended:
            raise FenceError(
                "something that the driver started does not end",
                remedy="look in the worker's processes what it waits for, and end it",
            )

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` if it runs or is unknown."""
        state = self.submitter.poll(self._handle) if self._handle else None
        return state.exit_code if isinstance(state, Ended) else None

    @property
    def lives(self) -> bool:
        """Whether one of its processes may be alive."""
        return self._handle is not None and not self.ended

    @property
    def ended(self) -> bool:
        """Whether it was started, and none of its processes is alive."""
        return self._handle is not None and isinstance(self.submitter.poll(self._handle), Ended)

    def end(self) -> None:
        """End it and all that it started."""
        if self._handle:
            self.submitter.end(self._handle)


def end_earlier(submitter: Submitter, find: Callable[[], Handle | None], what: str) -> bool:
    """End what is left of an earlier driver; return whether anything was alive.

    :raises FenceError: if it does not end.
    """
    for looked in range(_LOOKS + 1):
        living = find()
        if living is None:
            return looked > 0
        if looked < _LOOKS:
            submitter.end(living)
    raise FenceError(
        f"{living} of {what} does not end",
        remedy="look what it waits for (a dead mount?), end it, and clear the task",
    )


class DriverRun(Protocol):
    """Runs a task's drivers one after another, and can end the running one."""

    @property
    def lives(self) -> bool:
        """Whether a process of the driver may be alive."""

    def driver(self, submission: Submission) -> Driver:
        """Return the driver that runs a submission; it ends with the task.

        :raises DriverKilledError: if the task was asked to stop before.
        """

    def end(self) -> None:
        """End the driver."""

"""One driver: recorded, started, watched, and ended with all its processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.guards.guard import Guard
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Submitter
from airflow_occ_provider.errors import FenceError

TICK_S = 0.5
"""The seconds after which the guards are asked again, however quiet the driver's log is."""


class Driver:
    """A driver that a submitter runs for this attempt.

    :param submitter: runs it.
    """

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter
        self._handle: Handle | None = None
        self.stop: Stop | None = None
        self.log_read = False

    def run(
        self,
        key: str,
        follower: Follower,
        guards: Sequence[Guard] = (),
        echo: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Start the driver and watch it to its end; a guard may stop it.

        :param key: identity of the task run.
        :param follower: takes its log.
        :param guards: each receives every line and every tick; the first stop ends the driver.
        :param echo: takes each line before the others do, such as the task's log.
        """

        def started(handle: Handle) -> None:
            self._handle = handle
            follower.on_start(handle)

        handle = self._submitter.submit(key, started)
        while (lines := self._submitter.read(handle, TICK_S)) is not None:
            for line in lines:
                echo(line)
                follower.feed(line)
                self._note([guard.on_line(line) for guard in guards])
            self._note([guard.on_tick() for guard in guards])
            if self.stop:
                self._submitter.end(handle)  # again, until it has ended
        self.log_read = True

    def _note(self, found: Sequence[Stop | None]) -> None:
        self.stop = self.stop or next(filter(None, found), None)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` if it runs or is unknown."""
        state = self._submitter.poll(self._handle) if self._handle else None
        return state.exit_code if isinstance(state, Ended) else None

    @property
    def lives(self) -> bool:
        """Whether one of its processes may be alive."""
        return self._handle is not None and not self.ended

    @property
    def ended(self) -> bool:
        """Whether it was started, and none of its processes is alive."""
        return self._handle is not None and isinstance(self._submitter.poll(self._handle), Ended)

    def refuse_living(self) -> None:
        """Refuse to go on while one of its processes is alive.

        :raises FenceError: then.
        """
        if not self.ended:
            raise FenceError(
                "something that the driver started does not end",
                remedy="look in the worker's processes what it waits for, and end it",
            )

    def end(self) -> bool:
        """End it and all that it started; return whether anything was running."""
        handle = self._handle
        if handle is None:
            return False
        was_running = isinstance(self._submitter.poll(handle), Running)
        self._submitter.end(handle)
        return was_running

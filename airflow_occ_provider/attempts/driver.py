"""One driver: recorded, started under a lease, watched, and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.outcome import DoomedWrite, Outcome, Stop
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Submitter, Unseen
from airflow_occ_provider.attempts.waits import DriverEvent
from airflow_occ_provider.errors import (
    ConfigurationError,
    FenceError,
    LeaseLostError,
    NotSubmittedError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.rules import Mode, Owner, Scope

_LOOKS = 3
Listener = Callable[[Entry], object]
"""Takes each fact of a driver, and each line of its log that is none."""
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

    :param echo: takes each line of its log.
    :param end_echo: called after the last one, also if an exception interrupts the log.
    :param handle: of a driver that runs already; ``None`` until it is started.
    :param stop: why it was, or is to be, stopped.
    :param planned: the partitions of its writes' workload profiles, as another process has read them.
    :param doomed: another process's finding that Hudi would refuse its write, if there was one.
    :param stop_for: returns the reason to end it for an exception that interrupts its task, if there is
        one that says more than the driver's end.
    :param show: shows its recorded handle to people.
    :param log_read: whether its facts were read to their end, so that what they lack did not happen.
    :param was_refused: whether its submission failed for certain, so that there is no driver.
    """

    submitter: Submitter
    echo: Callable[[str], object] = lambda _: None
    end_echo: Callable[[], object] = lambda: None
    handle: Handle | None = None
    stop: Stop | None = None
    planned: Mapping[str, Sequence[str]] = field(default_factory=dict)
    doomed: DoomedWrite | None = None
    stop_for: Callable[[BaseException], Stop | None] = lambda _: None
    show: Callable[[Handle], object] = lambda _: None
    log_read: bool = field(default=False, init=False)
    was_refused: bool = field(default=False, init=False)

    def run(
        self,
        listeners: Sequence[Listener],
        on_start: Callable[[Handle], None] = lambda _: None,
        guards: Sequence[Guard] = (),
    ) -> None:
        """Start the driver, watch it to its end, and end all that it started.

        :param on_start: records its handle; if it raises, the driver never starts.
        :param guards: asked after each batch of lines and at every tick; the first stop ends it.
        :raises FenceError: if one of its processes does not end.
        """
        try:
            self.start(on_start)
            self.follow(listeners, guards)
        except BaseException:
            self.end()
            raise

    def start(self, on_start: Callable[[Handle], None]) -> None:
        """Start the driver.

        :param on_start: records its handle; if it raises, the driver never starts.
        """

        def started(handle: Handle) -> None:
            self.handle = handle
            on_start(handle)
            self.show(handle)

        try:
            self.submitter.submit(started, self.echo)
        except BaseException as error:
            self.end_echo()
            is_refusal = isinstance(error, NotSubmittedError | ConfigurationError)
            self.was_refused = is_refusal and self.handle is None
            raise

    def follow(self, listeners: Sequence[Listener], guards: Sequence[Guard] = ()) -> None:
        """Watch a started driver to its end.

        :param guards: asked after each batch of lines and at every tick; the first stop ends it.
        :raises FenceError: if one of its processes does not end.
        """
        if self.handle is None:
            raise AssertionError("the driver was not started")
        try:
            self._read(self.handle, listeners, guards)
        finally:
            self.end_echo()
        state = self.submitter.poll(self.handle)
        self.log_read = not isinstance(state, Ended) or state.log_is_whole
        if isinstance(state, Unseen):
            raise SubmitterUnreachableError(
                f"{self.handle} is unseen: {state.reason}",
                remedy="no action if the task is retried: the next try looks for the driver",
            )

    def _read(self, handle: Handle, listeners: Sequence[Listener], guards: Sequence[Guard]) -> None:
        """Read the log to its end, and end the driver once a guard says so."""
        while (lines := self.submitter.read(handle, TICK_S)) is not None:
            for entry in lines:
                self._hand(entry, listeners)
            self.stop = self.stop or next(filter(None, (guard.stop for guard in guards)), None)
            if self.stop:
                self.submitter.end(handle)  # again, until it has ended

    def _hand(self, entry: Entry, listeners: Sequence[Listener]) -> None:
        if isinstance(entry, str):
            self.echo(entry)
        for listen in listeners:
            listen(entry)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` if it runs or is unknown."""
        state = self.submitter.poll(self.handle) if self.handle else None
        return state.exit_code if isinstance(state, Ended) else None

    @property
    def lives(self) -> bool:
        """Whether one of its processes may be alive."""
        return self.handle is not None and not self.ended

    @property
    def ended(self) -> bool:
        """Whether it was started, and none of its processes is alive."""
        return self.handle is not None and isinstance(self.submitter.poll(self.handle), Ended)

    def end(self) -> None:
        """End it and all that it started."""
        if self.handle:
            self.submitter.end(self.handle)


def end_earlier(submitter: Submitter, handle: Handle, what: str) -> bool:
    """End what is left of an earlier driver; return whether anything was alive.

    :raises FenceError: if it does not end.
    """
    for looked in range(_LOOKS + 1):
        if not isinstance(submitter.poll(handle), Running):
            return looked > 0
        if looked < _LOOKS:
            submitter.end(handle)
    raise FenceError(
        f"{handle} of {what} does not end",
        remedy="look what it waits for (a dead mount?), end it, and clear the task",
    )


class DriverRun(Protocol):
    """Runs a task's drivers one after another, and can end the running one."""

    @property
    def lives(self) -> bool:
        """Whether a process of the driver may be alive."""

    @property
    def is_remote(self) -> bool:
        """Whether the driver runs elsewhere, with files of its own, and outlives the task."""

    @property
    def longest_end_s(self) -> float:
        """The most seconds that it takes to end a driver."""

    @property
    def deploy_mode(self) -> str | None:
        """Spark's deploy mode; ``None`` for Spark's default."""

    def read_site(self) -> Callable[[], Site]:
        """Begin to read the configuration of the drivers' site; return what waits for it."""

    def refuse(self, job: SparkJob, site: Site) -> None:
        """Refuse a job that cannot be made safe where its driver would run.

        :raises ConfigurationError: naming the argument or setting.
        """

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write a driver's input for the time of a block, or until its task is waited for.

        :param without: prefixes of the site's options that do not go with the attempt.
        """

    def forget(self, *identities: str) -> None:
        """Remove the reports of a task run's drivers, and what is left of their input.

        :param identities: of the task run, none of whose drivers is awaited.
        """

    def driver(self, submission: Submission) -> Driver:
        """Return the driver that runs a submission, before it is started.

        :raises TaskEndedError: if the task was asked to stop before.
        """

    def running(self, handle: Handle, event: DriverEvent) -> Driver:
        """Return the driver that an earlier process of the task has started.

        :param event: of the process that has watched it.
        """

    def submitter(self, handle: Handle) -> Submitter:
        """Return what follows and ends a driver of an earlier process."""

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> Mapping[str, Sequence[Handle]]:
        """Revoke all visible drivers of a task run that are not recorded.

        :param run: the beginning of the run's identities.
        :param lease_ttl_s: of a lease on which their commits may depend.
        :return: those whose ends are to be proven, by identity.
        """

    def end(self) -> None:
        """End the driver."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The lease under which an attempt runs, if there is one.

    As a guard it stops a driver that lost its lease and whose conflicts Hudi does not find. Stopped or
    not, such a driver begins no commit once its lease may be over.

    :param is_fenced: whether Hudi's own check would find a conflict, so that the lease only saves
        time.
    :param loss: the error that ended the lease before this process took it over.
    :param lease_ttl_s: for how long each extension of the lease lasts; ``None`` if Hudi's check finds
        conflicts.
    :param release: releases the lease ahead of the attempt's settlement; it may be called again.
    """

    scope: Scope | None = None
    order_token: str = ""
    is_fenced: bool = True
    keeper: Keeper | None = None
    loss: LeaseLostError | None = None
    lease_ttl_s: float | None = None
    release: Callable[[], object] = lambda: None

    @property
    def lost(self) -> LeaseLostError | None:
        """The error that ended the lease, if it is lost."""
        return self.loss or (self.keeper.lost if self.keeper else None)

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if its lease is lost."""
        lost = self.lost
        return None if self.is_fenced or lost is None else Stop(Outcome.KILLED, lost.message)

    @property
    def is_shared(self) -> bool:
        """Whether it admits the attempt beside other writers."""
        return self.scope is not None and self.scope.mode is Mode.SHARED

    def refuse_if_lost(self) -> None:
        """Raise if the lease was lost and nothing else keeps other writers away.

        :raises LeaseLostError: then.
        """
        if self.lost and not self.is_fenced:
            raise self.lost

    def extend(self, driver: Driver) -> None:
        """Have a driver live for as long as the lease is extended, if it depends on that."""
        if self.keeper:
            driver.submitter.feed(self.keeper)

    def announce(self, instant: str) -> None:
        """Tell the table's other tasks which write runs under the lease.

        :raises OccError: if the lease is lost, or its service does not answer.
        """
        if self.keeper:
            self.keeper.announce((instant,))

    def announced(self) -> Mapping[str, Owner]:
        """Return the owners of the writes that other tasks announced under their leases.

        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        return self.keeper.announced(self.scope.table) if self.keeper and self.scope else {}

    def outside(self, partitions: Sequence[str]) -> list[str]:
        """Return the partitions that the scope does not cover."""
        if self.scope is None or self.scope.partitions is None:
            return []
        held = self.scope
        return [path for path in partitions if not held.covers(Scope.of(held.table, [path]))]

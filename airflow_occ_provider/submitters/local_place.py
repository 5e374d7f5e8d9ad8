"""A place of drivers on this host, by ``spark-submit`` in client mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import FenceError, NotSubmittedError
from airflow_occ_provider.submitters.launcher import Launcher, SubmitCommand
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.processes import DriverProcess, Flag, end_processes, processes_of


class LocalPlace(Place):
    """Runs a driver as a process of this host, which ends with its task's process.

    :param launch: ``None`` where drivers were started by other processes.
    """

    name = "local"
    site = None
    waits = True
    is_local = True
    period_s = 0.0
    request_s = 0.0

    def __init__(self, launch: SubmitCommand | None = None) -> None:
        self._launch, self._launcher = launch, Launcher()
        self._is_ended, self._is_there, self._has_returned = Flag(), Flag(), Flag()

    def start(self, runner: str, arguments: Sequence[str]) -> None:  # noqa: ARG002
        """Run ``spark-submit``, and end what it leaves behind.

        :param runner: it is on the command line.
        :param arguments: they are there too.
        :raises NotSubmittedError: if it ends before a driver of it was there.
        :raises FenceError: if something that it started does not end.
        """
        if self._launch is None:
            raise AssertionError("there is nothing to submit")
        try:
            code = self._launcher.run(self._launch.command(), self._launch.environment, self._is_ended)
        finally:
            self._has_returned.set()
        if not self._is_there.is_set():
            raise NotSubmittedError(
                f"spark-submit ended with exit code {code} before the job began",
                remedy="correct what spark-submit says; nothing was run",
            )
        if self._launcher.exit_code is None:
            raise FenceError(
                "something that the driver started does not end",
                remedy="look in the worker's processes what it waits for, and end it",
            )

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Return the process of ``spark-submit``, and what finds it again."""
        process = self._launcher.process
        if self._launch is None or process is None:
            raise AssertionError("nothing was submitted")
        self._is_there.set()
        return str(process), {**process.facts(), "identity": self._identity}

    @property
    def _identity(self) -> str:
        return self._launch.environment[IDENTITY_VARIABLE] if self._launch else ""

    def state(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver, or anything that it started, is alive on this host."""
        process = DriverProcess.of_facts(handle.facts)
        if process == self._launcher.process:
            code = self._launcher.exit_code
            if code is not None:
                return Ended(code)
            if not self._has_returned.is_set():
                return Running()
        if not process.is_here:
            return Unseen(f"{handle} is none of this account's processes on this host")
        return Running() if processes_of(handle.facts["identity"], process.session) else Ended(None)

    def kill(self, handle: Handle | None) -> None:
        """End the driver and all that it started, also in other sessions."""
        self._is_ended.set()
        process = DriverProcess.of_facts(handle.facts) if handle else self._launcher.process
        if process and process.is_here:
            identity = handle.facts["identity"] if handle else self._identity
            end_processes(identity, process.session)

    def output(self, wait_s: float) -> list[str]:
        """Return the lines that were printed since the last call."""
        return self._launcher.output.take(wait_s)

    def skip_output(self) -> None:
        """Leave lines out rather than hold back the job."""
        self._launcher.output.allow_skipping()


def end_processes_of(run: str) -> None:
    """End the processes of this host that belong to a task run.

    :param run: the beginning of the run's identities.
    :raises FenceError: if one does not end.
    """
    alive = end_processes(run)
    if alive:
        raise FenceError(
            f"processes {', '.join(map(str, alive))} of an earlier try do not end",
            remedy="look what they wait for (a dead mount?), end them, and clear the task",
        )

"""What is the same in all clusters to which ``spark-submit`` submits drivers."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import NotSubmittedError, SubmitterUnreachableError
from airflow_occ_provider.submitters.launcher import Launcher, SubmitCommand
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.processes import Flag

_LOOK_S = 0.2
_PERIOD_S = 10.0


class ClusterPlace(Place):
    """Starts a driver by a ``spark-submit`` that returns once the cluster has it.

    Nothing else of an attempt is on its command line than the runner's file and the attempt's folder.

    :param launch: ``None`` where drivers were started by other processes.
    """

    site = None

    def __init__(self, launch: SubmitCommand | None = None) -> None:
        self._launch = launch
        self._launcher, self._is_ended, self._is_there = Launcher(), Flag(), Flag()
        self._folder = ""

    @abstractmethod
    def conf(self, folder: str) -> Mapping[str, str]:
        """Return the settings of Spark for the submission, beside the task's.

        :param folder: URL of the attempt's folder, by which the cluster finds what was submitted.
        """

    @abstractmethod
    def failure(self, folder: str) -> str:
        """Return why no driver of a submission will come; empty while one may.

        :raises SubmitterUnreachableError: if the cluster does not answer.
        """

    @abstractmethod
    def end(self, handle: Handle | None, folder: str) -> None:
        """End a driver, or what was submitted with a folder.

        :param handle: of the driver; ``None`` if none has said hello.
        :raises SubmitterUnreachableError: if the cluster does not answer.
        """

    def start(self, runner: str, arguments: Sequence[str]) -> None:  # noqa: ARG002
        """Run ``spark-submit``, and wait until a driver is there, or none will come.

        :param runner: the launch has its own copy.
        :param arguments: the URL of the attempt's folder.
        :raises NotSubmittedError: if ``spark-submit`` fails, or the cluster ends what was submitted
            before a driver of it was there.
        """
        if self._launch is None:
            raise AssertionError("there is nothing to submit")
        folder = self._folder = arguments[0]
        command = self._launch.command(self.conf(folder))
        environment = {**self._launch.environment, IDENTITY_VARIABLE: folder}
        limit = self._launch.start_limit.on_worker
        code = self._launcher.run(command, environment, self._is_ended, limit)
        if code:
            raise NotSubmittedError(
                f"spark-submit failed with exit code {code}",
                remedy="correct what spark-submit says; nothing was run",
            )
        self._wait_for_driver(folder)

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, object]]:
        """Note that a driver is there; see ``Place.identify``."""
        self._is_there.set()
        return super().identify(hello)

    def kill(self, handle: Handle | None) -> None:
        """End ``spark-submit``, and the driver or what was submitted."""
        self._is_ended.set()
        if handle or self._folder:
            with suppress(SubmitterUnreachableError):  # the folder ends the driver in any case
                self.end(handle, self._folder)

    def output(self, wait_s: float) -> list[str]:
        """Return the lines of ``spark-submit``; the cluster has those of the driver."""
        return self._launcher.output.take(wait_s)

    def _wait_for_driver(self, folder: str) -> None:
        """Wait until a driver is there.

        :raises NotSubmittedError: if none will come.
        """
        asked_s = time.monotonic()
        while not (self._is_there.is_set() or self._is_ended.is_set()):
            time.sleep(_LOOK_S)
            if time.monotonic() - asked_s < _PERIOD_S:
                continue
            asked_s = time.monotonic()
            with suppress(SubmitterUnreachableError):  # the folder shows a driver in any case
                if why := self.failure(folder):
                    remedy = "correct what the cluster says; nothing was run"
                    raise NotSubmittedError(f"no driver came: {why}", remedy=remedy)

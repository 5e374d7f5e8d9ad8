"""Where a driver runs: what starts it there, and what else is known of it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_occ_provider.attempts.site import ELSEWHERE, Site
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.attempt import REQUEST_S
from airflow_occ_provider.driver.contract import Hello


class Place(ABC):
    """Starts drivers, and where it can, tells whether they run and ends them.

    A driver and its attempt communicate by their folder alone, so ``start`` is all that a place needs.
    What else it knows makes an end known sooner.

    :cvar name: under which the journal records its drivers: that of its entry point.
    :cvar site: the configuration of Spark there; ``None`` if it is this host's, with which
        ``spark-submit`` submits.
    :cvar waits: whether ``start`` returns only once the driver has ended. Such a driver ends with the
        process that has started it.
    :cvar is_local: whether drivers are processes of this host alone, with a folder of its disk. Then a
        look costs nothing, the end of all processes is awaited, and a driver is killed at once.
    :cvar period_s: seconds between two questions for a driver's state.
    :cvar request_s: seconds for which a request of a driver may be under way after its end there.
    """

    name: ClassVar[str]
    site: ClassVar[Site | None] = ELSEWHERE
    waits: bool = False
    is_local: ClassVar[bool] = False
    period_s: float = 15.0
    request_s: float = REQUEST_S

    def refuse(self, site: Site) -> None:  # noqa: B027 - most places run any job
        """Refuse what cannot be made safe there, before the task is queued.

        :param site: the configuration of Spark that the drivers would read.
        :raises ConfigurationError: naming the argument or setting.
        """

    @abstractmethod
    def start(self, runner: str, arguments: Sequence[str]) -> None:
        """Have a driver started that runs a file with some arguments.

        It is called in a thread of its own, and may go on until the driver is there, or has ended. If it
        returns, and no driver comes, the task waits until its ``start_timeout`` is over.

        :param runner: path or URL of a PySpark file, as the driver reads it.
        :param arguments: the first is the URL of the attempt's folder, by which
            ``storage.attempt_folder.identity_of`` tells the task run, as ``forget`` gets it.
        :raises NotSubmittedError: if no driver will come; any other error counts as one.
        """

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, Any]]:
        """Return a driver's name, and the facts by which the place finds it.

        ``start`` may still be at work: what is returned must be known by then, or be waited for.

        :param hello: of a driver that waits. It is what the driver says, and may be of any content.
        :return: the name for people, and JSON values without secrets; a ``url`` among them is that of a
            page about the driver, to which the task gets a link.
        """
        return f"driver {hello.nonce}", {}

    def state(self, handle: Handle) -> Running | Ended | Unseen:  # noqa: ARG002
        """Return what the place proves: an end only if no process is alive.

        :raises SubmitterUnreachableError: if what knows does not answer.
        """
        return Unseen("its place does not tell")

    def kill(self, handle: Handle | None) -> None:  # noqa: B027 - an operator may know of no end
        """Ask for the end of a driver, or of what ``start`` has begun.

        It is called in a thread of its own, which is waited for for a few seconds, and raises nothing:
        the folder ends a driver in any case.

        :param handle: of the driver, which another process may have started; ``None`` before there is
            one.
        """

    def output(self, wait_s: float) -> list[str]:
        """Return the lines that were printed since the last call.

        :param wait_s: how long to wait if there are none.
        """
        time.sleep(wait_s)
        return []

    def skip_output(self) -> None:  # noqa: B027 - most places have few lines
        """Leave lines out rather than hold back a job that prints too much."""

    def last_lines(self, handle: Handle) -> list[str]:  # noqa: ARG002
        """Return lines for people about a driver that failed, such as its log's end.

        It is called once, at its end, and raises nothing.
        """
        return []

    def forget(self, identity: str) -> None:  # noqa: B027 - most places keep nothing
        """Remove what is left of a task run's drivers, all of which have ended.

        It raises nothing.
        """


class StartedPlace(Place):
    """Follows drivers that an operator has started in another process.

    Nothing here knows what was started: only the folder ends the driver.
    """

    name = "via"

    def start(self, runner: str, arguments: Sequence[str]) -> None:
        """Start nothing: that was done in another process."""
        raise NotImplementedError

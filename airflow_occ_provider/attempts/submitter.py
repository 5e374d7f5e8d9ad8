"""The protocol between an attempt and the submitter that runs its driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_occ_provider.attempts.log.facts import Entry

SILENCE_FACT = "silence_s"
"""A fact of a handle: the seconds of silence that prove the end; no heartbeat does so before."""

URL_FACT = "url"
"""A fact of a handle: the address of a page about the driver, for people."""

LEASE_TTL_FACT = "lease_ttl_s"
"""A fact of a handle: for how long each extension of the lease lasts that its commits depend on."""


@dataclass(frozen=True, slots=True)
class Handle:
    """What a submitter needs to find a driver again, also from another process.

    :param submitter: name of the submitter.
    :param name: the driver for people, such as ``process 42 on worker-1``.
    :param facts: what the submitter needs to find it, as JSON values without secrets.
    """

    submitter: str
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**self.facts, "submitter": self.submitter, "name": self.name}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Handle:
        """Read ``to_json`` back."""
        facts = dict(values)
        return cls(facts.pop("submitter"), facts.pop("name"), facts)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Running:
    """The driver, or something that it started, may still be alive."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """It is unknown whether the driver is alive, for example on another host.

    :param reason: for people.
    :param is_away: whether that is because the service that knows does not answer. A submitter that
        has had no answer for too long says no more that it is away.
    """

    reason: str
    is_away: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """No process of the driver is alive, so it can write no more.

    :param exit_code: the driver's, negative for a signal; ``None`` if it is not known.
    :param log_is_whole: whether nothing of its log is missing, as far as this process has read it.
    """

    exit_code: int | None
    log_is_whole: bool = True


class Submitter(Protocol):
    """Starts a driver, follows it and ends it.

    Its drivers report facts apart from what they print, while they run. If only a lease keeps other
    writers away, no commit of theirs begins once the lease may be over.
    """

    @property
    def name(self) -> str:
        """The name under which the journal records its handles."""

    @property
    def outlives_task(self) -> bool:
        """Whether its driver runs on when the task's process dies."""

    def submit(
        self,
        started: Callable[[Handle], None],
        echo: Callable[[str], object] = lambda _: None,
    ) -> Handle:
        """Start the driver and return its handle.

        :param started: records the handle. The driver does nothing before this call returns, and never
            starts if it raises.
        :param echo: takes each line that is printed meanwhile.
        """

    def stand_by(self, echo: Callable[[str], object]) -> bool:
        """Have the driver started once, which does nothing before ``submit``.

        It is called again and again.

        :param echo: takes some of the lines that have been printed since the last call.
        :return: whether there was any.
        :raises NotSubmittedError: if the start has failed, or the task was asked to stop.
        """

    def offer(self, payload: bytes, lease_ttl_s: float | None) -> None:
        """Take what the driver on standby is to run, as it is decided now.

        :param lease_ttl_s: for how long each extension of the lease lasts on which its commits depend.
        :raises NotSubmittedError: if the driver has ended, or the task was asked to stop.
        """

    def give_up(self) -> None:
        """End the driver on standby."""

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver, or anything that it started, is alive."""

    def read(self, handle: Handle, wait_s: float) -> Sequence[Entry] | None:
        """Return the driver's facts, and the lines of its log, since the last call.

        :param wait_s: seconds to wait if there are none.
        :return: ``None`` once the driver has ended and its log is read.
        :raises FenceError: if something that the driver started does not end.
        :raises SubmitterUnreachableError: if the service that knows has not answered for too long.
        """

    def end(self, handle: Handle) -> None:
        """Ask the driver to end, and wait a little for it; ``poll`` proves it."""

    def feed(self, extensions: Extensions) -> None:
        """Take the extensions of the drivers' lease.

        Without them no driver is answered whose commits depend on the lease.
        """


class Extensions(Protocol):
    """The extensions of a lease, by the process that makes them."""

    @property
    def extended_s(self) -> float:
        """The monotonic time at which the last extension began that succeeded."""

    def extend_soon(self) -> None:
        """Extend the lease without waiting for the next regular time; returns at once."""

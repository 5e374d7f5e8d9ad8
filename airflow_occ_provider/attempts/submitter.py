"""The protocol between an attempt and the submitter that runs its driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

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
    def from_json(cls, kept: Mapping[str, Any]) -> Handle:
        """Read ``to_json`` back.

        A record of the first release contains a process of ``spark-submit``.
        """
        facts = dict(kept)
        submitter = facts.pop("submitter", "spark_submit")
        name = facts.pop("name", None) or f"process {kept['pid']} on {kept['host']}"
        return cls(submitter, name, facts)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Traits:
    """The abilities of a submitter; an attempt branches on these, not on its type.

    :param logs: whether the driver's log is read while it runs, after its end, or not at all.
    :param start: how a driver that was submitted but not recorded is excluded: ``gated`` if it
        starts only once it is recorded, ``findable`` if a later try finds it by its key.
    :param outlives_task: whether the driver runs on when the task's process dies.
    :param end_is_final: whether an observed end proves that the driver can write no more. Asked after
        the end: a submitter may have seen one that proves less than others.
    :param exit_code: whether the driver's own exit code is known after its end.
    :param proves_ends: whether each end is final if ``end_is_final`` is true before it.
    :param facts_apart: whether its runner's facts come apart from the log, which then holds none.
    :param guards_commits: whether a driver begins no commit once its lease may be over, if only the
        lease keeps other writers away.
    """

    logs: Literal["live", "after", "none"]
    start: Literal["gated", "findable", "neither"]
    outlives_task: bool
    end_is_final: bool
    exit_code: bool
    proves_ends: bool = True
    facts_apart: bool = False
    guards_commits: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """The driver, or something that it started, may still be alive.

    :param is_waiting: whether the driver's service says that no process of it has begun yet.
    """

    is_waiting: bool = field(default=False, compare=False)


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
    """No process of the driver is alive.

    :param exit_code: the driver's, negative for a signal; ``None`` if it is not known.
    :param log_is_whole: whether nothing of its log is missing, as far as this process has read it.
    """

    exit_code: int | None
    log_is_whole: bool = True


class Submitter(Protocol):
    """Starts a driver, follows it and ends it."""

    @property
    def name(self) -> str:
        """The name under which the journal records its handles."""

    @property
    def traits(self) -> Traits:
        """Its abilities; those about an end may change when it has seen one."""

    def submit(self, key: str, started: Callable[[Handle], None]) -> Handle:
        """Start the driver and return its handle.

        :param key: identity of the task run, by which a later try finds the driver.
        :param started: records the handle. If ``traits.start`` is ``gated``, the driver does nothing
            before this call returns, and never starts if it raises.
        """

    def find(self, key: str) -> Handle | None:
        """Return the living driver of a task run, if it is visible from here."""

    def poll(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver, or anything that it started, is alive."""

    def read(self, handle: Handle, wait_s: float) -> Sequence[Entry] | None:
        """Return the lines of the driver's log since the last call.

        If its facts come apart from the log, they are returned as well.

        :param wait_s: seconds to wait if there are none.
        :return: ``None`` once the driver has ended and its log is read.
        :raises SubmitterUnreachableError: if the service that knows has not answered for too long.
        """

    def end(self, handle: Handle) -> None:
        """Ask the driver to end, and wait a little for it; ``poll`` proves it."""


class Extensions(Protocol):
    """The extensions of a lease, by the process that makes them."""

    @property
    def extended_s(self) -> float:
        """The monotonic time at which the last extension began that succeeded."""

    def extend_soon(self) -> None:
        """Extend the lease without waiting for the next regular time; returns at once."""


@runtime_checkable
class LeasedSubmitter(Protocol):
    """A submitter that lets its drivers live for as long as their lease is extended."""

    def feed(self, extensions: Extensions) -> None:
        """Take the extensions of the drivers' lease."""

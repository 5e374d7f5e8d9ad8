"""The attempt's half of the contract with a driver of this host."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from airflow_occ_provider.attempts.log.facts import Fact, parse_fact
from airflow_occ_provider.attempts.submitter import Extensions
from airflow_occ_provider.driver.attempt import (
    CompareAndSet,
    View,
    answered_tick,
    next_grant_step,
)
from airflow_occ_provider.driver.contract import (
    FACTS,
    GRANT,
    HUDI_FACTS,
    LIFE,
    PAYLOAD,
    Grant,
    answer_to_bytes,
    digest,
)
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.submitters.folder_driver import Offer, hellos_in

_MOST = 1 << 20


@dataclass(slots=True)
class PrivateFolder:
    """Grants the driver of a private folder, answers its ticks and reads its facts.

    The journal has recorded the driver's process before its first line, and no other process of the task
    reaches the folder: so the grant is recorded nowhere else. A second driver of the attempt leaves.

    :param offer: the work, with a folder of this host.
    """

    offer: Offer
    is_granted: bool = field(default=False, init=False)
    _facts: _Facts = field(init=False)
    _unanswered: dict[int, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._facts = _Facts(Path(self.offer.folder.url))

    def new(self, extensions: Extensions | None = None) -> list[Fact]:
        """Return the facts since the last call; grant and answer the driver.

        :param extensions: of the lease, without which no driver is answered whose commits depend on it.
        """
        facts = []
        for fact in self._facts.new():
            if fact["fact"] == "tick":
                self._unanswered[int(fact.get("number", 0))] = time.monotonic()
            else:
                facts.append(fact)
        with suppress(TableUnreadableError):  # of a full disk: the next call tries again
            if self.is_granted:
                self._answer(extensions)
            else:
                self._grant()
        return facts

    def close(self) -> None:
        """Close the files."""
        self._facts.close()

    def _grant(self) -> None:
        folder, payload = self.offer.folder, self.offer.payload
        view = View(hellos=hellos_in(folder, folder.entries()))
        match next_grant_step(view, digest(payload)):
            case CompareAndSet(Grant() as grant):
                folder.write(PAYLOAD, payload)
                folder.write(GRANT, grant.to_bytes())
                self.is_granted = True

    def _answer(self, extensions: Extensions | None) -> None:
        until_s = extensions.extended_s if extensions else float("-inf")
        is_leased = self.offer.lease_ttl_s is not None
        tick, unanswered = answered_tick(self._unanswered, until_s if is_leased else float("inf"))
        if tick is not None:
            self.offer.folder.write(LIFE, answer_to_bytes(tick))
            self._unanswered = unanswered
        if self._unanswered and extensions:
            extensions.extend_soon()


@dataclass(slots=True)
class _Facts:
    """The facts that a runner, and Hudi's loggers in its JVM, write to a folder.

    Each process has a file of its own: no line is torn by another's. The job's output may contain
    anything, and none of it is a fact.
    """

    folder: Path
    _runner: _Tail = field(init=False)
    _hudi: _Tail = field(init=False)

    def __post_init__(self) -> None:
        self._runner, self._hudi = (_Tail(self.folder / name) for name in (FACTS, HUDI_FACTS))

    def new(self) -> list[Fact]:
        """Return the facts since the last call.

        What the runner reports, such as the job's end, follows what Hudi had logged before: its file is
        read first, so that nothing of Hudi's that precedes it is missing.
        """
        of_runner = self._runner.new_lines()
        lines = [*self._hudi.new_lines(), *of_runner]
        return [fact for line in lines if (fact := parse_fact(line)) is not None]

    def close(self) -> None:
        """Close the files."""
        for tail in (self._runner, self._hudi):
            tail.close()


@dataclass(slots=True)
class _Tail:
    """The end of a file that grows. It is kept open: old files of a host may be removed.

    :param path: of the file.
    """

    path: Path
    _descriptor: int | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)
    _part: bytes = field(default=b"", init=False)

    def new_lines(self) -> list[str]:
        """Return the whole lines since the last call."""
        if self._is_closed:
            return []
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY)
            except FileNotFoundError:
                return []
        parts = iter(partial(os.read, self._descriptor, _MOST), b"")
        *whole, self._part = (self._part + b"".join(parts)).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        """Read nothing more."""
        if self._descriptor is not None and not self._is_closed:
            os.close(self._descriptor)
        self._is_closed = True

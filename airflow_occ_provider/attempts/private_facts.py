"""The facts of a driver of this host, in files of its private folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from airflow_occ_provider.attempts.log.facts import Fact, parse_fact
from airflow_occ_provider.in_driver.run_job import FACTS, HUDI

_MOST = 1 << 20


@dataclass(slots=True)
class PrivateFacts:
    """The facts that a runner, and Hudi's loggers in its JVM, write to a folder.

    Each process has a file of its own: no line is torn by another's. The job's output may contain
    anything, and none of it is a fact.

    :param folder: path, with both files. No folder has no facts.
    """

    folder: str
    _runner: _Tail = field(init=False)
    _hudi: _Tail = field(init=False)

    def __post_init__(self) -> None:
        self._runner, self._hudi = (_Tail(Path(self.folder, name)) for name in (FACTS, HUDI))

    def new(self) -> list[Fact]:
        """Return the facts since the last call.

        What the runner reports, such as the job's end, follows what Hudi had logged before: its file is
        read first, so that nothing of Hudi's that precedes it is missing.
        """
        if not self.folder:
            return []
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
            self._descriptor = os.open(self.path, os.O_RDONLY)
        parts = iter(partial(os.read, self._descriptor, _MOST), b"")
        *whole, self._part = (self._part + b"".join(parts)).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        """Read nothing more."""
        if self._descriptor is not None and not self._is_closed:
            os.close(self._descriptor)
        self._is_closed = True

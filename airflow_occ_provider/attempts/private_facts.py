"""The facts of a driver of this host, in files of its private folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from airflow_occ_provider.attempts.log.facts import Fact, parse_fact
from airflow_occ_provider.in_driver.run_job import FACTS, HUDI


@dataclass(slots=True)
class PrivateFacts:
    """The facts that a runner, and Hudi's loggers in its JVM, write to a folder.

    Each process has a file of its own: no line is torn by another's. The job's output may contain
    anything, and none of it is a fact.

    :param folder: path; the files may be missing. No folder has no facts.
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


@dataclass(slots=True)
class _Tail:
    """The end of a file that grows.

    :param path: of the file, which may be missing yet.
    """

    path: Path
    _position: int = field(default=0, init=False)
    _part: bytes = field(default=b"", init=False)

    def new_lines(self) -> list[str]:
        """Return the whole lines since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return []
        self._position += len(content)
        *whole, self._part = (self._part + content).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

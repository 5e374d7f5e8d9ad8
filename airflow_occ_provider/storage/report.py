"""The report of a remote driver, in a file that it and the worker reach.

The driver writes it (``in_driver/report.py``) through Hadoop's file system; here it is read through
fsspec. The files of one task run lie in one folder:
``<parent of the table>/.airflow_occ/<table>/<identity>/``.
"""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.errors import ConfigurationError, TableUnreadableError
from airflow_occ_provider.storage.address import open_file_system, parse_table_path
from airflow_occ_provider.storage.folder import TableFolder

HIDDEN = ".airflow_occ"
_TIMEOUT_S = 60.0
_LEFT_OUT = 'airflow_occ_provider: {"fact": "left_out", '
_PRIVATE = 0o600


@dataclass(slots=True)
class Report:
    """The report of one attempt.

    :param url: of the file, as Hadoop spells it.
    """

    url: str
    timeout_s: float = _TIMEOUT_S
    file_system: Any = None
    missed: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)

    def lines(self) -> list[str]:
        """Return the whole lines since the last call; none if there is no file yet.

        ``missed`` counts the lines that a long report no longer has.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        folder, name = posixpath.split(self.url)
        content = _opened(folder, self.timeout_s, self.file_system).read(name) or b""
        *whole, _ = content.split(b"\n")
        found, number = [], 0
        for line in (f"{one.decode(errors='replace')}\n" for one in whole):
            left_out = _left_out(line)
            if left_out:
                self.missed += max(0, number + left_out - max(self._seen, number))
                number += left_out
                continue
            number += 1
            if number > self._seen:
                found.append(line)
        self._seen = max(self._seen, number)
        return found


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a task run: its drivers' input and reports.

    :param url: of the folder, as Hadoop spells it.
    :param mode: permissions of its files on a local disk; an object store has its own.
    """

    url: str
    timeout_s: float = _TIMEOUT_S
    file_system: Any = None
    mode: int = _PRIVATE

    @classmethod
    def of(cls, table: str, identity: str, place: str | None = None) -> RunFolder:
        """Return the folder of a task run.

        :param table: base path of the table.
        :param place: where the folders are; by default beside the table. Hudi takes a table for
            created if there is a ``.hoodie``, so nothing may be written there before Hudi does.
        :raises ConfigurationError: if the place is no path, or the table is at the root of its storage.
        """
        if place:
            return cls(f"{_canonical_place(place)}/{identity}")
        _, path = parse_table_path(table)
        parent, name = posixpath.split(path)
        if not name or parent in ("", "/") or parent.endswith(":"):
            raise ConfigurationError(
                "report_path",
                f"the table {table!r} is at the root of its storage: there is no place beside it",
                remedy="give a folder that the worker and the driver can write",
            )
        return cls(f"{parent}/{HIDDEN}/{name}/{identity}")

    def report(self, attempt: str) -> str:
        """Return the URL of an attempt's report."""
        return f"{self.url}/{attempt}.jsonl"

    def put(self, name: str, content: bytes) -> str:
        """Write a file and return its URL.

        :raises TableUnreadableError: if the storage refuses it.
        """
        folder = _opened(self.url, self.timeout_s, self.file_system)

        def write(path: str) -> None:
            folder.file_system.makedirs(posixpath.dirname(path), exist_ok=True)
            if folder.scheme == "file":
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, self.mode))
            folder.file_system.pipe_file(path, content)

        folder.ask(name, write)
        return f"{self.url}/{name}"

    def remove(self, name: str = "") -> bool:
        """Remove a file or a folder with all in it; what does not exist is no error.

        A storage that cannot be reached keeps it: then the answer is ``False``.
        """
        folder = _opened(self.url, self.timeout_s, self.file_system)
        with suppress(TableUnreadableError):
            folder.ask(name, lambda path: folder.file_system.rm(path, recursive=True))
            return True
        return False


def _canonical_place(place: str) -> str:
    try:
        return parse_table_path(place)[1]
    except ConfigurationError as error:
        raise ConfigurationError(
            "report_path", f"{place!r} is not a path", remedy="give a folder, such as s3a://lake/scratch"
        ) from error


def open_report(url: str) -> Report:
    """Return the report at a URL."""
    return Report(url)


def _opened(url: str, timeout_s: float, file_system: Any) -> TableFolder:
    scheme, path = parse_table_path(url)
    return TableFolder(scheme, path, file_system or open_file_system(scheme, path), timeout_s)


def _left_out(line: str) -> int:
    """Return how many lines are missing at a line of the report."""
    if not line.startswith(_LEFT_OUT):
        return 0
    digits = line.rpartition(":")[2].strip(" }\n")
    return int(digits) if digits.isdigit() else 0

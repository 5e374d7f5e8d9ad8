"""The digest of a task run's work, the same in each process."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from airflow_occ_provider.attempts.submission import local_path
from airflow_occ_provider.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of the work.

    One of the DAG bundle counts by its path there, another by its name and content.

    :param path: as the user gave it; on this machine, or a URL.
    """

    path: str


def work_digest(words: Iterable[object], folders: Sequence[str] = ()) -> str:
    """Return a digest of the rendered work of a task run.

    :param words: its parts, in their order: text, files and values that can be pickled.
    :param folders: paths of the DAG bundle on this machine, which its versions do not share.
    :raises ConfigurationError: for a value that has no canonical form.
    """
    try:
        return hashlib.sha256(canonical(tuple(words), folders)).hexdigest()[:16]
    except Exception as error:
        raise ConfigurationError(
            "application_args",
            f"they have a value that does not go to the driver: {error}",
            remedy="give text and numbers",
        ) from error


def canonical(value: object, folders: Sequence[str] = ()) -> bytes:
    """Return the same bytes for equal values, in each process.

    A plain pickle differs with the order of a set, and with whether equal texts are one object.

    :param folders: paths that are left out where text begins with them, or has them after a separator.
    :raises Exception: for a value that cannot be pickled, or contains itself.
    """
    written = io.BytesIO()
    _CanonicalPickler(written, folders).dump(value)
    return written.getvalue()


class _CanonicalPickler(pickle.Pickler):
    """Writes values by what they are equal by; what it writes is never read."""

    def __init__(self, file: io.BytesIO, folders: Sequence[str]) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # without a memo, which shows whether equal parts are one object
        self._folders = folders

    def persistent_id(self, value: Any) -> Any:
        """Return the canonical form of a value that pickles by order, identity or place."""
        kind = type(value)
        if kind is str:
            shortened = self._without_folders(value)
            return None if shortened == value else shortened
        if kind in (set, frozenset):
            return kind.__name__, sorted(canonical(item, self._folders) for item in value)
        if kind is dict:
            keys = {canonical(key, self._folders): key for key in value}
            return "dict", [(written, value[keys[written]]) for written in sorted(keys)]
        if kind is JobFile:
            return "file", *self._identity(value.path)
        return ("path", str(value)) if isinstance(value, PurePath) else None

    def _without_folders(self, text: str) -> str:
        for folder in self._folders:
            if folder.rstrip("/"):
                text = re.sub(rf"(?<![\w.-]){re.escape(folder.rstrip('/'))}(?:/|(?![\w.-]))", "", text)
        return text

    def _identity(self, path: str) -> tuple[str, ...]:
        shortened = self._without_folders(path)
        if shortened != path:
            return (shortened,)
        try:
            with Path(local_path(path) or "").open("rb") as file:
                return Path(path).name, hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:  # elsewhere, or missing, which is refused before a driver starts
            return (path,)

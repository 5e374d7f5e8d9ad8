"""The files of an attempt, as its submitter needs them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol


class File(Protocol):
    """What the storage says of a file."""

    @property
    def written_ms(self) -> int:
        """Epoch milliseconds of its last write, by the storage's clock."""

    @property
    def version(self) -> Hashable:
        """A value that differs once the file was written again."""


class Folder(Protocol):
    """The files of one attempt, such as ``storage.attempt_folder.AttemptFolder``."""

    @property
    def url(self) -> str:
        """The address of the folder, as Hadoop spells it."""

    @property
    def stale_s(self) -> float:
        """How much older than its call a listing may be, in seconds."""

    def entries(self) -> Mapping[str, File]:
        """Return what the storage says of each file."""

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Return a file's content, from a byte on; ``None`` if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""

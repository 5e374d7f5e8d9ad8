"""The protocol of the object that holds a ledger: read, and compare-and-set."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self


class SupersededError(Exception):
    """The object has another tag by now: nothing was written."""


class UnansweredError(Exception):
    """The storage gave no answer; a write may have been carried out."""


class ObjectContent(NamedTuple):
    """What was read.

    :param data: the object's bytes; empty if there is no object.
    :param tag: changes with the object; empty if there is none.
    """

    data: bytes
    tag: str


class SharedObject(Protocol):
    """One object, which clients replace by compare-and-set.

    Every call ends in a bounded time. It raises ``ConfigurationError`` if the storage refuses the
    credentials, or cannot replace on a condition.
    """

    place: str

    def read(self, tag: str) -> ObjectContent | None:
        """Return the object, or ``None`` if it still has a known tag.

        :param tag: one that was seen; empty for none.
        :raises UnansweredError: if the storage does not answer.
        """

    def write(self, data: bytes, tag: str) -> str:
        """Replace the object, and return its new tag.

        :param tag: the one that it must have; empty if there must be no object.
        :raises SupersededError: if it has another one.
        :raises UnansweredError: if the storage does not answer: it may have been carried out.
        """


class PlacedObject(SharedObject, Protocol):
    """A shared object in a folder, in which a client may make and delete others."""

    def beside(self, name: str) -> Self:
        """Return another object in the same folder."""

    def delete(self) -> None:
        """Delete the object, if it exists.

        :raises UnansweredError: if the storage does not answer.
        """

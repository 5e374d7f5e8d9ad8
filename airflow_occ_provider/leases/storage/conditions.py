"""The check that a storage carries out writes on a condition exactly."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError, OccError
from airflow_occ_provider.leases.storage.shared_object import (
    PlacedObject,
    SharedObject,
    SupersededError,
    UnansweredError,
)

_RACES, _RACERS = 64, 16
_TRIES = 3
_INSTEAD = (
    "keep the leases in another storage, such as Amazon S3, Google Cloud Storage, Azure or a local "
    "folder, or use a connection of ZooKeeper or of a Hive metastore"
)


def check_conditions(shared: PlacedObject, *, race_s: float = 10.0) -> str:
    """Check that of several writes on one condition exactly one is carried out.

    It writes a new object beside the given one, and deletes it afterwards: at most 1100 requests.

    :param shared: the object that will hold the leases; it is not touched.
    :param race_s: seconds after which no further race begins.
    :return: a sentence about what was seen.
    :raises ConfigurationError: of the field ``lease_root``, if the storage does not refuse such a write,
        refuses one that it must carry out, or carries out two; of ``credentials``, if it refuses those.
    :raises LockUnreachableError: if the storage does not answer.
    """

    def races() -> int:
        with _probe(shared) as probe:
            tag = _check_steps(probe)
            return _check_races(probe, tag, time.monotonic() + race_s)

    try:
        count = bounded(races, UnansweredError, tries=_TRIES)
    except UnansweredError as error:
        raise LockUnreachableError(
            f"{shared.place} did not answer {_TRIES} times: {error}",
            remedy="check the storage and the way to it",
        ) from error
    return f"{shared.place}: in {count} races of {_RACERS} writes, one was carried out each time."


@contextmanager
def _probe(shared: PlacedObject) -> Iterator[PlacedObject]:
    probe = shared.beside(f"check-{uuid.uuid4().hex}.json")
    try:
        yield probe
    finally:
        with suppress(UnansweredError, OccError):
            probe.delete()


def _check_steps(probe: SharedObject) -> str:
    """Check single writes; return the tag of the object."""
    try:
        first = probe.write(b"created", "")
    except SupersededError:
        raise _inexact(probe, "it refused to create an object that did not exist") from None
    if _is_written(probe, b"created again", ""):
        raise _inexact(probe, "it created an object that existed (If-None-Match is ignored)")
    try:
        second = probe.write(b"replaced", first)
    except SupersededError:
        raise _inexact(
            probe, "it refused to replace an object that was unchanged (If-Match never matches)"
        ) from None
    if second == first or _is_written(probe, b"replaced again", first):
        raise _inexact(probe, "it replaced an object that had changed (If-Match is ignored)")
    content = probe.read("")
    if content is None or content.data != b"replaced":
        raise _inexact(probe, "it did not return what was written last")
    return second


def _check_races(probe: SharedObject, tag: str, deadline_s: float) -> int:
    """Let threads replace the object at the same time; return the number of races."""
    with ThreadPoolExecutor(_RACERS) as pool:
        for race in range(_RACES):
            start = threading.Barrier(_RACERS)
            contents = [b"%d of %d" % (racer, race) for racer in range(_RACERS)]
            tags = list(pool.map(partial(_raced, probe, tag, start), contents))
            winners = [data for data, new in zip(contents, tags, strict=True) if new]
            content = probe.read("")
            if len(winners) > 1 or content is None or (winners and content.data != winners[0]):
                raise _inexact(
                    probe,
                    f"in race {race + 1} it carried out {len(winners)} of {_RACERS} writes on one "
                    "condition (If-Match is not atomic)",
                )
            tag = content.tag
            if time.monotonic() > deadline_s:
                return race + 1
    return _RACES


def _raced(probe: SharedObject, tag: str, start: threading.Barrier, data: bytes) -> str:
    start.wait()
    try:
        return probe.write(data, tag)
    except (SupersededError, UnansweredError):
        return ""


def _is_written(probe: SharedObject, data: bytes, tag: str) -> bool:
    try:
        probe.write(data, tag)
    except SupersededError:
        return False
    return True


def _inexact(probe: SharedObject, fault: str) -> ConfigurationError:
    return ConfigurationError(
        "lease_root", f"{probe.place} cannot keep leases: {fault}", remedy=_INSTEAD
    )

"""Pure: the outcomes and instants that exceptions of Hudi 0.15.0 to 1.2.0 show."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from airflow_occ_provider.attempts.log.causes import Cause
from airflow_occ_provider.attempts.outcome import Outcome

_TIME = r"\d{14,20}"

# The class or the message that decides, most specific first.
_SIGNATURES: tuple[tuple[Outcome, re.Pattern[str]], ...] = (
    (Outcome.EARLY_CONFLICT, re.compile(r"\S*\.HoodieEarlyConflictDetectionException\b")),
    (Outcome.CLUSTERING_CONFLICT, re.compile(r"\S*\.HoodieClusteringUpdateException\b")),
    (Outcome.COMMIT_CONFLICT, re.compile(r"\S*\.HoodieWriteConflictException\b")),
    (
        Outcome.ROLLED_BACK,
        re.compile(rf"\S+: .*/{_TIME}(?:\.\w+)?\.(?:inflight|requested) does not exist"),
    ),
    (Outcome.HEARTBEAT_EXPIRED, re.compile(r"\S+: Heartbeat for instant \d+ has expired")),
    (
        Outcome.MISCONFIGURATION,
        re.compile(
            r"\S+: (?:Property hoodie\.write\.lock\S* not found|To use early conflict detection, set"
            r"|Non-blocking concurrency control requires|Config conflict"
            r"|Cannot bootstrap the table in multi-writer mode|Cannot set heartbeat lower than"
            r"|No enum constant org\.apache\.hudi\.)"
        ),
    ),
    (
        Outcome.LOCK_TIMEOUT,
        re.compile(r"\S*\.HoodieLockException\b|\S+: Unable to instantiate class \S*LockProvider"),
    ),
)
# The instant that was writing, in messages of its own writer.
_NAMED = (
    re.compile(rf"Failed to \w+(?: \w+)* for commit time ({_TIME})"),
    re.compile(rf"Heartbeat for instant ({_TIME}) has expired"),
    re.compile(
        rf"/\.hoodie/(?!metadata/)\S*?({_TIME})(?:\.\w+)?\.(?:inflight|requested) does not exist"
    ),
)
_MARKED = re.compile(
    rf"Detected conflict marker files: .* for ({_TIME})"
    rf"|Conflict markers: \[[^\]]*?_({_TIME})\.\w+\.marker\.(?:CREATE|MERGE)"
)
_MISSING_FILE = re.compile(rf"_({_TIME})\.\w+\b.*(?:does not exist|No such file)")
_CLOSES_FILE = re.compile(r"at org\.apache\.hudi\.io\.\S*Handle\.close\(")


def classify(causes: Iterable[Cause], own: Collection[str] = ()) -> Outcome:
    """Return the outcome that a chain of exceptions means for a writer of a table.

    :param causes: the chain; only exceptions that the JVM threw count as Hudi's.
    """
    chain = [cause for cause in causes if cause.jvm]
    for outcome, signature in _SIGNATURES:
        if any(signature.match(f"{cause.type}: {cause.message}") for cause in chain):
            return outcome
    if any(_is_lock_provider_missing(cause) for cause in chain):
        return Outcome.MISCONFIGURATION
    lost = (_lost_file_of(cause) for cause in chain)
    if any(time and (time in own or closed) for time, closed in lost):
        return Outcome.ROLLED_BACK
    return Outcome.JOB_ERROR


def named_instant(causes: Iterable[Cause]) -> str | None:
    """Return the instant that a writer's own exceptions name as its write, if any."""
    chain = [cause for cause in causes if cause.jvm]
    found = (named.search(cause.message) for named in _NAMED for cause in chain)
    lost = (time for time, closed in map(_lost_file_of, chain) if closed)
    return next((match[1] for match in found if match), None) or next(lost, None)


def marked_instant(line: str) -> str | None:
    """Return the own instant that early conflict detection names with the markers."""
    match = _MARKED.search(line) if "onflict marker" in line else None
    return (match[1] or match[2]) if match else None


def _lost_file_of(cause: Cause) -> tuple[str | None, bool]:
    """Return the instant in a missing file's name, and whether its writer was closing the file."""
    match = _MISSING_FILE.search(cause.message)
    return (match[1] if match else None), any(map(_CLOSES_FILE.match, cause.frames))


def _is_lock_provider_missing(cause: Cause) -> bool:
    places = {
        "java.lang.NullPointerException": ("ReflectionUtils", "LockManager"),
        "org.apache.hudi.exception.HoodieException": ("getLockProvider",),
    }.get(cause.type, ())
    is_named = cause.message.startswith("Unable to load class") or "Null" in cause.type
    return is_named and any(place in frame for place in places for frame in cause.frames)

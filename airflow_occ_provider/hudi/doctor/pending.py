"""Pending actions that write no data, and that no process continues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.spelling import spell_time

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
# How long a process may work at one step; a restore stops every writer from its first moment on.
_LIMITS_MS = {
    "restore": 0,
    "rollback": 30 * _MINUTE_MS,
    "savepoint": 30 * _MINUTE_MS,
    "clean": _HOUR_MS,
}
_LONGEST_MS = 6 * _HOUR_MS
FINISH_RESTORE = "run the same restore again (CALL rollback_to_savepoint), which Hudi then continues"
"""What ends a pending restore."""
_NEXT_CLEAN = "HudiCleanOperator, or the next write with a clean, continues it"


@dataclass(frozen=True, slots=True)
class PendingAction:
    """A pending action of another kind than a write or a table service.

    :param reached_ms: epoch milliseconds at which its last file was written, if that is known.
    :param live: whether its process has a heartbeat that has not expired.
    :param victims: requested times of the instants that it takes back.
    :param are_gone: whether none of these is in the timeline any more.
    """

    instant: Instant
    reached_ms: int | None
    live: bool = False
    victims: frozenset[str] = frozenset()
    are_gone: bool = False


def stuck_actions(actions: Iterable[PendingAction], now_ms: int) -> Iterator[Finding]:
    """Yield the pending actions that no process seems to continue.

    A restore is always one: Hudi starts no write while it is pending (Hudi 1.2.0,
    ``BaseHoodieWriteClient.startCommit``).
    """
    for pending in actions:
        action = pending.instant.action
        reached_ms = pending.reached_ms
        age_ms = 0 if reached_ms is None else now_ms - reached_ms
        if pending.live or age_ms < _LIMITS_MS.get(action, _LONGEST_MS):
            continue
        since = "" if reached_ms is None else f" since {spell_time(reached_ms)}"
        harm, remedy = _harm_and_remedy(pending)
        yield Finding(
            "pending_restore" if action == "restore" else "stuck_action",
            Severity.ERROR if action == "restore" else Severity.WARNING,
            (pending.instant.time,),
            f"{pending.instant} has not moved{since}: {harm}",
            remedy,
        )


def _harm_and_remedy(pending: PendingAction) -> tuple[str, str]:
    """Return what a pending action keeps from working, and how it is ended."""
    if pending.instant.action == "rollback":
        return _of_rollback(pending)
    harm, remedy = _HARMS.get(pending.instant.action, _OTHER)
    return harm, remedy.format(file=pending.instant.file_name)


def _of_rollback(pending: PendingAction) -> tuple[str, str]:
    instant = pending.instant
    victims = ", ".join(sorted(pending.victims)) or "an instant that its plan does not name"
    if not pending.are_gone:
        return f"it takes back {victims}, and archival waits for it", _NEXT_CLEAN
    files = " and ".join(filter(None, (instant.requested_file, instant.inflight_file)))
    harm = f"it takes back {victims}, which has left the timeline: no writer continues it"
    return f"{harm}, and archival waits for it", (
        f"when no driver of the table runs, delete {files}: Hudi continues a rollback only while the "
        "instant that it takes back is pending"
    )


_HARMS = {
    "restore": (
        "Hudi refuses every write until it is completed, and the table may be half restored",
        f"{FINISH_RESTORE}; end the writers before",
    ),
    "clean": (
        "old file versions stay, and archival waits for it",
        f"{_NEXT_CLEAN}; if each one fails, look in its log what it cannot delete",
    ),
    "savepoint": (
        "it protects nothing yet",
        "when no driver of the table runs, delete {file} and make the savepoint again",
    ),
    "indexing": (
        "its index is not used, and archival waits for it",
        "run HoodieIndexer with --mode execute, or drop that index",
    ),
}
_OTHER = "archival waits for it", "look in the log of the job that began it, and run that job again"

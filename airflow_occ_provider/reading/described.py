"""An overview and an instant as JSON values, the same for commands and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.leases.rules import Owner, QueuedRequest
from airflow_occ_provider.reading.table_state import (
    Bar,
    LiveWriter,
    PendingService,
    QueueLine,
    TableState,
)
from airflow_occ_provider.spelling import spell_expiry, spell_span
from airflow_occ_provider.storage.snapshot import Snapshot

MOST_PARTITIONS, MOST_BLOCKERS = 20, 5


def describe_renewal(queued: QueuedRequest, now_ms: int) -> dict[str, Any]:
    """Return the renewal as JSON values; ``None`` for what is not known.

    :param now_ms: epoch milliseconds.
    """
    return {
        "renewed_ms": queued.renewed_ms or None,
        "expires_ms": queued.expires_ms or None,
        "claimed": queued.is_claimed,
        "renewal": list(renewal(queued, now_ms)),
    }


def renewal(queued: QueuedRequest, now_ms: int) -> tuple[str, ...]:
    """Return the renewal in words; none if the lock service does not tell.

    :param now_ms: epoch milliseconds; a clock that differs from the lock service's shifts the spans.
    """
    if not queued.renewed_ms:
        return ()
    words = [f"renewed {spell_span(now_ms - queued.renewed_ms)} ago"]
    if queued.expires_ms:
        words.append(spell_expiry(queued.expires_ms - now_ms))
    if queued.is_claimed:
        words.append("kept for its next process")
    return tuple(words)


def describe(state: TableState, task_states: Mapping[Owner, str] | None = None) -> dict[str, Any]:
    """Return a table's state as JSON values; times are epoch milliseconds.

    :param task_states: of the owners of requests, as far as Airflow's database knows them.
    """
    signed = state.signatures
    lines = (_line(line, state.at_ms, task_states or {}) for line in state.queue or ())
    return {
        "table": state.table,
        "at_ms": state.at_ms,
        "lost_ms": state.lost_ms,
        "dead": len(state.dead),
        "queue": None if state.queue is None else list(lines),
        "writers": [_writer(writer, signed.get(writer.instant.time)) for writer in state.writers],
        "services": list(map(_service, state.services)),
        "instants": list(map(_bar, state.bars)),
        "edges": [{"source": e.source, "target": e.target, "kind": e.kind} for e in state.edges],
    }


def describe_task(signature: Signature | None) -> dict[str, Any] | None:
    """Return the task that made a write as JSON values; ``None`` if it is not known."""
    if signature is None:
        return None
    return {
        **signature.task_run._asdict(),
        "try_number": signature.try_number or None,
        "site": signature.site or None,
        "text": signature.spelled,
    }


def describe_owner(owner: Owner) -> dict[str, Any]:
    """Return the owner of a request as JSON values."""
    return {"path": list(owner.path), "label": owner.label, "text": str(owner)}


def _line(line: QueueLine, at_ms: int, states: Mapping[Owner, str]) -> dict[str, Any]:
    request = line.queued.request
    return {
        "place": line.place,
        "owner": describe_owner(request.owner),
        "task_state": states.get(request.owner),
        "holds": line.holds,
        "waits_for": [str(blocker) for blocker in line.waits_for[:MOST_BLOCKERS]],
        "waits_for_more": max(len(line.waits_for) - MOST_BLOCKERS, 0),
        "since_ms": line.queued.since_ms,
        **describe_renewal(line.queued, at_ms),
        "scopes": [str(scope) for scope in request.scopes],
    }


def _writer(writer: LiveWriter, signature: Signature | None) -> dict[str, Any]:
    return {
        "instant": writer.instant.time,
        "kind": writer.kind,
        "task": describe_task(signature),
        "state": writer.instant.state.value,
        "fate": writer.fate.value,
        "margin_ms": writer.margin_ms,
        "partitions": list(writer.partitions[:MOST_PARTITIONS]),
        "partitions_left_out": max(len(writer.partitions) - MOST_PARTITIONS, 0),
        "verdict": writer.verdict.certainty.value if writer.verdict else None,
        "sentence": writer.sentence,
    }


def _service(service: PendingService) -> dict[str, Any]:
    return {
        "instant": service.instant.time,
        "action": service.instant.action,
        "state": service.instant.state.value,
        "age_ms": service.age_ms,
        "partitions": list(service.partitions[:MOST_PARTITIONS]),
        "partitions_left_out": max(len(service.partitions) - MOST_PARTITIONS, 0),
    }


def _bar(bar: Bar) -> dict[str, Any]:
    return {
        "instant": bar.instant,
        "kind": bar.kind,
        "fate": bar.fate.value,
        "begun_ms": bar.begun_ms,
        "ended_ms": bar.ended_ms,
        "lost_ms": bar.lost_ms,
        "task": describe_task(bar.writer),
        "is_service": bar.is_service,
    }


def describe_instant(
    snapshot: Snapshot, instant: Instant, heartbeats: Mapping[str, int], *, files: bool
) -> dict[str, Any]:
    """Return the description of one instant, in Hudi's terms.

    :param files: whether to list file groups, as [partition, file id], and markers.
    :raises TableUnreadableError: if a file cannot be read or decoded.
    """
    metadata = _metadata(snapshot, instant)
    return {
        "time": instant.time,
        "action": instant.action,
        "state": instant.state.value,
        "completion_time": instant.completion_time,
        "operation": metadata.operation_type if metadata else None,
        **(_files(snapshot, instant, metadata) if files else {}),
        "heartbeat": heartbeats.get(instant.time),
        "extra": {k: v for k, v in metadata.extra.items() if k.startswith("_")} if metadata else {},
        "archived": instant.archived,
        "damage": snapshot.reader.fault(instant.file_name)
        or snapshot.reader.fault(instant.inflight_file or ""),
    }


def _files(snapshot: Snapshot, instant: Instant, metadata: CommitMetadata | None) -> dict[str, Any]:
    markers = None if instant.completed else snapshot.markers(instant.time)
    planned = None if instant.completed else snapshot.reader.planned(instant)
    return {
        "written": _pairs(metadata.file_groups if metadata else ()),
        "replaced": _pairs(metadata.replaced if metadata else ()),
        "planned": _pairs(planned or ()),
        "markers": _pairs({marker.file_group for marker in markers}) if markers else None,
    }


def _metadata(snapshot: Snapshot, instant: Instant) -> CommitMetadata | None:
    if not instant.is_write:
        return None
    return snapshot.reader.commit(instant) if instant.completed else snapshot.reader.profile(instant)


def _pairs(groups: Iterable[FileGroupId]) -> list[list[str]]:
    return sorted(map(list, groups))

"""An overview as JSON values, the same for the command and for tests of the page."""

from __future__ import annotations

from typing import Any

from airflow_occ_provider.attempts.overview.renewal import describe_renewal
from airflow_occ_provider.attempts.overview.values import (
    Bar,
    LiveWriter,
    PendingService,
    QueueLine,
    TableState,
)

_LABELS = ("dag_id", "run_id", "task_id", "map_index", "try_number")
MOST_PARTITIONS, MOST_BLOCKERS = 20, 5


def describe(state: TableState) -> dict[str, Any]:
    """Return a table's state as JSON values; times are epoch milliseconds."""
    return {
        "table": state.table,
        "at_ms": state.at_ms,
        "lost_ms": state.lost_ms,
        "queue": None if state.queue is None else list(map(_line, state.queue)),
        "writers": list(map(_writer, state.writers)),
        "services": list(map(_service, state.services)),
        "instants": list(map(_bar, state.bars)),
        "edges": [{"source": e.source, "target": e.target, "kind": e.kind} for e in state.edges],
    }


def _line(line: QueueLine) -> dict[str, Any]:
    request = line.queued.request
    return {
        "place": line.place,
        "owner": str(request.owner),
        "holds": line.holds,
        "waits_for": [str(one) for one in line.waits_for[:MOST_BLOCKERS]],
        "waits_for_more": max(len(line.waits_for) - MOST_BLOCKERS, 0),
        "since_ms": line.queued.since_ms,
        **describe_renewal(line.queued),
        "scopes": [str(scope) for scope in request.scopes],
    }


def _writer(writer: LiveWriter) -> dict[str, Any]:
    return {
        "instant": writer.instant.time,
        "kind": writer.kind,
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
    by = bar.writer
    return {
        "instant": bar.instant,
        "kind": bar.kind,
        "fate": bar.fate.value,
        "begun_ms": bar.begun_ms,
        "ended_ms": bar.ended_ms,
        "lost_ms": bar.lost_ms,
        "writer": {key: getattr(by, key) for key in _LABELS} if by else None,
        "is_service": bar.is_service,
    }

"""Operations of writers, for verdicts on their conflicts."""

from __future__ import annotations

from airflow_occ_provider.hudi.conflict.operation import (
    ConcurrentOperation,
)
from airflow_occ_provider.hudi.format.instant import Instant, State

T = "20261121100000000"  # our requested time
OLD, BEFORE, AFTER = "20261121090000000", "20261121095900000", "20261121100100000"
F, G = ("p=1", "f-0"), ("p=1", "g-0")


def ours(**fields):
    values = {
        "operation_type": "UPSERT",
        "file_groups": frozenset({F}),
        "existing": frozenset({F}),
        "bases": {F: OLD},
        "requested_ms": 100,
        "inflight_ms": 200,
    }
    instant = Instant(T, fields.pop("action", "commit"), State.INFLIGHT, f"{T}.inflight")
    return ConcurrentOperation(instant, **{**values, **fields})


def completed(time, ms, *groups, action="commit", **fields):
    name = f"{time}_20261121100500000.{action}"
    instant = Instant(time, action, State.COMPLETED, name, fields.pop("at", "20261121100500000"))
    values = {
        "operation_type": "UPSERT",
        "file_groups": frozenset(groups),
        "existing": frozenset(groups),
    }
    return ConcurrentOperation(instant, **{**values, "completed_ms": ms, **fields})


def pending(time, *groups, action="commit", state=State.INFLIGHT, **fields):
    instant = Instant(time, action, state, f"{time}.{action}.inflight")
    values = {
        "operation_type": "UPSERT",
        "file_groups": frozenset(groups),
        "existing": frozenset(groups),
    }
    return ConcurrentOperation(instant, **{**values, **fields})

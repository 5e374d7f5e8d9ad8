"""Infers from a table's metadata the rules by which its writers commit."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.strategy import Strategy

# Hudi 1.2.0, BucketIdentifier: a simple bucket's file ids begin with its number; under non-blocking
# concurrency control the rest is fixed, so that all writers of a bucket choose the same file id.
_SIMPLE_BUCKET = re.compile(r"\d{8}-")
_SHARED_BUCKET = re.compile(r"\d{8}-0000-0000-0000-000000000000")
_NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"

# Fields of the JSON write statistics that earlier releases do not write, not even as null
# (golden tables of version 6 by 0.15.0, 1.0.2 and 1.2.0).
_SINCE_1_0 = "prevBaseFile"
_SINCE_1_2 = "totalLogBlocksSize"


def infer_strategy(operations: Iterable[ConcurrentOperation]) -> Strategy:
    """Return the strategy that Hudi chooses by default for a table's index.

    If all known file groups are simple buckets, the table has a bucket index.
    """
    file_ids = {file_id for operation in operations for _, file_id in operation.file_groups}
    bucketed = bool(file_ids) and all(map(_SIMPLE_BUCKET.match, file_ids))
    return Strategy.BUCKET_INDEX if bucketed else Strategy.SIMPLE


def is_non_blocking(ours: ConcurrentOperation, recorded_mode: str | None) -> bool:
    """Whether a write may run under non-blocking concurrency control.

    Under that mode Hudi refuses few commits. The table's properties may record the mode.
    """
    recorded = (recorded_mode or "").upper() == _NON_BLOCKING
    return recorded or any(_SHARED_BUCKET.match(file_id) for _, file_id in ours.file_groups)


def possible_releases(
    table_version: int, stat_fields: frozenset[str] | None
) -> tuple[tuple[int, int], ...]:
    """Return the Hudi releases that a writer may run, one for each set of rules.

    In layout 2 the files of all releases look alike. Table version 9 exists since 1.1, which has the
    rules of 1.2.

    :param stat_fields: field names of the writer's own write statistics, ``None`` without any.
    """
    if table_version >= 8:
        return ((1, 0), (1, 2)) if table_version == 8 else ((1, 2),)
    if stat_fields is None:
        return (0, 15), (1, 0), (1, 2)
    if _SINCE_1_2 in stat_fields:
        return ((1, 2),)
    return ((1, 0), (1, 1)) if _SINCE_1_0 in stat_fields else ((0, 15),)

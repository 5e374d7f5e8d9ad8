"""Conflict resolution strategies: the rivals of each, and overlaps that none sees.

Two overwrites of one partition that were planned before either had completed replace the same old file
groups, but not each other's new ones: each row is there twice. Two writes that insert new keys put them
into file groups of their own, so a key that is new to both is there twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from airflow_occ_provider.hudi.conflict.operation import (
    ConcurrentOperation,
    completed_since_request,
    is_before,
)
from airflow_occ_provider.hudi.format.instant import State

_TRANSACTION = "org.apache.hudi.client.transaction"
STRATEGY_OPTION = "hoodie.write.lock.conflict.resolution.strategy"
INDEX_OPTION = "hoodie.index.type"
# Hudi 1.2.0, BucketIdentifier: a simple bucket's file ids begin with its number; under non-blocking
# concurrency control the rest is fixed, so that all writers of a bucket choose the same file id.
_SIMPLE_BUCKET = re.compile(r"\d{8}-")
_SHARED_BUCKET = re.compile(r"\d{8}-0000-0000-0000-000000000000")
_NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
# Fields of the JSON write statistics that earlier releases do not write, not even as null
# (golden tables of version 6 by 0.15.0, 1.0.2 and 1.2.0).
_SINCE_1_0 = "prevBaseFile"
_SINCE_1_2 = "totalLogBlocksSize"
BOTH_OVERWRITE = "both overwrite the same partition, and neither replaces what the other one writes"
BOTH_INSERT = "both add file groups to the same partition: a key that is new to both is there twice"
_OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"})
_KEYED = frozenset({"INSERT", "UPSERT", "INSERT_PREPPED", "UPSERT_PREPPED"})
_INSERTS = _KEYED | {"BULK_INSERT", "BULK_INSERT_PREPPED"}


class Strategy(StrEnum):
    """The strategies that Hudi ships."""

    SIMPLE = "simple"
    BUCKET_INDEX = "bucket_index"
    PREFER_WRITER = "prefer_writer"

    @property
    def class_name(self) -> str:
        """Hudi's class for it (1.2.0)."""
        return f"{_TRANSACTION}.{_CLASSES[self]}ConflictResolutionStrategy"


_CLASSES = {
    Strategy.SIMPLE: "SimpleConcurrentFileWrites",
    Strategy.BUCKET_INDEX: "BucketIndexConcurrentFileWrites",
    Strategy.PREFER_WRITER: "PreferWriter",
}


def strategy_of(options: Mapping[str, str]) -> Strategy | None:
    """Return the strategy that a writer's options name; ``None`` leaves it to Hudi."""
    named = options.get(STRATEGY_OPTION, "").strip()
    return next((strategy for strategy in Strategy if strategy.class_name == named), None)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which the commit check of one writer chooses its rivals.

    :param writer_version: major and minor number of the writer's Hudi, such as ``(1, 2)``.
    :param writing: whether pending writers may still begin files; if not, their markers are complete.
    :param non_blocking: whether it may run under non-blocking concurrency control.
    """

    strategy: Strategy
    table_version: int
    merge_on_read: bool
    writer_version: tuple[int, int]
    writing: bool = True
    non_blocking: bool = False

    def counts(
        self, ours: ConcurrentOperation, rival: ConcurrentOperation, saw_rival: bool | None
    ) -> bool | None:
        """Return whether the check compares with ``rival`` and refuses an overlap.

        :param seen: whether the rival was completed at our comparison point.
        :returns: ``None`` if that depends on something that the metadata does not show.
        """
        if rival.operation_type == "COMPACT" and rival.instant.time < ours.instant.time:
            return False
        if ours.instant.action == "logcompaction" or self._loses_to_our_overwrite(ours, rival):
            return False
        if self.strategy is Strategy.PREFER_WRITER:
            return self._counts_preferring_writers(ours, rival)
        if rival.instant.completed or not rival.is_table_service:
            return self._counts_completed(ours, rival, saw_rival)
        return self._counts_planned(ours, rival)

    def _loses_to_our_overwrite(self, ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool:
        """Whether the rival's own check finds our younger pending overwrite.

        It sees what our workload profile names: existing file groups, if a bucket index is used.
        """
        if rival.instant.completed or rival.is_table_service or ours.instant.time < rival.instant.time:
            return False
        overwrites = ours.instant.action == "replacecommit" and not ours.is_table_service
        named = ours.bases.keys() & rival.file_groups
        return self._compares_pending_overwrites and overwrites and bool(named)

    def _counts_completed(
        self, ours: ConcurrentOperation, rival: ConcurrentOperation, saw_rival: bool | None
    ) -> bool | None:
        if saw_rival:
            return False
        if self._ignores_compactions and rival.operation_type == "COMPACT":
            # It counts only if it was pending at our comparison point.
            late = is_before(ours.inflight_ms, rival.requested_ms)
            return False if late else None
        if rival.operation_type == "LOG_COMPACT" and rival.instant.time < ours.instant.time:
            return None  # it counts only if no write requested since was completed when we began
        return None if saw_rival is None else True

    def _counts_planned(self, ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool | None:
        if rival.operation_type not in ("COMPACT", "LOG_COMPACT"):
            younger = rival.instant.time > ours.instant.time
            return younger or _is_executed(rival) or self.writer_version >= (1, 1)
        if rival.operation_type == "COMPACT" and not self._ignores_compactions:
            return True
        # As a plan it is not compared (1.2.0, filterPendingReplaceClusteringAndCompactionTimeline).
        return self._counts_completed(ours, rival, False) if _is_executed(rival) else False

    def _counts_preferring_writers(
        self, ours: ConcurrentOperation, rival: ConcurrentOperation
    ) -> bool | None:
        if rival.instant.completed:
            return completed_since_request(ours, rival)
        if rival.is_table_service and not _is_executed(rival):
            return False
        if rival.operation_type != "CLUSTER" or ours.is_table_service:
            return True  # a compaction commits unchecked (seen on 1.2.0)
        # A clustering yields to what our workload profile names: its check sees nothing else. In
        # layout 1 it mistakes its own plan for a rival's and never commits (Hudi 1.2.0).
        return not (ours.bases.keys() & rival.file_groups or self.clustering_fails)

    @property
    def clustering_fails(self) -> bool:
        """Whether no clustering can commit (Hudi 1.2.0, layout 1, prefer_writer)."""
        preferring = self.strategy is Strategy.PREFER_WRITER
        return preferring and self.table_version < 8 and self.writer_version >= (1, 2)

    @property
    def _compares_pending_overwrites(self) -> bool:
        # Only Hudi 1.0.2 narrows pending replacecommits to clusterings.
        return self.strategy is not Strategy.PREFER_WRITER and self.writer_version != (1, 0)

    @property
    def _ignores_compactions(self) -> bool:
        # Hudi 1.2.0, SimpleConcurrentFileWritesConflictResolutionStrategy.getCandidateInstantsV8AndAbove
        return self.merge_on_read and self.table_version >= 8 and self.writer_version >= (1, 1)


def _is_executed(service: ConcurrentOperation) -> bool:
    """Whether a table service is running, so that it may complete before us."""
    return service.instant.state is not State.REQUESTED


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


@dataclass(frozen=True, slots=True)
class Duplication:
    """An overlap that Hudi allows, after which rows may be there twice.

    :param partitions: in which both write, sorted.
    :param reason: why, in a sentence.
    """

    rival: ConcurrentOperation
    partitions: tuple[str, ...]
    reason: str


def duplications(
    ours: ConcurrentOperation, rivals: Iterable[ConcurrentOperation], *, has_keys: bool
) -> Iterator[Duplication]:
    """Yield what two writes may both add without that Hudi's check compares it.

    :param rivals: the writes that ran, or run, beside it.
    :param has_keys: whether the table has record keys; without them, equal rows are no duplicates.
    """
    for rival in rivals:
        if ours.is_table_service or rival.is_table_service or rival.instant.time == ours.instant.time:
            continue
        compared = {partition for partition, _ in _existing(ours) & _existing(rival)}
        overwritten = _overwritten(ours) & _overwritten(rival) - compared
        if overwritten:
            yield Duplication(rival, tuple(sorted(overwritten)), BOTH_OVERWRITE)
            continue
        created = _created(ours) & _created(rival) if has_keys and _may_repeat(ours, rival) else set()
        if created:
            yield Duplication(rival, tuple(sorted(created)), BOTH_INSERT)


def _existing(write: ConcurrentOperation) -> frozenset[tuple[str, str]]:
    return write.existing | write.replaced


def _overwritten(write: ConcurrentOperation) -> frozenset[str]:
    if write.operation_type not in _OVERWRITES:
        return frozenset()
    return write.overwrites | {partition for partition, _ in write.file_groups - write.replaced}


def _may_repeat(ours: ConcurrentOperation, rival: ConcurrentOperation) -> bool:
    """Whether both insert rows of which one looks for existing keys, which a bulk insert never does.

    By a bucket index, equal keys have one bucket, which Hudi compares.
    """
    kinds = {ours.operation_type, rival.operation_type}
    if not (kinds <= _INSERTS and kinds & _KEYED):
        return False
    return infer_strategy([ours, rival]) is not Strategy.BUCKET_INDEX


def _created(write: ConcurrentOperation) -> frozenset[str]:
    new = write.file_groups - write.existing - write.replaced
    return write.adds_to | {partition for partition, _ in new}

"""Hudi's conflict resolution strategies: the rivals that each one considers."""

from __future__ import annotations

from collections.abc import Mapping
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
        return preferring and self.table_version < 8 and self.writer_version >= (1, 1)

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

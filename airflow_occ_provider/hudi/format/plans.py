"""Plans of table services, rollbacks, restores and cleans, and their results."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.record import Content, read_record

PLAN_FIELDS = frozenset(
    {"operations", "clusteringPlan", "inputGroups", "slices", "partitionPath", "fileId"}
)
"""The fields that the readers of plans use."""


def read_compaction_plan(content: Content) -> frozenset[FileGroupId]:
    """Return the file groups of a ``HoodieCompactionPlan``, also of a log compaction.

    :raises ValueError: if the content is not a plan, or is cut off.
    """
    operations = read_record(content, PLAN_FIELDS).get("operations") or ()
    return frozenset((op.get("partitionPath") or "", op.get("fileId") or "") for op in operations)


def read_clustering_plan(content: Content) -> frozenset[FileGroupId] | None:
    """Return the file groups of a clustering plan; ``None`` if there is none.

    Overwrites have an empty file, or a record without a plan.

    :raises ValueError: if the content is not such a record, or is cut off.
    """
    plan = read_record(content, PLAN_FIELDS).get("clusteringPlan") if content else None
    if not plan:
        return None
    slices = (piece for group in plan.get("inputGroups") or () for piece in group.get("slices") or ())
    return frozenset((piece.get("partitionPath") or "", piece.get("fileId") or "") for piece in slices)


def read_plan_extra(content: Content) -> Mapping[str, str]:
    """Return the extra metadata of a clustering plan.

    :raises ValueError: if the content is not a record, or is cut off.
    """
    return dict(read_record(content, frozenset({"extraMetadata"})).get("extraMetadata") or {})


def read_rolled_back_times(content: bytes) -> frozenset[str]:
    """Return the requested times of the instants that a rollback or restore names.

    The plan of a rollback may name none yet.

    :raises ValueError: if the content is not a plan or metadata, or is cut off.
    """
    record = read_record(content) if content else {}
    named = [
        record.get("instantToRollback"),
        *(record.get("instantsRollback") or ()),
        *(record.get("commitsRollback") or ()),
        *(record.get("instantsToRollback") or ()),  # plain times in a completed restore
        *(record.get("hoodieRestoreMetadata") or ()),
    ]
    times = (instant.get("commitTime") if isinstance(instant, dict) else instant for instant in named)
    return frozenset(filter(None, times))


def read_deleted_names(content: bytes) -> frozenset[str]:
    """Return the names of the data files that a clean, rollback or restore deletes.

    :raises ValueError: if the content is neither, or is cut off.
    """
    record = read_record(content)
    steps = (record.get("hoodieRestoreMetadata") or {"": [record]}).values()
    rollbacks = [rollback for step in steps for rollback in step or ()]
    done = [
        partition
        for rollback in rollbacks
        for partition in (rollback.get("partitionMetadata") or {}).values()
    ]
    planned = (record.get("filePathsToBeDeletedPerPartition") or {}).values()
    paths = [
        *(path for entry in done for path in entry.get("successDeleteFiles") or ()),
        *(path for entry in done for path in entry.get("deletePathPatterns") or ()),
        *(info["filePath"] for infos in planned for info in infos or ()),
        *(
            path
            for request in record.get("RollbackRequests") or ()
            for path in request["filesToBeDeleted"]
        ),
    ]
    return frozenset(path.rpartition("/")[2] for path in paths)

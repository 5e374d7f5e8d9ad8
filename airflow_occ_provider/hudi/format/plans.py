"""Plans of table services, and what rollbacks, restores and cleans name."""

from __future__ import annotations

from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.record import Content, read_record

PLAN_FIELDS = frozenset(
    {"operations", "clusteringPlan", "inputGroups", "slices", "partitionPath", "fileId"}
)
"""What the readers of plans look at."""


def read_compaction_plan(content: Content) -> frozenset[FileGroupId]:
    """Return the file groups of a ``HoodieCompactionPlan``, also that of a log compaction.

    :param content: the whole requested file.
    :raises ValueError: for content that is not one, or is cut off.
    """
    operations = read_record(content, PLAN_FIELDS).get("operations") or ()
    return frozenset((op.get("partitionPath") or "", op.get("fileId") or "") for op in operations)


def read_clustering_plan(content: Content) -> frozenset[FileGroupId] | None:
    """Return the file groups that a ``HoodieRequestedReplaceMetadata`` plans to cluster.

    :param content: the whole requested file; empty or without a plan for overwrites.
    :returns: ``None`` where there is no clustering plan.
    :raises ValueError: for content that is not one, or is cut off.
    """
    plan = read_record(content, PLAN_FIELDS).get("clusteringPlan") if content else None
    if not plan:
        return None
    slices = (piece for group in plan.get("inputGroups") or () for piece in group.get("slices") or ())
    return frozenset((piece.get("partitionPath") or "", piece.get("fileId") or "") for piece in slices)


def read_rollback_victims(content: bytes) -> frozenset[str]:
    """Return the requested times that a rollback's or restore's plan or metadata names.

    :param content: the whole file of a requested, inflight or completed rollback or restore; the plan
        of a rollback may name none yet.
    :raises ValueError: for content that is not one, or is cut off.
    """
    record = read_record(content) if content else {}
    named = [
        record.get("instantToRollback"),
        *(record.get("instantsRollback") or ()),
        *(record.get("commitsRollback") or ()),
        *(record.get("instantsToRollback") or ()),  # of a restore: plain times once it is completed
        *(record.get("hoodieRestoreMetadata") or ()),
    ]
    times = (one.get("commitTime") if isinstance(one, dict) else one for one in named)
    return frozenset(filter(None, times))


def read_deleted_names(content: bytes) -> frozenset[str]:
    """Return the names of the data files that a clean, rollback or restore deleted, or plans to.

    :param content: the whole file: a plan (requested) or what was done (completed).
    :raises ValueError: for content that is not one, or is cut off.
    """
    record = read_record(content)
    steps = (record.get("hoodieRestoreMetadata") or {"": [record]}).values()
    rollbacks = [rollback for step in steps for rollback in step or ()]
    done = [one for rollback in rollbacks for one in (rollback.get("partitionMetadata") or {}).values()]
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

"""Which pairs the table's metadata cannot predict, so that a run holds few of them.

The metadata does not show which partitions a pending ``delete_partition`` will drop; where the
comparison point lies between the requested and the inflight file, unless the workload profile was
built on a base file of the rival's or names what the rival removed; what a write would have touched
that a pending clustering refuses; into which small file new records will go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.differential.pairs import Pair

_AROUND = frozenset({"before_comparison", "before_inflight"})
_LOGGED = frozenset({"upsert", "delete", "insert"})


def is_predictable(pair: Pair) -> bool:
    """Whether the snapshot's metadata determines our writer's fate."""
    if pair.rival.operation == "delete_partition" and pair.window == "before_commit":
        return False
    if not _overlap(pair):
        return True
    if pair.rival.operation.startswith("clustering") and _plan_is_seen(pair):
        return False
    if pair.ours.operation == "clustering" and pair.hudi < "1.1" and pair.rival.groups:
        return False
    # The snapshot is then taken as the inflight file is made, which is empty then before 1.1.
    if pair.early != "off" and (pair.ours.inserts or pair.hudi < "1.1"):
        return False
    return pair.window not in _AROUND or _profile_tells(pair)


def _overlap(pair: Pair) -> bool:
    if "insert_overwrite_table" in (pair.ours.operation, pair.rival.operation):
        return True
    if pair.rival.operation.startswith("clustering"):  # of a partition without files it takes another
        return True
    return bool(set(pair.ours.partitions) & set(pair.rival.partitions))


def _plan_is_seen(pair: Pair) -> bool:
    if pair.elder != "no":
        return True
    return pair.rival.operation == "clustering_plan" and pair.window in (
        "before_request",
        "before_comparison",
    )


def _only_adds(pair: Pair) -> bool:
    """Whether the rival only makes new file groups, which are never a conflict."""
    routed = pair.small_files or pair.template.bucket
    return pair.rival.operation == "bulk_insert" or (pair.rival.operation == "insert" and not routed)


def _profile_tells(pair: Pair) -> bool:
    ours, rival = pair.ours.operation, pair.rival.operation
    if pair.strategy == "prefer_writer":
        # What our profile is built on is never a certain conflict, though this strategy counts it.
        logs = pair.template.kind == "MERGE_ON_READ" and rival in _LOGGED
        is_built_on = pair.window == "before_comparison" and not (logs or _only_adds(pair))
        return not (is_built_on or ours.startswith("insert_overwrite"))
    if ours.startswith("insert_overwrite"):
        return _only_adds(pair)
    if ours == "bulk_insert" and pair.template.bucket:
        return False
    if pair.template.kind == "MERGE_ON_READ":
        return rival not in _LOGGED
    return ours != "insert" or not pair.small_files

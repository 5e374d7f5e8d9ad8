"""Writes that overlap without a shared file group: Hudi's check lets both commit.

Two overwrites of one partition that were planned before either had completed replace the same old file
groups, but not each other's new ones: each row is there twice. Two writes that insert new keys put them
into file groups of their own, so a key that is new to both is there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.evidence import infer_strategy
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.strategy import Strategy

BOTH_OVERWRITE = "both overwrite the same partition, and neither replaces what the other one writes"
BOTH_INSERT = "both add file groups to the same partition: a key that is new to both is there twice"
_OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"})
_KEYED = frozenset({"INSERT", "UPSERT", "INSERT_PREPPED", "UPSERT_PREPPED"})
_INSERTS = _KEYED | {"BULK_INSERT", "BULK_INSERT_PREPPED"}


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

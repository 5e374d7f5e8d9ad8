"""What a completed write says of itself: ``HoodieCommitMetadata``, in Avro or JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AVRO_MAGIC = b"Obj\x01"
TABLE_SERVICE_OPERATIONS = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The part of ``HoodieCommitMetadata`` that tells what a commit wrote.

    :param operation: Hudi's operation type in upper case, such as ``UPSERT``.
    :param file_groups: the (partition path, file id) pairs written.
    :param replaced: the (partition path, file id) pairs that a replacecommit took out.
    :param records: inserted + updated + deleted records.
    :param extra: the extra metadata; our signature is in its keys that start with ``_``.
    """

    operation: str
    file_groups: frozenset[tuple[str, str]]
    replaced: frozenset[tuple[str, str]]
    records: int
    extra: Mapping[str, str]

    @property
    def partitions(self) -> tuple[str, ...]:
        """Partition paths written or replaced, sorted; the empty path is an unpartitioned table."""
        return tuple(sorted({partition for partition, _ in self.file_groups | self.replaced}))

    @property
    def is_table_service(self) -> bool:
        """Whether a table service committed, not a writer."""
        return self.operation in TABLE_SERVICE_OPERATIONS


def read_commit(content: bytes) -> CommitMetadata:
    """Decode the content of a completed commit, deltacommit or replacecommit file.

    Files start with the Avro container's magic since table version 8 and are JSON before
    (Hudi 1.2.0, ``CommitMetadataSerDeV2`` and ``V1``).

    :param content: the whole file.
    :raises ValueError: for content that is neither, or is cut off.
    """
    record = _read_avro(content) if content[:4] == AVRO_MAGIC else _read_json(content)
    stats = [
        (partition, stat)
        for partition, written in (record.get("partitionToWriteStats") or {}).items()
        for stat in written or ()
    ]
    replaced = (record.get("partitionToReplaceFileIds") or {}).items()
    return CommitMetadata(
        operation=record.get("operationType") or "UNKNOWN",
        file_groups=frozenset((p, s["fileId"]) for p, s in stats if s.get("fileId")),
        replaced=frozenset((p, file_id) for p, file_ids in replaced for file_id in file_ids or ()),
        records=sum(_changed_records(stat) for _, stat in stats),
        extra=dict(record.get("extraMetadata") or {}),
    )


def _changed_records(stat: Mapping[str, Any]) -> int:
    return sum(int(stat.get(key) or 0) for key in ("numInserts", "numUpdateWrites", "numDeletes"))


def _read_json(content: bytes) -> Mapping[str, Any]:
    record = json.loads(content)
    if not isinstance(record, dict):
        raise ValueError("commit metadata is not a JSON object")
    return record


def _read_avro(content: bytes) -> Mapping[str, Any]:
    import fastavro

    try:
        record = next(fastavro.reader(io.BytesIO(content)))
    except (EOFError, StopIteration, IndexError) as error:
        raise ValueError("commit metadata is cut off") from error
    if not isinstance(record, dict):
        raise ValueError("commit metadata is not an Avro record")
    return record

"""Checks of partition paths that a user gives."""

from __future__ import annotations

from airflow_occ_provider.hudi.format.table_config import TableConfig

NOT_BELOW = "is not a path below the table"


def is_below(path: str) -> bool:
    """Whether a path is a canonical relative path below a table.

    It is ``dt=2026-11-21/hour=7``, and not ``dt=2026-11-21//hour=7``.
    """
    parts = path.strip("/").split("/")
    return "://" not in path and not {"", ".", ".."} & {*parts}


def rejection_reason(path: str, table: TableConfig) -> str | None:
    """Return why a path cannot be a partition, or a folder above partitions.

    A path that may be valid passes: values may contain slashes, so it may have more parts than fields,
    and without hive style any text may be a value.

    :returns: ``None`` if the path is possible.
    """
    if not is_below(path):
        return NOT_BELOW
    parts = path.strip("/").split("/")
    fields = list(table.partition_fields)
    if not fields:
        return "cannot be: the table is not partitioned"
    if table.hive_style_partitioning:
        return _hive_style_rejection(parts, fields)
    if parts[0].startswith(f"{fields[0]}="):
        return f"cannot be: the table is not in hive style, so remove {fields[0]}="
    return None


def _hive_style_rejection(parts: list[str], fields: list[str]) -> str | None:
    named = [part.partition("=")[0] for part in parts if "=" in part]
    if "=" not in parts[0] or named != fields[: len(named)]:
        return f"cannot be: the table is partitioned by {'/'.join(f'{field}=...' for field in fields)}"
    return None

"""What a partition path of a table can look like."""

from __future__ import annotations

from airflow_occ_provider.hudi.format.table_config import TableConfig

NOT_BELOW = "is not a path below the table"


def is_below(path: str) -> bool:
    """Whether a path is one below a table, in the one spelling that it has there.

    :param path: such as ``dt=2026-11-21/hour=7``, and not ``dt=2026-11-21//hour=7``.
    """
    parts = path.strip("/").split("/")
    return "://" not in path and not {"", ".", ".."} & {*parts}


def objection(path: str, table: TableConfig) -> str | None:
    """Return why a path cannot be a partition of a table, nor one above its partitions.

    Where values may hold slashes, more parts than fields are possible; where the table is not in
    hive style, any text may be a value. What is possible there is let pass.

    :param path: relative to the table's base path, such as ``dt=2026-11-21/hour=7``.
    :param table: its configuration.
    """
    if not is_below(path):
        return NOT_BELOW
    parts = path.strip("/").split("/")
    fields = list(table.partition_fields)
    if not fields:
        return "cannot be: the table is not partitioned"
    if table.hive_style_partitioning:
        return _objection_in_hive_style(parts, fields)
    if parts[0].startswith(f"{fields[0]}="):
        return f"cannot be: the table is not in hive style, so leave {fields[0]}= out"
    return None


def _objection_in_hive_style(parts: list[str], fields: list[str]) -> str | None:
    named = [part.partition("=")[0] for part in parts if "=" in part]
    if "=" not in parts[0] or named != fields[: len(named)]:
        return f"cannot be: the table is partitioned by {'/'.join(f'{field}=...' for field in fields)}"
    return None

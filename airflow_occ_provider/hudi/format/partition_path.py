"""Checks of partition paths that a user gives."""

from __future__ import annotations

import re

from airflow_occ_provider.hudi.format.table_config import TableConfig

# Hudi escapes these characters of a value, and no other ones (PartitionPathEncodeUtils, 1.2.0).
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
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
        rejection = _hive_style_rejection(parts, fields)
        return rejection or _encoding_rejection(parts, table)
    if parts[0].startswith(f"{fields[0]}="):
        return f"cannot be: the table is not in hive style, so remove {fields[0]}="
    return _encoding_rejection(parts, table)


def _encoding_rejection(parts: list[str], table: TableConfig) -> str | None:
    """Return why parts are not spelled as in a table whose values are URL-encoded.

    Two spellings of one partition would be two scopes, whose writers do not wait for each other.
    """
    if not table.encodes_partitions:
        return None
    values = _values(parts, table)
    spelled = "/".join(_encoded(value, hive_style=table.hive_style_partitioning) for value in values)
    if spelled == "/".join(parts):
        return None
    return f"cannot be: the table URL-encodes partition values, so write {spelled}"


def _values(parts: list[str], table: TableConfig) -> list[str]:
    """Return parts with one for each field: a slash between two parts may belong to a value."""
    if table.separates_dates:
        return parts
    if not table.hive_style_partitioning:
        last = len(table.partition_fields) - 1
        return [*parts[:last], "/".join(parts[last:])] if len(parts) > last else parts
    values: list[str] = []
    for part in parts:
        if "=" in part:
            values.append(part)
        else:
            values[-1] += f"/{part}"
    return values


def _encoded(part: str, *, hive_style: bool) -> str:
    """Return a part as Hudi spells it, whether its value was given encoded or not."""
    field, separator, value = part.partition("=") if hive_style and "=" in part else ("", "", part)
    decoded = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)
    return field + separator + _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", decoded)


def _hive_style_rejection(parts: list[str], fields: list[str]) -> str | None:
    named = [part.partition("=")[0] for part in parts if "=" in part]
    if "=" not in parts[0] or named != fields[: len(named)]:
        return f"cannot be: the table is partitioned by {'/'.join(f'{field}=...' for field in fields)}"
    return None

"""The table's configuration, and the partition paths that a user names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

TABLE_VERSIONS = tuple(range(2, 10))
"""The supported table versions: of Hudi 0.9 to 1.2."""
TIMELINE_LAYOUTS = (1, 2)
"""The supported layouts of the timeline."""
SUPPORTED = (
    f"table versions {TABLE_VERSIONS[0]} to {TABLE_VERSIONS[-1]} and timeline layouts "
    f"{' and '.join(map(str, TIMELINE_LAYOUTS))}"
)
"""Both, as messages and pages name them."""
_MOST_SHOWN = 20
# Hudi escapes these characters of a value, and no other ones (PartitionPathEncodeUtils, 1.2.0).
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_DATE_FORMAT = "hoodie.keygen.timebased.output.dateformat"
_JAVA_DATE = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M"}
_SLASHED = re.compile(r"^(\d{4})/(\d{2})/(?=\d{2})")
_TIME, _TIME_OF_DAY = re.compile("HH|mm"), re.compile(r"[T /]\d{2}(:|$)")
_JAVA_PART = re.compile("|".join(_JAVA_DATE))
NOT_BELOW = "is not a path below the table"


def unsupported(properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why properties are unsupported, and the remedy; ``None`` if they are not."""
    version = properties["hoodie.table.version"]
    layout = properties.get("hoodie.timeline.layout.version", "1")
    if version not in map(str, TABLE_VERSIONS):
        what = f"has table version {version[:_MOST_SHOWN]}"
    elif layout not in map(str, TIMELINE_LAYOUTS):
        what = f"has timeline layout {layout[:_MOST_SHOWN]}"
    else:
        return None
    newest = TABLE_VERSIONS[-1]
    why = f"{what}, which is not supported; supported are {SUPPORTED}"
    if version in map(str, range(TABLE_VERSIONS[0])):
        return why, "upgrade the table with Hudi 0.15 or later; its next write does that by default"
    return why, (
        "update airflow-occ-provider; if no release of it reads this table, downgrade the table (CALL "
        f"downgrade_table in Spark SQL), and give each writer of a newer Hudi "
        f"hoodie.write.table.version={newest} and hoodie.write.auto.upgrade=false"
    )


@dataclass(frozen=True, slots=True)
class TableConfig:
    """The properties of a table, with Hudi's defaults.

    :param properties: the file's keys and values; empty for a table that does not exist yet.
    """

    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Whether the table exists."""
        return bool(self.properties)

    @property
    def name(self) -> str:
        """The value of ``hoodie.table.name``, or empty."""
        return self.properties.get("hoodie.table.name", "")

    @property
    def full_name(self) -> str:
        """The table's name, preceded by its database's name if it has one."""
        return ".".join(filter(None, (self.properties.get("hoodie.database.name"), self.name)))

    @property
    def version(self) -> int:
        """The value of ``hoodie.table.version``."""
        return int(self.properties.get("hoodie.table.version", "6"))

    @property
    def layout_version(self) -> int:
        """The timeline's layout: 1 up to table version 6, 2 from version 8."""
        return int(self.properties.get("hoodie.timeline.layout.version", "1"))

    @property
    def is_timeline_in_utc(self) -> bool:
        """Whether instants are requested in UTC, not in the zones of their writers."""
        return self.properties.get("hoodie.table.timeline.timezone", "LOCAL").upper() == "UTC"

    @property
    def merge_on_read(self) -> bool:
        """Whether the table is merge-on-read."""
        return self.properties.get("hoodie.table.type") == "MERGE_ON_READ"

    @property
    def timeline_folder(self) -> str:
        """The active timeline's folder, relative to the base path.

        The layout decides, not ``hoodie.timeline.path``: tables of version 6 made by a 1.x writer have
        that property and do not use it.
        """
        if self.layout_version == 1:
            return ".hoodie"
        return f".hoodie/{self.properties.get('hoodie.timeline.path', 'timeline')}"

    @property
    def history_folder(self) -> str:
        """The folder of archived instants, relative to the base path."""
        if self.layout_version == 1:
            return f".hoodie/{self.properties.get('hoodie.archivelog.folder') or 'archived'}"
        return f"{self.timeline_folder}/{self.properties.get('hoodie.timeline.history.path', 'history')}"

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The names in ``hoodie.table.partition.fields``, without their types."""
        fields = self.properties.get("hoodie.table.partition.fields", "").split(",")
        return tuple(filter(None, (text.partition(":")[0].strip() for text in fields)))

    @property
    def has_record_keys(self) -> bool:
        """Whether records have keys of their own, and not ones that Hudi generates."""
        return bool(self.properties.get("hoodie.table.recordkey.fields"))

    @property
    def hive_style_partitioning(self) -> bool:
        """Whether partition paths have the form ``field=value``."""
        key = "hoodie.datasource.write.hive_style_partitioning"
        return self.properties.get(key, "false").lower() == "true"

    @property
    def encodes_partitions(self) -> bool:
        """Whether the values in partition paths are URL-encoded."""
        key = "hoodie.datasource.write.partitionpath.urlencode"
        return self.properties.get(key, "false").lower() == "true"

    @property
    def separates_dates(self) -> bool:
        """Whether a date is three folders of a partition path: year, month and day."""
        key = "hoodie.datasource.write.slash.separated.date.partitioning"
        return self.properties.get(key, "false").lower() == "true"

    @property
    def has_meta_fields(self) -> bool:
        """Whether rows have Hudi's own columns, such as ``_hoodie_commit_time``."""
        return self.properties.get("hoodie.populate.meta.fields", "true").lower() != "false"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """The partitions of the metadata table, such as ``files`` and ``record_index``."""
        partitions = self.properties.get("hoodie.table.metadata.partitions", "")
        return tuple(filter(None, partitions.split(",")))

    @property
    def has_record_index(self) -> bool:
        """Whether writers may find their records by a record index."""
        return "record_index" in self.metadata_partitions

    @property
    def concurrency_mode(self) -> str | None:
        """The value of ``hoodie.write.concurrency.mode``, if the properties have it."""
        return self.properties.get("hoodie.write.concurrency.mode")


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


def partition_of(value: str, table: TableConfig) -> str | None:
    """Return the path of the partition whose rows have a value in the partition field.

    Spelled as Hudi does (1.2.0 and 0.15.0, seen): in hive style, encoded, with slashes in dates, or by
    the format of a key generator of timestamps. A path in hive style stands for itself.

    :param value: such as ``2026-11-29``.
    :returns: ``None`` if it is not certain: the table is not there yet, or has several partition
        fields, or a format of dates that is not understood.
    """
    fields = table.partition_fields
    is_path = table.hive_style_partitioning and value.startswith(tuple(f"{name}=" for name in fields))
    if is_path and rejection_reason(value, table) is None:
        return value
    spelled = _formatted(value, table.properties.get(_DATE_FORMAT, ""))
    if len(fields) != 1 or not spelled:
        return None
    if table.separates_dates:  # given as one, or as the folders that it is
        spelled = _SLASHED.sub(r"\1-\2-", spelled)
    if table.encodes_partitions:
        spelled = _escaped(_decoded(spelled))
    if table.separates_dates:
        spelled = spelled.replace("-", "/")
    path = f"{fields[0]}={spelled}" if table.hive_style_partitioning else spelled
    return None if rejection_reason(path, table) else path


def value_of(partition: str) -> str:
    """Return the value that a partition's path shows; of several fields, the path.

    ``partition_of`` turns it into the path again, unless the value itself has a ``=`` or looks encoded.

    :param partition: such as ``dt=2026-11-29 05%3A00``.
    """
    _, is_named, text = partition.partition("=")
    if "=" in text:
        return partition
    shown = text if is_named else partition
    value = _decoded(shown)
    return value if _escaped(value) == shown else shown


def _formatted(value: str, java_format: str) -> str:
    """Return a value in a format of dates; itself without one, empty if that cannot be said."""
    if not java_format:
        return value
    if re.search("[A-Za-z'%]", _JAVA_PART.sub("", java_format)):
        return ""
    if _TIME.search(java_format) and not _TIME_OF_DAY.search(value):
        return ""  # a day is not one of its hours
    format_ = _JAVA_PART.sub(lambda part: _JAVA_DATE[part[0]], java_format)
    for read in (datetime.fromisoformat, lambda text: datetime.strptime(text, format_)):  # noqa: DTZ007
        with suppress(ValueError):
            moment = read(value)
            # Hudi formats in a time zone of its own.
            return "" if moment.utcoffset() else moment.strftime(format_)
    return ""


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
    return field + separator + _escaped(_decoded(value))


def _decoded(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _escaped(value: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", value)


def _hive_style_rejection(parts: list[str], fields: list[str]) -> str | None:
    named = [part.partition("=")[0] for part in parts if "=" in part]
    if "=" not in parts[0] or named != fields[: len(named)]:
        return f"cannot be: the table is partitioned by {'/'.join(f'{field}=...' for field in fields)}"
    return None

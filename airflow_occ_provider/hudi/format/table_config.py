"""The table's configuration, ``hoodie.properties``: Hudi's ``HoodieTableConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

"""What a write must leave as it is for the other writers of a table.

Tables of version 6, which older releases write too, are at stake:

- Hudi 1.0.2 upgrades the metadata table alone if a write does not name the table's version, also when it
  may not upgrade the table. Writers of 0.15.0 fail from then on.
- A write whose options ask for an index that the metadata table does not have adds it as it starts, but
  only while no other action is pending. Beside one, Hudi leaves the metadata table as it is for the
  whole write: the files of its commit are not in it. The next writer lists files by it, and overwrites
  that commit's rows, which no check of conflicts sees. By default 1.0.2, 1.1.1 and 1.2.0 ask for such an
  index, which tables of 0.15.0 do not have. Tables since version 8 were seen to be safe.
- A write that does not ask for an index that is there removes it, so that the next one adds it again.

A table of version 8 may have writers of Hudi 1.0. Since 1.1 a write begins its commit of the metadata
table before its own, and completes it at the end. Beside 1.0.2 that of 1.2.0 was gone by then in 4 of
30 races, and the write failed. So it begins it at the end, as 1.0 does.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.options import Rule, option_pattern

_VERSION_OPTION, _VERSION = "hoodie.write.table.version", 6
_STREAMING, _OF_1_0 = "hoodie.metadata.streaming.write.enabled", 8
_OF_RECORDS = "hoodie.metadata.record.index.enable"
_INDEXES = {
    "hoodie.metadata.index.column.stats.enable": "column_stats",
    "hoodie.metadata.index.partition.stats.enable": "partition_stats",
    "hoodie.metadata.index.bloom.filter.enable": "bloom_filters",
    _OF_RECORDS: "record_index",
    "hoodie.metadata.global.record.level.index.enable": "record_index",  # its name since 1.1
}
_BY_PARTITION = "hoodie.metadata.record.level.index.enable"  # the other kind, since 1.1
_REMEDY = (
    "remove it: a write that adds or removes an index of this table beside another write leaves its own "
    "files out of the metadata table, and the next writer overwrites its rows. Change the indexes by a "
    "program that is no task of this provider, while nothing else writes the table, or upgrade the table"
)


def table_options(config: TableConfig) -> dict[str, str]:
    """Return the options by which a write keeps a table's format and indexes.

    Empty for tables of other versions than 6 and 8.
    """
    if not config.exists or config.version not in (_VERSION, _OF_1_0):
        return {}
    if config.version == _OF_1_0:
        return {_STREAMING: "false"}
    present = config.metadata_partitions
    indexes = {option: str(index in present).lower() for option, index in _INDEXES.items()}
    if indexes[_OF_RECORDS] == "false":
        indexes[_BY_PARTITION] = "false"
    return {_VERSION_OPTION: str(_VERSION), **indexes}


def table_rules(options: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules by which nothing sets these options otherwise.

    :param options: what ``table_options`` has returned, or all options of an attempt.
    """
    if options.get(_VERSION_OPTION) != str(_VERSION):
        return ()
    guarded = [option for option in (*_INDEXES, _BY_PARTITION) if option in options]
    version = Rule(
        option_pattern(_VERSION_OPTION),
        str(_VERSION),
        "remove it: older writers cannot read what another version leaves",
    )
    return (version, *(Rule(option_pattern(name), f"(?i:{options[name]})", _REMEDY) for name in guarded))

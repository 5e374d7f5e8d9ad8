"""What a write must leave as it is for the other writers of a table.

Tables up to version 7, which older releases write too, are at stake:

- Hudi 1.0 upgrades the metadata table alone if a write does not name the table's version, also when it
  upgrades no tables. Writers of 0.15 fail from then on.
- A write whose options ask for an index that the metadata table does not have adds it as it starts, but
  only while no other action is pending. Beside one, Hudi leaves the metadata table as it is for the
  whole write: the files of its commit are not in it. The next writer lists files by it, and overwrites
  that commit's rows, which no check of conflicts sees. By default 1.0.2, 1.1.1 and 1.2.0 ask for such an
  index, which tables of 0.15.0 do not have. Tables since version 8 were seen to be safe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.options import Rule

_WRITTEN_BY_OLDER = 6
_SAFE_SINCE = 8
_INDEXES = {
    "column_stats": "hoodie.metadata.index.column.stats.enable",
    "partition_stats": "hoodie.metadata.index.partition.stats.enable",
    "bloom_filters": "hoodie.metadata.index.bloom.filter.enable",
    "record_index": "hoodie.metadata.record.index.enable",
}


def table_options(config: TableConfig) -> dict[str, str]:
    """Return the options by which a write leaves a table as it is.

    :param config: of the table; one without a metadata table needs no option for that.
    """
    if not config.exists or config.version >= _SAFE_SINCE:
        return {}
    indexes = config.metadata_partitions
    missing = [option for index, option in _INDEXES.items() if index not in indexes] if indexes else []
    version = str(config.version)
    kept = {"hoodie.write.table.version": version} if config.version == _WRITTEN_BY_OLDER else {}
    return kept | dict.fromkeys(missing, "false")


def table_rules(options: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules by which nothing sets these options otherwise.

    :param options: what ``table_options`` has returned, or all options of an attempt.
    """
    return tuple(
        Rule(
            f"(?:spark\\.)?{re.escape(option)}",
            "(?i:false)",
            "remove it: a write that adds an index to this table beside another write leaves its own "
            "files out of the metadata table, and the next writer overwrites its rows. Add the index "
            "while nothing else writes, by a job of its own",
        )
        for option in _INDEXES.values()
        if options.get(option) == "false"
    )

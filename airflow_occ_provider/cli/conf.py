"""``airflow hudi conf``: the options of a safe writer without this provider."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.options import (
    LOCK_PROVIDER,
    METASTORE_LOCK_PROVIDER,
    writer_options,
)
from airflow_occ_provider.hudi.writer.table_options import table_options
from airflow_occ_provider.storage.address import parse_table_path

_HEAD = (
    "# The hudi-defaults.conf of a program that writes {table} beside HudiWriteOperator.",
    "# Spark reads it from HUDI_CONF_DIR or /etc/hudi/conf, for DataFrames and for SQL. Flink, and a",
    "# program with options of its own, need the same values as options of the write or of the table.",
    "# With them Hudi checks each commit against the others. Such a program does not wait in the queue.",
)
_ONE_TABLE = (
    "# The lock of a metastore has one name for all that a program writes: use these for this table",
    "# alone, and give a program that writes several tables a lock in ZooKeeper.",
)

_OLD_TABLE = (
    "# hoodie.write.table.version and hoodie.metadata.* are those of this table as it is now: use them",
    "# for it alone, and print this again after an upgrade of the table, or a change of its indexes.",
)


@exit_on_error
def conf(args: argparse.Namespace) -> None:
    """Print the options as a properties file, or as JSON or YAML."""
    parse_table_path(args.table)
    config = open_table(args.table, args.conn_id, timeout_s=args.timeout).config()
    if not config.exists:
        print(f"{args.table} does not exist yet: print this again once it does", file=sys.stderr)
    of_table = table_options(config)
    options = {**writer_options(lock_hook(args.lock_conn_id).options(args.table), {}), **of_table}

    def print_text(show: Callable[[Rows], None]) -> None:
        if args.output == "plain":
            show({"option": key, "value": value} for key, value in options.items())
        else:
            print("\n".join(_lines(args.table, options, of_table)))

    print_described(options, args.output, print_text)


def _lines(table: str, options: Mapping[str, str], of_table: Mapping[str, str]) -> list[str]:
    one_table = options[LOCK_PROVIDER] == METASTORE_LOCK_PROVIDER
    head = (*_HEAD, *(_ONE_TABLE if one_table else ()), *(_OLD_TABLE if of_table else ()))
    return [
        *(line.format(table=table) for line in head),
        *(f"{key}={value}" for key, value in options.items()),
    ]

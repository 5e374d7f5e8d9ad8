"""Spark SQL that calls one of Hudi's procedures, for a person to run."""

from __future__ import annotations

from airflow_occ_provider.hudi.format.table_config import TableConfig


def procedure_call(procedure: str, table: TableConfig, instant: str) -> str:
    """Return the statement that calls a procedure on a table and one of its instants.

    :param procedure: name of the procedure.
    :param table: the table's configuration, with its name in the catalog.
    :param instant: requested time of the instant.
    """
    quoted = "".join(map(_quoted, table.full_name))
    return f"CALL {procedure}(table => '{quoted}', instant_time => '{instant}')"


def _quoted(character: str) -> str:
    """Return a character escaped for a one-line string literal of Spark SQL."""
    if character in "\\'":
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"

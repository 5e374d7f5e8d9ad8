"""Reads a text of Spark SQL: what it writes, and whether it reads that before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.storage.address import canonical_table

_DIALECT = "spark"
_CATALOG, _DATABASE = "spark_catalog", "default"
_SPARKS_OWN_SETTING = re.compile(r"spark\.sql\.(?!catalog\.|extensions\b)[\w.]+", re.IGNORECASE)
_HUDI_OPTION = re.compile(r"(?:spark\.)?(?:hoodie\.|_)", re.IGNORECASE)
_SESSION_WORDS = ("TIME", "VAR", "VARIABLE", "-")  # SET TIME ZONE, variables of a session, SET -v
_SUBSTITUTION = re.compile(r"\$\{[^}]+\}")
# Of Hudi 0.15 to 1.2. Not show_invalid_parquet, which may delete files.
_READING_PROCEDURES = frozenset(
    {
        "commits_compare",
        "help",
        "show_archived_commits",
        "show_archived_commits_metadata",
        "show_audit_lock_status",
        "show_bootstrap_mapping",
        "show_bootstrap_partitions",
        "show_clean_plans",
        "show_cleans",
        "show_cleans_metadata",
        "show_clustering",
        "show_commit_extra_metadata",
        "show_commit_files",
        "show_commit_partitions",
        "show_commit_write_stats",
        "show_commits",
        "show_commits_metadata",
        "show_compaction",
        "show_file_status",
        "show_fs_path_detail",
        "show_fsview_all",
        "show_fsview_latest",
        "show_logfile_metadata",
        "show_logfile_records",
        "show_metadata_column_stats_overlap",
        "show_metadata_table_column_stats",
        "show_metadata_table_files",
        "show_metadata_table_partitions",
        "show_metadata_table_stats",
        "show_rollback_detail",
        "show_rollbacks",
        "show_savepoints",
        "show_table_properties",
        "show_timeline",
        "stats_file_sizes",
        "stats_wa",
        "validate_audit_lock",
        "validate_metadata_table_files",
    }
)
_OF_OPERATORS = {
    "run_clustering": "use HudiClusteringOperator",
    "run_compaction": "use HudiCompactionOperator",
    "run_clean": "use HudiCleanOperator",
    "copy_to_temp_view": "use CREATE TEMPORARY VIEW",
}
_ALONE = "run it in a task of its own under HudiLeaseOperator, while no other writer runs"
_HARMLESS = ("Select", "SetOperation", "Subquery", "Cache", "Uncache", "Refresh", "Describe")
_HARMLESS_COMMANDS = ("SHOW", "EXPLAIN")
_REMEDIES = {
    "Use": "name tables with their database, so that what is written can be checked",
    "MultitableInserts": "write each table by a task of its own",
}


@dataclass(frozen=True, slots=True)
class SqlText:
    """The statements of a text, of which one writes.

    :param statements: in their order, without the semicolons between them.
    :param target: the table as the writing statement names it.
    :param reads: why the statement reads the table that it writes; empty if it does not.
    :param overwrites: whether it is an ``INSERT OVERWRITE``.
    """

    statements: tuple[str, ...]
    target: str
    reads: str
    overwrites: bool = False


def read_sql(text: str, table: str, name: str) -> SqlText:
    """Read a text of Spark SQL, and refuse what cannot be made safe.

    :param table: base path of the table that it may write.
    :param name: by which its statements name that table.
    :raises ConfigurationError: if it does not parse, writes another table, or does not write exactly
        once; or for a statement that Hudi's check for conflicts does not cover.
    """
    reader = _ScriptReader(canonical_table(table), _parts(name))
    statements = tuple(split(text))
    for statement in statements:
        reader.take(statement)
    if len(reader.writes) != 1:
        shown = "; ".join(map(_shortened, reader.writes)) or "none"
        raise ConfigurationError(
            "sql",
            f"{len(reader.writes)} of its statements write ({shown}), and a task run makes one commit",
            remedy="write once: use temporary views for what comes before, and a task for each write",
        )
    implied = reader.implied or ("it also reads what it writes" if reader.is_read else "")
    return SqlText(statements, reader.target, implied, reader.overwrites)


def refuse_sql(text: str, table: str, name: str | None) -> None:
    """Refuse a text that can be judged without the table.

    :param name: by which its statements name the table; ``None`` if only the table tells, so that the
        first table that is written counts as it.
    :raises ConfigurationError: as ``read_sql``.
    """
    from sqlglot import exp

    if name is None:
        trees = (_writing_part(_parsed(statement)) for statement in split(text))
        written = (tree.find(exp.Table) for tree in trees if isinstance(tree, exp.DML))
        target = next((table_name for table_name in written if table_name), None)
        name = ".".join(part.name for part in target.parts) if target else "t"
    read_sql(text, table, name)


def split(text: str) -> Iterator[str]:
    """Yield the statements of a text; comments and strings may contain semicolons.

    :raises ConfigurationError: if a string or a comment does not end.
    """
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError

    try:
        tokens = tokenize(text, dialect=_DIALECT)
    except SqlglotError as error:
        raise ConfigurationError(
            "sql", f"is not Spark SQL: {error}", remedy="close its strings and comments"
        ) from error
    begun = ended = None
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            if begun is not None and ended is not None:
                yield text[begun : ended + 1]
            begun = ended = None
        else:
            begun = token.start if begun is None else begun
            ended = token.end
    if begun is not None and ended is not None:
        yield text[begun : ended + 1]


class _ScriptReader:
    """Reads statement by statement.

    :param path: the canonical path of the table.
    :param name: the parts of its name, in lower case.
    """

    def __init__(self, path: str, name: Sequence[str]) -> None:
        self._path = path
        self._name = ".".join(name)
        full = (_DATABASE, *name) if len(name) == 1 else tuple(name)
        self._own = {tuple(name), full, (_CATALOG, *full)}
        self.writes: list[str] = []
        self.target = ""
        self.implied = ""
        self.overwrites = False
        self.is_read = False

    def take(self, statement: str) -> None:
        """Take the next statement."""
        if _SUBSTITUTION.search(statement):
            _refuse(
                statement,
                "has a ${variable}, by which Spark changes the statement before it reads it",
                "use a template of Airflow",
            )
        first = _words(statement)[0].upper()
        words = _words(
            statement[len(first) :]
        )  # apart, for the tokenizer does not split all verbs' rest
        if first in ("SET", "RESET"):
            self._set(first, words, statement)
            return
        tree = _parsed(statement)
        writing = _writing_part(tree)
        kinds = {kind.__name__ for kind in type(writing).__mro__}
        target = None
        if kinds & {"Merge", "Update", "Delete", "Insert"}:
            target = self._write(writing, statement)
        elif first == "CALL":
            self._call(words, statement)
        elif not self._is_harmless(tree, kinds, statement):
            remedy = _REMEDIES.get(type(tree).__name__, _ALONE)
            _refuse(statement, "is not covered by Hudi's check for conflicts", remedy)
        self._note_reads(tree, target)

    def _write(self, tree: Any, statement: str) -> Any:
        from sqlglot import exp

        table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        if not isinstance(table, exp.Table) or not self._is_own(table):
            _refuse(
                statement,
                f"does not write {self._name}, as which the task's table {self._path} is known to it",
                "write each table by a task of its own, or correct table or table_name",
            )
        self.writes.append(statement)
        self.target = ".".join(f"`{part.name}`" for part in table.parts)
        self.overwrites = bool(tree.args.get("overwrite"))
        word = type(tree).__name__.upper()
        if word in ("MERGE", "UPDATE"):
            self.implied = f"{word} reads the rows that it changes"
        elif word == "DELETE" and tree.args.get("where"):
            self.implied = "DELETE reads the rows that its predicate names"
        return table

    def _call(self, words: Sequence[str], statement: str) -> None:
        name = _joined(words, "(").rpartition(".")[2].lower()
        if name not in _READING_PROCEDURES:
            remedy = _OF_OPERATORS.get(name, _ALONE)
            _refuse(statement, "is not covered by Hudi's check for conflicts", remedy)

    def _set(self, verb: str, words: Sequence[str], statement: str) -> None:
        """Refuse to set what is not Spark SQL's own."""
        key = _joined(words, "=")
        if verb == "SET" and (not key or words[0].upper() in _SESSION_WORDS):
            return
        if _HUDI_OPTION.match(key):
            _refuse(statement, "sets an option of Hudi", "give it in hudi_options, which are checked")
        if not _SPARKS_OWN_SETTING.fullmatch(key):
            problem = f"sets {key}" if key else "resets all settings"
            _refuse(
                statement,
                f"{problem}, and a text may set Spark SQL's own settings only (spark.sql.*)",
                "give it in conf, or leave it out",
            )

    def _is_harmless(self, tree: Any, kinds: set[str], statement: str) -> bool:
        """Whether a statement changes the session at most."""
        from sqlglot import exp

        if isinstance(tree, exp.Create):
            if not (tree.find(exp.TemporaryProperty) and tree.kind in ("VIEW", "FUNCTION")):
                return False
            if tree.kind == "VIEW" and self._is_own(tree.find(exp.Table)):
                _refuse(statement, "hides the table that the task writes", "give the view another name")
            return True
        if isinstance(tree, exp.Command):
            return str(tree.this).upper() in _HARMLESS_COMMANDS
        return bool(kinds.intersection(_HARMLESS))

    def _note_reads(self, tree: Any, target: Any) -> None:
        from sqlglot import exp

        tables = (table for table in tree.find_all(exp.Table) if table is not target)
        texts = (literal.this for literal in tree.find_all(exp.Literal) if literal.is_string)
        self.is_read = self.is_read or (
            any(
                self._is_own(table) or self._is_at(table.name) or self._is_about(table)
                for table in tables
            )
            or any(map(self._is_at, texts))
        )

    def _is_own(self, table: Any) -> bool:
        return tuple(part.name.lower() for part in table.parts) in self._own

    def _is_about(self, table: Any) -> bool:
        """Whether it is a function that gets the table's name, such as ``hudi_table_changes('t')``."""
        from sqlglot import exp

        if not isinstance(table.this, exp.Func):
            return False
        texts = (literal.this for literal in table.this.find_all(exp.Literal) if literal.is_string)
        names = (column.sql(dialect=_DIALECT) for column in table.this.find_all(exp.Column))
        return any(_parts(text) in self._own for text in (*texts, *names))

    def _is_at(self, path: str) -> bool:
        try:
            return canonical_table(path) == self._path
        except ConfigurationError:
            return False


def _words(statement: str) -> list[str]:
    """Return the words of a text without quotes and comments."""
    from sqlglot import tokenize

    return [token.text for token in tokenize(statement, dialect=_DIALECT)]


def _joined(words: Sequence[str], until: str) -> str:
    """Return the words before another one, without spaces between them."""
    return "".join(words[: words.index(until)] if until in words else words)


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a table's name, in lower case."""
    return tuple(name.strip().lower().replace("`", "").split("."))


def _parsed(statement: str) -> Any:
    import logging

    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of each statement it cannot analyse
    try:
        return parse_one(statement, dialect=_DIALECT)
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise ConfigurationError(
            "sql",
            f"{_shortened(statement)!r} cannot be read, so that what it writes is unknown: {first}",
            remedy="correct it, or run it from a PySpark file (application)",
        ) from error


def _writing_part(tree: Any) -> Any:
    """Return the only insert of ``FROM source INSERT ...``, else the whole statement."""
    from sqlglot import exp

    inserts = list(tree.find_all(exp.Insert)) if isinstance(tree, exp.MultitableInserts) else []
    return inserts[0] if len(inserts) == 1 else tree


def _refuse(statement: str, problem: str, remedy: str) -> NoReturn:
    raise ConfigurationError("sql", f"{_shortened(statement)!r} {problem}", remedy=remedy)


def _shortened(statement: str) -> str:
    text = " ".join(statement.split())
    return text if len(text) <= 80 else f"{text[:77]}..."

"""Stops a job before a write that its own code would leave unprotected.

``run_job.py`` runs this file from its payload. It has PySpark's writers and sessions check what the job
gives them: an option, a setting, a statement of SQL. What a job does in the JVM itself, such as
``java_class``, passes by. It imports the standard library and PySpark only, and runs on Python 3.7.
"""

from __future__ import annotations

import functools
import inspect
import os
import re

COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
NAME = r"(?P<name>(?:`[^`]+`|\w+)(?:\s*\.\s*(?:`[^`]+`|\w+))*)"
CHANGES = re.compile(rf"\s*(?:(?P<word>MERGE)\s+INTO|(?P<verb>UPDATE))\s+{NAME}", re.IGNORECASE)
DELETES = re.compile(rf"\s*DELETE\s+FROM\s+{NAME}.*\bWHERE\b", re.IGNORECASE | re.DOTALL)
WRITES = re.compile(r"\s*(?:WITH|FROM|INSERT)\b", re.IGNORECASE)
INSERTS = re.compile(rf"\bINSERT\s+(?:INTO|OVERWRITE)\s+(?:TABLE\s+)?{NAME}", re.IGNORECASE)
SEPARATOR = "\x00"
READS_TABLE = (
    "reads what it writes, so that a commit of another writer in between would be lost: set "
    "isolation='serializable', or give the statement as sql"
)


def watch(wanted, contradiction, refuse):
    """Have PySpark's classes check what the job gives them.

    :param wanted: the rules, the task's table, and whether the job may read what it writes.
    :param contradiction: of ``run_job.py``: returns what a rule says of options, or None.
    :param refuse: reports why the job is stopped, and stops it.
    """
    from pyspark.sql import SparkSession, readwriter, streaming
    from pyspark.sql.conf import RuntimeConfig

    def check(pairs, place):
        options = [(str(key), text(value)) for key, value in pairs if key is not None]
        problem = contradiction(options, wanted["rules"], place)
        if problem:
            refuse(f"{problem}; {place_in_job()}")

    def check_statement(session, statement):
        check(settings(session), "Spark's session")
        name = "" if wanted["may_read"] else read_table(statement)
        if name and is_at(session, name, wanted["table"]):
            refuse(f"the job's SQL {shortened(statement)!r} {READS_TABLE}; {place_in_job()}")

    for kind in ("DataFrameWriter", "DataFrameWriterV2"):
        watch_options(getattr(readwriter, kind, None), check)
    watch_options(getattr(streaming, "DataStreamWriter", None), check)
    before(RuntimeConfig, "set", lambda _, key, value: check([(key, value)], "spark.conf of the job"))
    before(
        SparkSession.Builder,
        "config",
        lambda _, *arguments, **keywords: check(
            builder_settings(*arguments, **keywords), "the job's session"
        ),
    )
    before(
        SparkSession,
        "sql",
        lambda session, sqlQuery, *_, **named: check_statement(session, sqlQuery),  # noqa: ARG005, N803
    )


def watch_options(kind, check):
    """Check the options of a writer."""
    place = "the job's own write"
    before(kind, "option", lambda _, key, value: check([(key, value)], place))
    before(kind, "options", lambda *_, **options: check(options.items(), place))


def before(kind, name, check):
    """Check the arguments of a method before each call."""
    original = getattr(kind, name, None)
    if original is None:  # not of this release
        return

    @functools.wraps(original)
    def checked(*arguments, **keywords):
        check(*arguments, **keywords)
        return original(*arguments, **keywords)

    setattr(kind, name, checked)


def builder_settings(key=None, value=None, conf=None, **named):
    """Return the settings that a session's builder gets, in any of its forms."""
    several = named.get("map")
    if several is not None:
        return several.items()
    return conf.getAll() if conf is not None else [(key, value)]


def settings(session):
    """Return what is set in a session: for SQL it precedes Hudi's own configuration."""
    every = session._jsparkSession.sessionState().conf().getAllConfs().mkString(SEPARATOR)
    for pair in every.split(SEPARATOR):  # each is (key,value)
        key, _, value = pair[1:-1].partition(",")
        yield key, value


def read_table(statement):
    """Return the table that a statement writes and also reads; empty if there is none."""
    plain = COMMENT.sub(" ", str(statement))
    statement_match = CHANGES.match(plain) or DELETES.match(plain)
    if statement_match:
        return statement_match["name"]
    for insert in INSERTS.finditer(plain) if WRITES.match(plain) else ():
        reads = rf"\b(?:FROM|JOIN)\s+{re.escape(insert['name'])}(?![\w.`])"
        if re.search(reads, plain, re.IGNORECASE):
            return insert["name"]
    return ""


def is_at(session, name, table):
    """Whether a name of the session's catalog is the table at a path."""
    parts = [part.strip().strip("`") for part in name.split(".")][-2:]
    state = session._jsparkSession.sessionState()
    try:
        identifier = state.sqlParser().parseTableIdentifier(".".join(f"`{part}`" for part in parts))
        location = state.catalog().getTableMetadata(identifier).location().toString()
        return qualified(session, location) == qualified(session, table)
    except Exception:  # of another catalog, or not there: Spark says so itself
        return False


def qualified(session, location):
    """Return a location as Hadoop names it."""
    path = session._jvm.org.apache.hadoop.fs.Path(location)
    files = path.getFileSystem(session._jsc.hadoopConfiguration())
    return re.sub(r"^s3[an]?:", "s3:", files.makeQualified(path).toString()).rstrip("/")


def place_in_job():
    """Return where the job's own code stands."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__") != "__main__":
        frame = frame.f_back
    if frame is None:
        return "called in another thread or module of the job"
    return f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"


def text(value):
    """Return an option's value as PySpark passes it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shortened(statement):
    """Return the first words of a statement."""
    words = " ".join(str(statement).split())
    return words if len(words) <= 80 else f"{words[:77]}..."

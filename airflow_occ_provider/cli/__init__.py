"""The ``airflow hudi`` commands.

Airflow imports this at every ``airflow`` call, so each command loads its code when it runs.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError

from airflow.cli.cli_config import ARG_VERBOSE, ActionCommand, Arg, GroupCommand, lazy_load_command


def _positive(text: str) -> float:
    """Return an argument that is a positive and finite number."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def _count(text: str) -> int:
    """Return an argument that is a whole number of one or more."""
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


_FORMATS = ("table", "json", "yaml", "plain")
_LOG = Arg(
    ("log",),
    help="A driver's log, saved by Spark or Airflow, or the logs of its application in YARN; - for "
    "standard input",
)
_EXIT_CODE = Arg(("--exit-code",), type=int, default=None, help="The driver's exit code, if known")
_HTML = Arg(("-o", "--output"), choices=(*_FORMATS, "html"), default="table", help="Output format")
_OUTPUT = Arg(("-o", "--output"), choices=_FORMATS, default="table", help="Output format")
_TABLE = Arg(("table",), help="Base path of the table, absolute or a URL such as s3a://lake/trips")
_TABLES = Arg(("tables",), nargs="+", help="Base paths of tables, absolute or URLs")
_SINCE = Arg(("--since",), default="30d", help="How far back, such as 12h, 30d or 4w; default: 30d")
_CONN_ID = Arg(("--conn-id",), default=None, help="Airflow connection of the storage")
_TIMEOUT = Arg(
    ("--timeout",), type=float, default=60.0, help="Seconds that one request to the storage may take"
)
_ARCHIVED = Arg(("--archived",), action="store_true", help="Also show the archived instants")
_FILES = Arg(("--files",), action="store_true", help="Show the file groups of each instant")
_INSTANT = Arg(("--instant",), default=None, help="Requested time of one pending write; default: all")
_STRATEGY = Arg(
    ("--strategy",),
    choices=("simple", "bucket_index", "prefer_writer"),
    default=None,
    help="The writers' conflict resolution strategy; default: by the table's index",
)
_HUDI_VERSION = Arg(
    ("--hudi-version",),
    default=None,
    help="The writers' Hudi version, such as 1.2; default: inferred from their files",
)
_DAG_ID = Arg(("dag_id",), help="The DAG's id")
_RUN_ID = Arg(("run_id",), help="The run's id, such as manual__2026-11-21T10:00:00+00:00")
_TASK_ID = Arg(("task_id",), help="The task's id")
_MAP_INDEX = Arg(("--map-index",), type=int, default=-1, help="Index of a mapped task")
_DEFAULT_LOCK = "hudi_lock_default"
_LOCK_CONN_ID = Arg(
    ("--lock-conn-id",),
    default=_DEFAULT_LOCK,
    help=f"Lock connection of the writers; default: {_DEFAULT_LOCK}",
)
_LOCK_TESTED = Arg(
    ("lock_conn_id",),
    nargs="?",
    default=_DEFAULT_LOCK,
    help=f"The lock connection; default: {_DEFAULT_LOCK}",
)
_LOCK_IF_ANY = Arg(
    ("--lock-conn-id",),
    default=None,
    help=f"Lock connection of the writers; default: {_DEFAULT_LOCK}, if it exists",
)
_MINUTES = Arg(("--minutes",), type=float, default=60.0, help="How far back instants are shown")
_EVERY = Arg(("--every",), type=_positive, default=10.0, help="Seconds between two reads")
_ONCE = Arg(("--once",), action="store_true", help="Read once, also in a terminal")
_LOCK_KEY = Arg(
    ("--lock-key",),
    default=None,
    help="The lock's key; default: the table's name (hoodie.table.name)",
)
_ANY_TABLE = Arg(("table",), nargs="?", default=None, help="Base path of the table; default: all tables")
_ID = Arg(("--id",), required=True, help="Id of the request, from airflow hudi leases list")
_INTERVAL = Arg(
    ("--heartbeat-interval-ms",), type=_count, default=60_000, help="The writers' heartbeat interval"
)
_MISSES = Arg(("--tolerable-misses",), type=_count, default=2, help="The writers' tolerable misses")
_YES = Arg(("-y", "--yes"), action="store_true", help="Do not ask")
_FORCE = Arg(
    ("--force",),
    action="store_true",
    help="Release it although its last renewal is younger than its TTL",
)
_CONSUMER = Arg(("consumer",), help="The consumer's name")
_AT = Arg(
    ("--at",),
    required=True,
    help="earliest, latest, or the requested time of an instant, up to which all counts as read",
)
_READ = (_CONN_ID, _TIMEOUT, _OUTPUT, ARG_VERBOSE)


def _command(path: str, about: str, description: str, *args: Arg) -> ActionCommand:
    """Return the command that the last part of the path of its function names."""
    name = path.rpartition(".")[2].rpartition("_")[2]
    return ActionCommand(
        name=name,
        help=about,
        description=description,
        func=lazy_load_command(f"{__name__}.{path}"),
        args=args,
    )


_LEASE_COMMANDS = (
    _command(
        "leases.leases_list",
        "Show the queue of a table: holders, waiters and what blocks them",
        "Show the requests in the queue of one table, or of all tables, oldest first: holders, waiters "
        "and what blocks them, since when, and for which partitions.",
        *(_ANY_TABLE, _LOCK_CONN_ID, _OUTPUT, ARG_VERBOSE),
    ),
    _command(
        "leases.leases_release",
        "Remove a request from the queue by force",
        "Remove a request from the queue, whether it is held or waits. Its owner may be writing, and "
        "notices only at its next renewal. The request of a dead owner expires by itself. Without "
        "--force, a request is refused that was renewed within its TTL. Airflow's audit log gets the "
        "release and its account.",
        *(_TABLE, _ID, _FORCE, _YES, _LOCK_CONN_ID, ARG_VERBOSE),
    ),
)
_LOCK_COMMANDS = (
    _command(
        "locks.locks_show",
        "Show the holder and the waiters of Hudi's commit lock of a table",
        "Show the holder and the waiters of Hudi's own commit lock, if the lock provider makes them "
        "visible: ZooKeeper, the Hive metastore, a lock file, or Hudi's storage based lock.",
        *(_TABLE, _LOCK_CONN_ID, _LOCK_KEY, *_READ),
    ),
    _command(
        "locks.locks_test",
        "Test a lock connection: whether its service answers and grants",
        "Do what the button Test of a lock connection does: check its fields, take and release a lock "
        "or a lease in its service, and name the limits of that service. Exits with 1 if that fails. "
        "The command needs no [core] test_connection.",
        *(_LOCK_TESTED, ARG_VERBOSE),
    ),
)
_CHECKPOINT_COMMANDS = (
    _command(
        "checkpoints.checkpoints_list",
        "Show the consumers, and how far each has read its table",
        "Show the consumers of HudiIncrementalReadOperator, and how far each has read its table. The "
        "command needs access to Airflow's database.",
        *(_OUTPUT, ARG_VERBOSE),
    ),
    _command(
        "checkpoints.checkpoints_set",
        "Set how far a consumer has read a table",
        "Set how far a consumer has read a table: nothing (earliest), all commits so far (latest), or "
        "up to an instant. The command needs access to Airflow's database.",
        *(_CONSUMER, _TABLE, _AT, _CONN_ID, _TIMEOUT, _YES, ARG_VERBOSE),
    ),
)
_COMMANDS = (
    _command(
        "table.timeline",
        "Show the instants of a Hudi table",
        "Show the instants of a Hudi table, oldest first, in Hudi's terms.",
        *(_TABLE, _ARCHIVED, _FILES, *_READ),
    ),
    _command(
        "table.writers",
        "Show the pending writes of a Hudi table, and whether their writers are alive",
        "Show the pending writes and table services of a Hudi table with their heartbeats, judged by "
        "Hudi's defaults of 60 seconds and 2 tolerable misses.",
        *(_TABLE, _LOCK_IF_ANY, *_READ),
    ),
    _command(
        "table.conflicts",
        "Show which pending writes of a Hudi table will be refused, and because of which rival",
        "Show for each pending write whether Hudi's commit check will refuse it: certain, possible or "
        "none, with the rival and the file groups that both touch.",
        *(_TABLE, _LOCK_IF_ANY, _INSTANT, _STRATEGY, _HUDI_VERSION, *_READ),
    ),
    _command(
        "ghosts.ghosts",
        "Show what dead writers left in a Hudi table, and what to do about it",
        "Show the pending writes of a Hudi table with the time until Hudi's lazy clean counts them as "
        "dead, and the markers, heartbeats and data files that Hudi does not remove by itself: each "
        "with proof and remedy. Nothing is deleted.",
        *(_TABLE, _LOCK_IF_ANY, _INTERVAL, _MISSES, *_READ),
    ),
    _command(
        "doctor.doctor",
        "Show what in a Hudi table is unsafe for concurrent writers, with evidence and remedy",
        "Examine the metadata of a Hudi table: commits that no check let through, rollbacks of live "
        "writers, lost files, time zones and clocks, unsigned writers, stuck table services, residue, "
        "and whether the writers use Hudi's lock of the lock connection. "
        "Exits with 3 if a finding is worse than a notice. Nothing is written.",
        *(_TABLE, _LOCK_IF_ANY, _INTERVAL, _MISSES, *_READ),
    ),
    _command(
        "report.report",
        "Show what concurrent writing has cost tables: the lost writes, and what they lost to",
        "Show the writes of tables that ended without a commit, also of writers without this provider: "
        "the time of their drivers, the writes that they lost a conflict to, the partitions and pairs "
        "that collide most, each day, and what is unsafe. Reads the timeline and the history; nothing "
        "is written. --output html prints one page.",
        *(_TABLES, _SINCE, _LOCK_IF_ANY, _INTERVAL, _MISSES, _CONN_ID, _TIMEOUT, _HTML, ARG_VERBOSE),
    ),
    _command(
        "conf.conf",
        "Print the options that make another program a safe writer beside HudiWriteOperator",
        "Print a hudi-defaults.conf for a program that writes the table without this provider, such as "
        "spark-sql, a Thrift server, dbt or Flink: optimistic concurrency control, a lazy clean, and "
        "the lock and heartbeats of the lock connection, and what keeps the table as its other writers "
        "need it.",
        *(_TABLE, _LOCK_CONN_ID, *_READ),
    ),
    _command(
        "top.top",
        "Show the writers of a Hudi table, its queue and its dead writers, live",
        "Show the writers of a Hudi table with their heartbeats and verdicts, its pending table "
        "services, its last instants, and its queue, until interrupted. Nothing is written.",
        *(_TABLE, _LOCK_IF_ANY, _MINUTES, _EVERY, _ONCE, *_READ),
    ),
    _command(
        "outcome.outcome",
        "Show the outcome of a Spark job that wrote a Hudi table, from its log",
        "Show the outcome of an attempt from its driver's saved log, with the lines that decide it and "
        "the remedy. Only the table shows for certain whether the attempt committed.",
        *(_LOG, _EXIT_CODE, _OUTPUT),
    ),
    _command(
        "attempts.attempts",
        "Show the attempts of a task run, and the state of their instants in the table",
        "Show the attempts of one HudiWriteOperator task: their drivers, how they ended, and the state "
        "of each instant in the table. The command needs access to Airflow's database.",
        *(_DAG_ID, _RUN_ID, _TASK_ID, _MAP_INDEX, *_READ),
    ),
    GroupCommand("locks", "Show Hudi's commit lock, and test a lock connection", _LOCK_COMMANDS),
    GroupCommand("leases", "Show and release the leases of a table's writers", _LEASE_COMMANDS),
    GroupCommand("checkpoints", "Show and set how far consumers have read", _CHECKPOINT_COMMANDS),
)


def get_cli_commands() -> list[GroupCommand]:
    """Return the ``airflow hudi`` commands."""
    return [GroupCommand("hudi", "Inspect concurrent writes of Hudi tables", _COMMANDS)]

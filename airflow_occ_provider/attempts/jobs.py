"""The kinds of a user's job, the PySpark file that runs each, and their digest.

``in_driver/run_job.py`` protects the driver and runs a PySpark file: the user's own, or one of ours that
runs what is not a PySpark file. Everything else of an attempt is the same for all kinds.
"""

from __future__ import annotations

import base64
import hashlib
import io
import pickle
import pickletools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from airflow_occ_provider.attempts.sql_text import SqlText, read_sql
from airflow_occ_provider.attempts.submission import SparkJob, local_path
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import (
    RULES,
    SIGNATURE_PREFIX,
    SQL_RULES,
    Rule,
    contradictions,
)
from airflow_occ_provider.in_driver import run_function, run_main, run_sql
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.table import HudiTable

MERGE_ON_READ = "MERGE_ON_READ"
_TARGET, _OPTION = "--target-base-path", "--hoodie-conf"
_LOCK = "hoodie.write.lock."
_REFUSED = {
    "--continuous": (
        "commits again and again, and a task run makes one commit",
        "leave it out, and let Airflow schedule the rounds",
    ),
    "--props": (
        "names a file whose options go before the protection's",
        "give the options in hudi_options, which are checked",
    ),
    "--run-bootstrap": (
        "Hudi does not bootstrap a table beside other writers",
        "bootstrap the table while no writer runs",
    ),
    "--spark-master": ("would start Spark elsewhere", "name the master in the Spark connection"),
}
_OF_DRIVERS = frozenset({*sys.stdlib_module_names, "numpy", "pandas", "pyspark"})
"""Modules of values that a driver's Python can read; it may have neither Airflow nor a DAG's modules."""
_OBJECTS_OF_CONTEXT = frozenset(
    {"conn", "dag", "dag_run", "inlet_events", "macros", "outlet_events", "task"}
    | {"task_instance", "task_state_store", "asset_state_store", "ti", "triggering_asset_events", "var"}
)


def streamer_arguments(
    table: str, name: str, kind: str, *, source: str | None, ordering: str | None, operation: str
) -> tuple[str, ...]:
    """Return the arguments of one round of Hudi Streamer.

    :param name: the table's name.
    :param kind: the table's type.
    :param source: the class of the source.
    :param ordering: the field by which the younger of two rows with one key is known.
    :param operation: Hudi's name of the write operation, in any case.
    """
    options = {
        _TARGET: table,
        "--target-table": name,
        "--table-type": kind,
        "--op": operation.upper(),
        "--source-class": source,
        "--source-ordering-field": ordering,
    }
    arguments = [part for key, value in options.items() if value for part in (key, value)]
    # Table services run in tasks of their own, which are queued for them.
    return (*arguments, *(("--disable-compaction",) if kind == MERGE_ON_READ else ()))


def refuse_unsafe_arguments(arguments: Sequence[object], table: str) -> None:
    """Refuse arguments of Hudi Streamer that take away the protection.

    :param table: base path of the task's table.
    :raises ConfigurationError: with the first of them, and the remedy.
    """
    targets = []
    for key, value in _pairs(arguments):
        if key in _REFUSED and value.lower() != "false":
            problem, remedy = _REFUSED[key]
            raise _refusal(f"{key}: {problem}", remedy)
        if key == _OPTION:
            _refuse_option(value)
        if key == _TARGET:
            targets.append(value)
    if [canonical_table(target) for target in targets] != [canonical_table(table)]:
        named = ", ".join(targets) or "no table"
        raise _refusal(f"{_TARGET} names {named}, and the task's table is {table}", f"name {table}")


def _refuse_option(option: str) -> None:
    key, _, value = option.partition("=")
    for contradiction in contradictions([(key, value)], _OPTION):
        raise _refusal(f"{_OPTION} {option} contradicts safe concurrent writing", contradiction.remedy)
    if key.strip().startswith((_LOCK, SIGNATURE_PREFIX)):
        raise _refusal(f"{_OPTION} {option} goes before the lock connection", "leave it out")


def _pairs(arguments: Sequence[object]) -> Iterator[tuple[str, str]]:
    """Yield each option with what follows it; JCommander also takes ``--key=value``."""
    words = [str(argument) for argument in arguments]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        key, equals, value = word.partition("=")
        if word.startswith("--"):
            yield (key, value) if equals else (word, "" if following.startswith("--") else following)


def _refusal(problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError("application_args", problem, remedy=remedy)


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of the work.

    One of the DAG bundle counts by its path there, another by its name and content.

    :param path: as the user gave it; on this machine, or a URL.
    """

    path: str


def work_digest(words: Iterable[object], folders: Sequence[str] = ()) -> str:
    """Return a digest of the rendered work of a task run.

    :param words: its parts, in their order: text, files and values that can be pickled.
    :param folders: paths of the DAG bundle on this machine, which its versions do not share.
    :raises ConfigurationError: for a value that has no canonical form.
    """
    try:
        return hashlib.sha256(canonical(tuple(words), folders)).hexdigest()[:16]
    except Exception as error:
        raise ConfigurationError(
            "application_args",
            f"they have a value that does not go to the driver: {error}",
            remedy="give text and numbers",
        ) from error


def canonical(value: object, folders: Sequence[str] = ()) -> bytes:
    """Return the same bytes for equal values, in each process.

    A plain pickle differs with the order of a set, and with whether equal texts are one object.

    :param folders: paths that are left out where text begins with them, or has them after a separator.
    :raises Exception: for a value that cannot be pickled, or contains itself.
    """
    written = io.BytesIO()
    _CanonicalPickler(written, folders).dump(value)
    return written.getvalue()


class _CanonicalPickler(pickle.Pickler):
    """Writes values by what they are equal by; what it writes is never read."""

    def __init__(self, file: io.BytesIO, folders: Sequence[str]) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # without a memo, which shows whether equal parts are one object
        self._folders = folders

    def persistent_id(self, value: Any) -> Any:
        """Return the canonical form of a value that pickles by order, identity or place."""
        kind = type(value)
        if kind is str:
            shortened = self._without_folders(value)
            return None if shortened == value else shortened
        if kind in (set, frozenset):
            return kind.__name__, sorted(canonical(item, self._folders) for item in value)
        if kind is dict:
            keys = {canonical(key, self._folders): key for key in value}
            return "dict", [(written, value[keys[written]]) for written in sorted(keys)]
        if kind is JobFile:
            return "file", *self._identity(value.path)
        return ("path", str(value)) if isinstance(value, PurePath) else None

    def _without_folders(self, text: str) -> str:
        for folder in self._folders:
            if folder.rstrip("/"):
                text = re.sub(rf"(?<![\w.-]){re.escape(folder.rstrip('/'))}(?:/|(?![\w.-]))", "", text)
        return text

    def _identity(self, path: str) -> tuple[str, ...]:
        shortened = self._without_folders(path)
        if shortened != path:
            return (shortened,)
        try:
            with Path(local_path(path) or "").open("rb") as file:
                return Path(path).name, hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:  # elsewhere, or missing, which is refused before a driver starts
            return (path,)


class Job:
    """A kind of job."""

    __slots__ = ()

    @property
    def signs(self) -> bool:
        """Whether Hudi writes the task run's signature into the job's commits."""
        return True

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What no configuration of its driver may contradict."""
        return RULES

    def work(self) -> tuple[object, ...]:
        """Return the parts of the task run's work, of which its digest is made."""
        raise NotImplementedError

    def application(self, table: HudiTable) -> tuple[str, tuple[str, ...]]:
        """Return the PySpark file that runs it, and the file's arguments.

        :param table: the task's table.
        :raises ConfigurationError: for a job that cannot be made safe.
        """
        raise NotImplementedError

    def reads(self, table: HudiTable) -> str:  # noqa: ARG002
        """Return why it reads the table that it writes; empty if that is not known."""
        return ""

    def overwrites(self, table: HudiTable) -> bool:  # noqa: ARG002
        """Return whether it is known to overwrite partitions."""
        return False


@dataclass(frozen=True, slots=True)
class PythonFile(Job):
    """A PySpark file on this machine."""

    path: str
    arguments: tuple[object, ...] = ()

    def work(self) -> tuple[object, ...]:
        """Return the file and its arguments."""
        return JobFile(self.path), *_words(self.arguments)

    def application(self, table: HudiTable) -> tuple[str, tuple[str, ...]]:  # noqa: ARG002
        """Return the file itself."""
        return self.path, tuple(map(str, self.arguments))


@dataclass(frozen=True, slots=True)
class Sql(Job):
    """A text of Spark SQL, of which one statement writes.

    :param text: the rendered text.
    :param table: base path of the table.
    :param name: by which the text names it; ``None`` for the name in ``hoodie.properties``.
    """

    text: str
    table: str
    name: str | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return those of Hudi's SQL too."""
        return (*RULES, *SQL_RULES)

    def work(self) -> tuple[object, ...]:
        """Return the text, and the name if one was given."""
        return "sql", self.text, self.name

    def application(self, table: HudiTable) -> tuple[str, tuple[str, ...]]:
        """Return the file that runs the statements."""
        name, read = self._read(table)
        return run_sql.__file__, (self.table, name, read.target, *read.statements)

    def reads(self, table: HudiTable) -> str:
        """Return what its statements show."""
        return self._read(table)[1].reads

    def overwrites(self, table: HudiTable) -> bool:
        """Return whether its statement is an ``INSERT OVERWRITE``."""
        return self._read(table)[1].overwrites

    def _read(self, table: HudiTable) -> tuple[str, SqlText]:
        config = table.config()
        if not config.exists:
            raise ConfigurationError(
                "sql",
                f"writes a table that does not exist yet: {self.table}",
                remedy="create it with a first write of a PySpark file or a function",
            )
        name = self.name or config.name
        return name, read_sql(self.text, self.table, name)


@dataclass(frozen=True, slots=True)
class MainClass(Job):
    """A class with a ``main`` for the driver's JVM.

    :param name: the class's full name.
    :param jar: the jar that contains it.
    """

    name: str
    jar: str
    arguments: tuple[object, ...] = ()

    @property
    def signs(self) -> bool:
        """Whether its commits are signed; those of Hudi Streamer have checkpoints only.

        Hudi copies options that begin with ``_`` into a commit in its data source only. A commit of Hudi
        Streamer is known by its instant, which the driver reports before it writes data.
        """
        return self.name not in run_main.STREAMERS

    def work(self) -> tuple[object, ...]:
        """Return the jar, the class's name and its arguments."""
        return JobFile(self.jar), self.name, *_words(self.arguments)

    def overwrites(self, table: HudiTable) -> bool:  # noqa: ARG002
        """Return whether Hudi Streamer is told to overwrite."""
        operations = [value for key, value in pairwise(self.arguments) if key == "--op"]
        return any(str(operation).upper().startswith("INSERT_OVERWRITE") for operation in operations)

    def application(self, table: HudiTable) -> tuple[str, tuple[str, ...]]:
        """Return the file that calls the class."""
        if not self.signs:
            refuse_unsafe_arguments(self.arguments, table.path)
        return run_main.__file__, (self.jar, self.name, *map(str, self.arguments))

    def refuse_jar(self, *, is_remote: bool) -> None:
        """Refuse a jar that the driver cannot read.

        :param is_remote: whether the driver runs elsewhere.
        :raises ConfigurationError: then.
        """
        path = local_path(self.jar, is_remote=is_remote)
        if path and is_remote:
            raise ConfigurationError(
                "application",
                f"{self.jar} does not go to the cluster by itself",
                remedy="give its URL, or leave application out and name the jar in jars or packages",
            )
        if path and not Path(path).is_file():
            raise ConfigurationError(
                "application",
                f"{self.jar!r} is not a jar on this machine",
                remedy="correct the path, or leave it out and name the jar in jars or packages",
            )


@dataclass(frozen=True, slots=True)
class Function(Job):
    """A Python function that gets ``spark``, and writes or returns a DataFrame.

    :param source: its source text, without decorators.
    :param table: base path of the table.
    """

    name: str
    source: str
    table: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def work(self) -> tuple[object, ...]:
        """Return its name, its source text and its arguments."""
        return "function", self.name, self.source, self._plain_arguments()

    def application(self, table: HudiTable) -> tuple[str, tuple[str, ...]]:  # noqa: ARG002
        """Return the file that calls it."""
        return run_function.__file__, (self.table, self.name, self.source, self._call())

    def _call(self) -> str:
        return base64.b64encode(pickle.dumps(self._plain_arguments(), protocol=4)).decode()

    def _plain_arguments(self) -> dict[str, Any]:
        """Return the arguments as the driver's Python can read them.

        :raises ConfigurationError: for one that it cannot read, or that has no canonical form.
        """
        arguments = {name: _plain(value) for name, value in sorted(self.arguments.items())}
        for name, value in arguments.items():
            _refuse_undeliverable(name, value)
        return arguments


def _words(arguments: Iterable[object]) -> list[object]:
    """Return arguments of a command; a number and its text are the same there."""
    return [str(word) if isinstance(word, int | float) else word for word in arguments]


def _plain(value: Any) -> Any:
    """Return a time as the standard library's, which the driver's Python can read."""
    return datetime.fromisoformat(value.isoformat()) if isinstance(value, datetime) else value


def _refuse_undeliverable(name: str, value: Any) -> None:
    try:
        pickled = pickle.dumps(value, protocol=4)
        canonical(value)
    except Exception as error:
        raise _undeliverable(name, value, str(error)) from error
    foreign = sorted(_modules(pickled) - _OF_DRIVERS)
    if foreign:
        raise _undeliverable(
            name, value, f"it needs {foreign[0]}, which the driver's Python may not have"
        )


def _modules(pickled: bytes) -> set[str]:
    """Return the top modules of the classes that a pickle of protocol 4 names."""
    texts: list[str] = []
    modules: set[str] = set()
    memo: list[str] = []
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            texts.append(str(argument))
        elif operation.name == "MEMOIZE":
            memo.append(texts[-1] if texts else "")
        elif operation.name in ("BINGET", "LONG_BINGET"):
            texts.append(memo[int(str(argument))])
        elif operation.name == "STACK_GLOBAL":
            modules.add(texts[-2].partition(".")[0])
    return modules


def _undeliverable(name: str, value: Any, reason: str) -> ConfigurationError:
    kind = type(value)
    return ConfigurationError(
        "op_kwargs",
        f"{name} is a {kind.__module__}.{kind.__qualname__}, which does not go to the driver: {reason}",
        remedy="pass what the function needs of it, such as ds, or text that a template renders",
    )


def refuse_context(parameters: Iterable[str], arguments: Iterable[str]) -> None:
    """Refuse a function that names objects of Airflow's context.

    :param parameters: of the function.
    :param arguments: names of those that the call gives.
    :raises ConfigurationError: with the first of them.
    """
    refused = sorted(_OBJECTS_OF_CONTEXT.intersection(parameters).difference(arguments))
    if refused:
        raise ConfigurationError(
            "op_kwargs",
            f"{refused[0]} is an object of Airflow, which does not go to the driver",
            remedy="pass what the function needs of it as an argument, such as "
            "run_id='{{ run_id }}', or name text of the context, such as ds",
        )


def spark_job(
    job: Job, table: HudiTable, conf: Mapping[str, object], deploy_mode: str | None
) -> SparkJob:
    """Return the PySpark job by which a job of any kind runs.

    :raises ConfigurationError: for a job that cannot be made safe.
    """
    if isinstance(job, MainClass):
        job.refuse_jar(is_remote=deploy_mode == "cluster")
    application, arguments = job.application(table)
    return SparkJob(
        application,
        arguments,
        conf,
        deploy_mode,
        table.scheme,
        job.rules,
        table.path,
        may_read=isinstance(job, Sql),  # what its text reads has made it exclusive
    )

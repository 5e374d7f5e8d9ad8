"""The kinds of a user's job, and the PySpark file that runs each of them.

``in_driver/run_job.py`` protects the driver and runs a PySpark file: the user's own, or one of ours that
runs what is not a PySpark file. Everything else of an attempt is the same for all kinds.
"""

from __future__ import annotations

import base64
import pickle
import pickletools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from airflow_occ_provider.attempts.sql_text import SqlText, read_sql
from airflow_occ_provider.attempts.streamer import refuse_unsafe_arguments
from airflow_occ_provider.attempts.submission import SparkJob, local_path
from airflow_occ_provider.attempts.work import JobFile, canonical
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import RULES, SQL_RULES, Rule
from airflow_occ_provider.in_driver import run_function, run_main, run_sql
from airflow_occ_provider.storage.table import HudiTable

_OF_DRIVERS = frozenset({*sys.stdlib_module_names, "numpy", "pandas", "pyspark"})
"""Modules of values that a driver's Python can read; it may have neither Airflow nor a DAG's modules."""
_OBJECTS_OF_CONTEXT = frozenset(
    {"conn", "dag", "dag_run", "inlet_events", "macros", "outlet_events", "task"}
    | {"task_instance", "task_state_store", "asset_state_store", "ti", "triggering_asset_events", "var"}
)


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

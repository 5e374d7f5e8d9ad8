"""Prepare one attempt at a Spark write: its configuration, files and environment.

Nothing here knows how the job is submitted. A submitter runs ``Submission`` in its own way, feeds
the driver's log to ``jobs.outcome.DriverLog``, and asks ``jobs.settle`` what the table says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.properties import format_defaults
from airflow_occ_provider.hudi.writer.options import Contradiction, contradictions, early_detection_given
from airflow_occ_provider.jobs import write_job
from airflow_occ_provider.jobs.identity import IDENTITY_KEY
from airflow_occ_provider.jobs.site import DEFAULTS_NAME, Site, Source

IDENTITY_VARIABLE = "AIRFLOW_OCC_IDENTITY"
"""Environment variable of a driver and all that it starts: by it a later try finds survivors."""

_CLASS_PATH = "spark.driver.extraClassPath"
_DEPLOY_MODE = "spark.submit.deployMode"


@dataclass(frozen=True, slots=True)
class SparkJob:
    """The user's job, as he gave it.

    :param application: path of a PySpark file on this machine.
    :param arguments: its arguments.
    :param conf: Spark properties.
    :param driver_class_path: entries for the driver's classpath, joined as the platform does.
    :param deploy_mode: Spark's deploy mode, ``None`` for Spark's default.
    """

    application: str
    arguments: Sequence[str] = ()
    conf: Mapping[str, object] = field(default_factory=dict)
    driver_class_path: str | None = None
    deploy_mode: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """What to submit in place of the user's job; everything else stays as the user gave it.

    :param application: the shipped runner.
    :param arguments: its arguments: our file, the user's application, his arguments.
    :param driver_class_path: our folder before all others.
    :param environment: variables to set on the process that starts the driver.
    """

    application: str
    arguments: tuple[str, ...]
    driver_class_path: str
    environment: Mapping[str, str]


def refuse_unproven(job: SparkJob, site: Site) -> None:
    """Refuse what no real run has shown to be protected.

    :raises ConfigurationError: for a deploy mode other than client, or an application that is
        not a PySpark file on this machine.
    """
    given = (
        ("deploy_mode", job.deploy_mode),
        (f"conf {_DEPLOY_MODE}", job.conf.get(_DEPLOY_MODE)),
        (f"{site.spark.name} {_DEPLOY_MODE}", site.spark_property(_DEPLOY_MODE)),
    )
    for place, mode in given:
        if mode not in (None, "", "client"):
            raise ConfigurationError(
                place,
                f"deploy mode {mode!r} is not proven to protect the write",
                remedy="use client mode, where the driver runs on the worker",
            )
    path = _local_path(job.application)
    if path is None or not path.endswith(".py"):
        raise ConfigurationError(
            "application",
            f"{job.application!r} is not a PySpark file on this machine",
            remedy="give a local .py file: only there can the driver prove what it reads",
        )
    if not Path(path).is_file():
        raise ConfigurationError("application", f"{path} does not exist", remedy="correct the path")


def effective_options(
    writer: Mapping[str, str],
    given: Mapping[str, object],
    job: SparkJob,
    site: Site,
) -> dict[str, str]:
    """Return every Hudi option of the attempt: the site's lines, then ours, then the user's.

    :param writer: what every protected writer is given, and the signature.
    :param given: the user's own options.
    :raises ConfigurationError: if anything contradicts, wherever it was given.
    """
    if early_detection_given(given):
        raise ConfigurationError(
            "hudi_options",
            "early conflict detection has a parameter of its own",
            remedy="use early_conflict_detection",
        )
    sources = [
        Source("hudi_options", tuple((key, _text(value)) for key, value in given.items())),
        Source("conf", tuple((key, _text(value)) for key, value in job.conf.items())),
        site.spark,
        *site.hudi,
    ]
    found = [one for source in sources for one in contradictions(source.options, source.name)]
    if found:
        raise _refusal(found)
    result = {key: value for source in site.hudi for key, value in source.options}
    for key, value in (*writer.items(), *sources[0].options):
        result.pop(key, None)
        result[key] = value
    return result


def _refusal(found: Sequence[Contradiction]) -> ConfigurationError:
    first = found[0]
    others = "".join(f"; also {c.key}={c.value} in {c.source}" for c in found[1:])
    return ConfigurationError(
        first.source,
        f"{first.key}={first.value} contradicts safe concurrent writing{others}",
        remedy=first.remedy,
    )


@contextmanager
def prepared(job: SparkJob, options: Mapping[str, str], site: Site) -> Iterator[Submission]:
    """Write the attempt's files, readable by their owner only, and remove them after.

    :param options: the whole content of the attempt's ``hudi-defaults.conf``.
    :raises ConfigurationError: if an option cannot be written to a file.
    """
    try:
        content = format_defaults(options)
    except ValueError as error:
        raise ConfigurationError("hudi_options", str(error), remedy="remove the line break") from error
    identity = options.get(IDENTITY_KEY, "")
    folder = Path(tempfile.mkdtemp(prefix=f"airflow_occ_{identity}_"))
    try:
        defaults = folder / DEFAULTS_NAME
        defaults.touch(mode=0o600)
        defaults.write_text(content, encoding="utf-8")
        yield Submission(
            application=write_job.__file__,
            arguments=(str(defaults), job.application, *map(str, job.arguments)),
            driver_class_path=_class_path(folder, job, site),
            environment={"HUDI_CONF_DIR": str(folder), IDENTITY_VARIABLE: identity},
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(identity: str) -> None:
    """Remove the files of attempts that could not do it themselves; only once they have ended.

    :param identity: of the task run.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"airflow_occ_{identity}_*"):
        shutil.rmtree(folder, ignore_errors=True)


def _class_path(folder: Path, job: SparkJob, site: Site) -> str:
    """Put our folder first; Spark lets the flag, then conf, then the properties file win."""
    given = job.driver_class_path or job.conf.get(_CLASS_PATH) or site.spark_property(_CLASS_PATH)
    return os.pathsep.join(str(entry) for entry in (folder, given) if entry)


def _local_path(application: str) -> str | None:
    path = application.removeprefix("file://").removeprefix("file:")
    return None if "://" in path or path.startswith("hdfs:") else path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

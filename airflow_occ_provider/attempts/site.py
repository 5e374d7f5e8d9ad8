"""The configuration of the submitting machine, and how long a driver may start."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from airflow_occ_provider.errors import ConfigurationError, NotSubmittedError
from airflow_occ_provider.hudi.format.properties import parse_defaults, parse_table_properties
from airflow_occ_provider.hudi.writer.options import CONNECT_VARIABLES

DEFAULTS_NAME = "hudi-defaults.conf"
_SYSTEM_FOLDER = Path("/etc/hudi/conf")
# A spark-env.sh may start Java, as `hadoop classpath` does, on a loaded worker.
_PROBE_TIMEOUT_S = 120
_NOT_FOUND = 4  # as in the script
# Follows bin/spark-submit and bin/spark-class of Spark 3.5 to the point at which they start Java;
# $0 is spark-submit, since those scripts search its folder for each other.
_PROBE = """
if [ -z "$SPARK_HOME" ]; then . "$(dirname "$0")/find-spark-home" >/dev/null 2>&1 || exit 4; fi
if [ -f "$SPARK_HOME/bin/load-spark-env.sh" ]; then
  . "$SPARK_HOME/bin/load-spark-env.sh" >/dev/null 2>&1
fi
printf '%s\\0' "$SPARK_HOME" "${SPARK_CONF_DIR:-$SPARK_HOME/conf}" \
  "$HUDI_CONF_DIR" "$HADOOP_CONF_DIR" "$YARN_CONF_DIR" \
  "${SPARK_REMOTE:+set}" "${SPARK_CONNECT_MODE_ENABLED:+set}" "$SPARK_API_MODE"
"""


@dataclass(frozen=True, slots=True)
class StartLimit:
    """The longest wait for the begin of a driver's job.

    :param on_worker: while ``spark-submit`` runs on the worker, and holds the task's slot.
    :param in_cluster: while the driver waits in its cluster, which may be full for hours.
    """

    on_worker: timedelta = timedelta(minutes=30)
    in_cluster: timedelta = timedelta(hours=12)

    @classmethod
    def of(cls, timeout: timedelta | None) -> StartLimit:
        """Return the limit of a task.

        :param timeout: its ``start_timeout``; ``None`` for the defaults.
        """
        return cls() if timeout is None else cls(timeout, timeout)


NO_LIMIT = StartLimit(timedelta.max, timedelta.max)


def late_start(waited_s: float, limit: timedelta) -> str:
    """Return why a driver is ended whose job has not begun; empty if it is not late.

    Such a driver has committed nothing.

    :param waited_s: seconds since the driver was submitted.
    """
    if waited_s < limit.total_seconds():
        return ""
    return (
        f"the job has not begun within {limit}, the start_timeout: look in the log whether spark-submit "
        "waits for Ivy's repositories or for its cluster, and whether the cluster has resources"
    )


@dataclass(frozen=True, slots=True)
class Source:
    """Settings from one place, in their order there.

    :param name: the place, for messages: a file's path.
    :param options: keys and values; of a repeated key, the last value counts.
    """

    name: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Site:
    """The site's configuration files that a driver would read.

    :param spark: Spark's properties file, ``spark-defaults.conf`` if none was named.
    :param hudi: the ``hudi-defaults.conf`` files that Hudi would read without this provider.
    :param environment: the variables that make Spark a client of Spark Connect.
    """

    spark: Source
    hudi: tuple[Source, ...] = ()
    environment: Source = Source("the environment", ())

    def spark_property(self, key: str) -> str | None:
        """Return a Spark property that the site sets."""
        return dict(self.spark.options).get(key)


ELSEWHERE = Site(Source("the configuration of the driver's machine", ()))
"""The site of a driver whose files this machine does not have; the driver proves it itself."""


def read_site(
    spark_binary: str,
    environment: Mapping[str, str],
    *,
    properties_file: str | None = None,
    class_path: Iterable[str] = (),
) -> Site:
    """Read the site's configuration, by the rules of Spark 3.5 and Hudi 1.2.0.

    The driver asks Hudi itself; this reading serves to refuse, and to plan, before a driver is started.

    :raises ConfigurationError: if the command or a named file is missing or cannot be read.
    """
    _, conf_dir, hudi_dir, *rest = _probe(spark_binary, environment)
    hadoop_dirs = rest[:2]
    connect = rest[2:]
    spark_file = Path(properties_file) if properties_file else Path(conf_dir) / "spark-defaults.conf"
    if properties_file and not spark_file.is_file():
        raise ConfigurationError(
            "properties_file", f"{properties_file} does not exist", remedy="correct the path"
        )
    spark = Source(str(spark_file), tuple(parse_table_properties(_text(spark_file)).items()))
    inherited = dict(spark.options).get("spark.driver.extraClassPath", "").split(os.pathsep)
    folders = [*class_path, *inherited, conf_dir, *hadoop_dirs]
    files = [file for file in _hudi_files(folders, hudi_dir) if file.is_file()]
    variables = tuple(
        (name, value) for name, value in zip(CONNECT_VARIABLES, connect, strict=True) if value
    )
    return Site(
        spark,
        tuple(Source(str(file), tuple(_lines(file, frozenset()))) for file in files),
        Source("the environment", variables),
    )


def _probe(spark_binary: str, environment: Mapping[str, str]) -> list[str]:
    submit = shutil.which(spark_binary, path=environment.get("PATH"))
    if submit is None:
        raise ConfigurationError(
            "spark_binary",
            f"{spark_binary} is not on the PATH",
            remedy="install Spark on the worker, or add its bin folder to the PATH",
        )
    try:
        done = subprocess.run(
            ["bash", "-c", _PROBE, submit],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        if isinstance(error, subprocess.CalledProcessError) and error.returncode == _NOT_FOUND:
            raise ConfigurationError(
                "spark_binary",
                f"the Spark of {submit} cannot be found",
                remedy="set SPARK_HOME on the worker",
            ) from error
        raise NotSubmittedError(
            f"spark_binary: the scripts of {submit} that name Spark's folders {_ending(error)}",
            remedy="no action if the task is retried; else look what Spark's spark-env.sh waits for",
        ) from error
    return [os.fsdecode(field) for field in done.stdout.split(b"\0")[:8]]


def _ending(error: subprocess.SubprocessError | OSError) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"did not end in {_PROBE_TIMEOUT_S} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"failed (exit code {error.returncode})"
    return f"could not be started ({error})"


def _hudi_files(folders: Iterable[str], hudi_dir: str) -> Iterable[Path]:
    """Yield the files Hudi would read: the first on the classpath, else /etc and HUDI_CONF_DIR."""
    on_class_path = (Path(folder) / DEFAULTS_NAME for folder in folders if folder)
    first = next(filter(Path.is_file, on_class_path), None)
    if first:
        yield first
        return
    yield _SYSTEM_FOLDER / DEFAULTS_NAME
    if hudi_dir:
        local = hudi_dir.removeprefix("file://").removeprefix("file:")
        if "://" in local:
            raise ConfigurationError(
                "HUDI_CONF_DIR",
                f"{hudi_dir} is not a local folder, so its lines cannot be read before the job starts",
                remedy="name a local folder, or pass the options by hudi_options",
            )
        yield Path(local) / DEFAULTS_NAME


def _lines(path: Path, including: frozenset[Path]) -> Iterable[tuple[str, str]]:
    """Yield a file's options with its includes in place, as Hudi reads them."""
    if path in including:
        raise ConfigurationError(str(path), "includes itself", remedy="remove the include line")
    for key, value in parse_defaults(_text(path, required=True)):
        if key == "include":
            yield from _lines(path.parent / value.removeprefix("file:"), including | {path})
        else:
            yield key, value


def _text(path: Path, *, required: bool = False) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if not required:
            return ""
        raise ConfigurationError(str(path), "does not exist", remedy="correct the include") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            str(path), f"cannot be read: {error}", remedy="let the worker read it"
        ) from error

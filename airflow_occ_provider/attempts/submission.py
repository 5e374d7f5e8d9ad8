"""Prepare one attempt at a Spark write: its options, input and environment.

Nothing here depends on how the job is submitted. A submitter runs a ``Submission`` in its own way;
``attempts.log.driver_log.DriverLog`` reads the driver's log, and ``attempts.settle`` determines the
outcome by the table.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.typed_values import option_text, option_texts
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.driver.attempt import LIFE_S
from airflow_occ_provider.driver.contract import PAYLOAD, digest
from airflow_occ_provider.driver.shipped import runner_source
from airflow_occ_provider.errors import ConfigurationError, OccError
from airflow_occ_provider.hudi.format.properties import format_properties
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import (
    EARLY_DETECTION,
    RULES,
    SPARK_SETTINGS,
    Contradiction,
    Rule,
    contradictions,
    job_rules,
)
from airflow_occ_provider.hudi.writer.secrets import secret_settings
from airflow_occ_provider.hudi.writer.storage_lock import required_classes
from airflow_occ_provider.hudi.writer.table_options import table_rules
from airflow_occ_provider.in_driver import guard, run_job, session_rules
from airflow_occ_provider.storage.attempt_folder import AttemptFolder

IDENTITY_VARIABLE = "AIRFLOW_OCC_IDENTITY"
"""Environment variable of a driver and all that it starts: by it a later try finds survivors."""

_DEPLOY_MODE = "spark.submit.deployMode"
RUNNER = "run_job.py"


@dataclass(frozen=True, slots=True)
class SparkJob:
    """The user's job.

    :param application: path or URL of a PySpark file.
    :param deploy_mode: Spark's deploy mode, ``None`` for Spark's default.
    :param scheme: of the table's base path, on which the classes depend that Hudi's lock needs.
    :param rules: what no configuration may contradict.
    :param table: base path of the task's table.
    :param may_read: whether it may read what it writes, since no other writer commits meanwhile.
    :param lease_ttl_s: for how long each extension of the lease lasts that alone keeps other writers
        away; ``None`` if Hudi's check does so too.
    """

    application: str
    arguments: Sequence[str] = ()
    conf: Mapping[str, object] = field(default_factory=dict)
    deploy_mode: str | None = None
    scheme: str = "file"
    rules: tuple[Rule, ...] = RULES
    table: str = ""
    may_read: bool = False
    lease_ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """What to submit instead of the user's job; all else stays as the user gave it.

    :param application: URL of the shipped runner.
    :param files: the attempt's folder.
    :param payload: what the granted driver reads there.
    :param lease_ttl_s: of the job.
    :param environment: variables to set on the process that starts the driver.
    :param folder: path of a folder of this host for what only the submitter may read.
    """

    application: str
    files: AttemptFolder
    payload: bytes
    lease_ttl_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The runner's argument: URL of the folder, or its path on this host."""
        return (self.files.url,)


def refuse_unproven(job: SparkJob, site: Site, *, is_remote: bool = False) -> None:
    """Refuse jobs for which no real run has shown that the protection works.

    :param is_remote: whether the driver runs elsewhere, so that Spark fetches its files.
    :raises ConfigurationError: for another deploy mode than the submitter's, or an application that
        is not a PySpark file, or a missing one of this machine.
    """
    expected = "cluster" if is_remote else "client"
    modes = (  # the first one counts, as in Spark's SparkSubmitArguments (3.5)
        ("deploy_mode", job.deploy_mode),
        (f"conf {_DEPLOY_MODE}", job.conf.get(_DEPLOY_MODE)),
        (f"{site.spark.name} {_DEPLOY_MODE}", site.spark_property(_DEPLOY_MODE)),
    )
    place, mode = next(((place, mode) for place, mode in modes if mode), ("", expected))
    if mode != expected:
        raise ConfigurationError(
            place,
            f"deploy mode {mode!r} is not proven to protect the write",
            remedy="use client mode, or cluster mode on YARN or Kubernetes: name both the master "
            "and the deploy-mode in the Spark connection",
        )
    if not job.application.endswith(".py"):
        raise ConfigurationError(
            "application", f"{job.application!r} is not a PySpark file", remedy="give a .py file"
        )
    path = local_path(job.application, is_remote=is_remote)
    if path is not None and not Path(path).is_file():
        raise ConfigurationError("application", f"{path} does not exist", remedy="correct the path")


def effective_options(
    writer: Mapping[str, str],
    user_options: Mapping[str, object],
    job: SparkJob,
    site: Site,
) -> dict[str, str]:
    """Return every Hudi option of the attempt: the site's, the provider's, the user's.

    :param writer: the options of every protected writer, and the signature.
    :param user_options: the user's own options.
    :raises ConfigurationError: if an option from any source contradicts the protection.
    """
    if EARLY_DETECTION in user_options:
        raise ConfigurationError(
            "hudi_options",
            "early conflict detection has a field of its own in policy",
            remedy="use early_conflict_detection",
        )
    sources = [
        Source("hudi_options", tuple(option_texts("hudi_options", user_options).items())),
        Source("conf", tuple((key, _spark_text(key, value)) for key, value in job.conf.items())),
        site.environment,
        site.spark,
    ]
    refuse_contradictions(_by_name((*sources, *site.hudi)), job.rules)
    refuse_contradictions(_by_name(sources), table_rules(writer))  # hudi-defaults.conf gives way
    result = {key: value for source in site.hudi for key, value in source.options}
    for key, value in (*writer.items(), *sources[0].options):
        result.pop(key, None)
        result[key] = value
    return result


def _by_name(sources: Iterable[Source]) -> dict[str, dict[str, str]]:
    return {source.name: dict(source.options) for source in sources}


def refuse_contradictions(sources: Mapping[str, Mapping[str, object]], rules: Iterable[Rule]) -> None:
    """Refuse options that contradict safe concurrent writing.

    :param sources: names of places, each with the options that stand there.
    :raises ConfigurationError: with all of them.
    """
    contradicting = [
        contradiction
        for name, options in sources.items()
        for contradiction in contradictions(options.items(), name, tuple(rules))
    ]
    if contradicting:
        raise _refusal(contradicting)


def _refusal(contradicting: Sequence[Contradiction]) -> ConfigurationError:
    first = contradicting[0]
    others = "".join(f"; also {c.key}={c.value} in {c.source}" for c in contradicting[1:])
    return ConfigurationError(
        first.source,
        f"{first.key}={first.value} contradicts safe concurrent writing{others}",
        remedy=first.remedy,
    )


@contextmanager
def private_folder(identity: str) -> Iterator[Path]:
    """Make a folder that only its owner reads, for the time of a block.

    :param identity: of the task run, by which ``remove_leftovers`` finds it.
    """
    folder = Path(tempfile.mkdtemp(prefix=file_prefix(identity)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_privately(path: Path, content: bytes) -> Path:
    """Write a file that only its owner reads, and return its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def without_secrets(
    conf: Mapping[str, object], site: Mapping[str, str], folder: str
) -> tuple[dict[str, str], str | None]:
    """Return Spark's settings for a command line, and the file that has the others.

    A command line is seen by all users of the host: settings with secrets go by a private file.

    :param site: what the site sets, which Spark then does not read itself.
    :param folder: that only its owner reads.
    """
    texts = {key: str(value) for key, value in conf.items()}
    secret = secret_settings(texts)
    if not secret:
        return texts, None
    settings = {**site, **{key: texts[key] for key in secret}}
    path = write_privately(Path(folder, "spark.properties"), format_properties(settings).encode())
    return {key: text for key, text in texts.items() if key not in secret}, str(path)


def remove_leftovers(identity: str) -> None:
    """Remove the files and folders that ended attempts could not remove themselves.

    :param identity: of the task run, all of whose attempts have ended.
    """
    for leftover in Path(tempfile.gettempdir()).glob(f"{file_prefix(identity)}*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def file_prefix(identity: str) -> str:
    """Return how the names of a task run's temporary files begin."""
    return f"airflow_occ_{identity}_"


def driver_input(job: SparkJob, options: Mapping[str, str], without: Sequence[str]) -> dict[str, object]:
    """Return what ``run_job.py`` reads; options are stripped, as in Hudi's own file."""
    return {
        "salt": secrets.token_hex(16),  # the digest is seen by all: no password is guessed by it
        "application": _plain_path(job.application),
        "arguments": [str(argument) for argument in job.arguments],
        "options": {key.strip(): value.strip() for key, value in options.items()},
        "without": list(without),
        "rules": [rule._asdict() for rule in job.rules],
        "spark": SPARK_SETTINGS,
        "session": {
            "program": Path(session_rules.__file__).read_text(encoding="utf-8"),
            "rules": [rule._asdict() for rule in (*job_rules(options), *table_rules(options))],
            "table": job.table,
            "may_read": job.may_read,
        },
        "classes": [required._asdict() for required in required_classes(options, job.scheme)],
        "pause_s": HeartbeatRule.of(options).tolerance_ms / 1000,
    }


def local_path(application: str, *, is_remote: bool = False) -> str | None:
    """Return the path of a file on this machine; ``None`` for one elsewhere.

    :param is_remote: whether the driver runs elsewhere: ``local:`` names a file of its machine.
    """
    if is_remote and application.startswith("local:"):
        return None
    path = _plain_path(application)
    return None if run_job.REMOTE.match(path) else path


def _plain_path(application: str) -> str:
    return str(run_job.plain_path(application))  # type: ignore[no-untyped-call]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _spark_text(key: str, value: object) -> str:
    """Return a property as the command line has it; those of Hudi have values that Hudi can read."""
    return option_text("conf", key, value) if key.startswith("spark.hoodie.") else str(value)


@contextmanager
def offered(
    job: SparkJob,
    options: Mapping[str, str],
    folder: AttemptFolder,
    *,
    without: Sequence[str] = (),
    is_private: bool = False,
) -> Iterator[Submission]:
    """Write runner and job into an attempt's folder; remove the job afterwards.

    The payload is written once a driver waits for it. The folder's other files stay until the attempt is
    settled: its driver may look for them. The driver's life ends it if nothing follows it any more. If
    only its lease keeps other writers away, no commit of it begins once the lease may be over: the life
    is the lease's then, and the driver runs only if its commits can be guarded.

    :param without: prefixes of the site's options that do not go with the attempt.
    :param is_private: whether the folder is one of this host that only its owner reads. Its driver reads
        the job where it is.
    :raises TableUnreadableError: if the storage refuses them.
    """
    content = _content(job, options, without, is_private=is_private)
    path = None if is_private else local_path(job.application, is_remote=True)
    with ExitStack() as removal:
        removal.callback(_remove, folder, PAYLOAD)
        if path is not None and Path(path).is_file():
            name = f"job/{Path(path).name}"
            removal.callback(_remove, folder, name)
            application = Path(path).read_bytes()
            folder.write(name, application)
            content["application"] = f"{folder.url}/{name}"
            content["application_digest"] = digest(application)
        folder.write(RUNNER, runner_source())
        payload = json.dumps(content).encode()
        try:
            yield Submission(f"{folder.url}/{RUNNER}", folder, payload, job.lease_ttl_s)
        except WaitNeeded:
            removal.pop_all()
            raise


def private_payload(job: SparkJob, options: Mapping[str, str]) -> bytes:
    """Return what a driver of this host reads once it is granted."""
    return json.dumps(_content(job, options, (), is_private=True)).encode()


def _content(
    job: SparkJob, options: Mapping[str, str], without: Sequence[str], *, is_private: bool
) -> dict[str, object]:
    """Return what a granted driver reads."""
    content = {**driver_input(job, options, without), **_life(job.lease_ttl_s), "is_private": is_private}
    if job.table:
        program = Path(guard.__file__).read_text(encoding="utf-8")
        is_required = job.lease_ttl_s is not None
        content["guard"] = {"program": program, "tables": [job.table], "is_required": is_required}
    return content


def _life(lease_ttl_s: float | None) -> dict[str, object]:
    """Return what the driver is told of its life."""
    if lease_ttl_s is None:
        return {"ttl_s": LIFE_S, "is_leased": False}
    return {"ttl_s": lease_ttl_s, "is_leased": True}


def _remove(folder: AttemptFolder, name: str) -> None:
    with suppress(OccError):  # it is removed with the folder
        folder.remove(name)

"""Put the input of a driver where it reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    driver_input,
    local_path,
)
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.driver.attempt import LIFE_S
from airflow_occ_provider.driver.contract import PAYLOAD, digest
from airflow_occ_provider.driver.shipped import runner_source
from airflow_occ_provider.errors import OccError
from airflow_occ_provider.in_driver import guard
from airflow_occ_provider.storage.attempt_folder import AttemptFolder

RUNNER = "run_job.py"


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
    content = {**driver_input(job, options, without), **_life(job.lease_ttl_s), "is_private": is_private}
    if job.table:
        program = Path(guard.__file__).read_text(encoding="utf-8")
        is_required = job.lease_ttl_s is not None
        content["guard"] = {"program": program, "tables": [job.table], "is_required": is_required}
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


def _life(lease_ttl_s: float | None) -> dict[str, object]:
    """Return what the driver is told of its life."""
    if lease_ttl_s is None:
        return {"ttl_s": LIFE_S, "is_leased": False}
    return {"ttl_s": lease_ttl_s, "is_leased": True}


def _remove(folder: AttemptFolder, name: str) -> None:
    with suppress(OccError):  # it is removed with the folder
        folder.remove(name)

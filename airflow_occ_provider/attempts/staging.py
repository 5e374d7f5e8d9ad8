"""Put the input of a driver on another machine where that machine reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_occ_provider.attempts.submission import SparkJob, driver_input
from airflow_occ_provider.in_driver import report, run_job
from airflow_occ_provider.storage.report import RunFolder


@dataclass(frozen=True, slots=True)
class StagedJob:
    """What to submit instead of the user's job, as URLs.

    :param application: the runner.
    :param arguments: its argument: the file with everything that the driver receives.
    :param report: of the driver's report.
    """

    application: str
    arguments: tuple[str, ...]
    report: str


@contextmanager
def staged(
    job: SparkJob,
    options: Mapping[str, str],
    folder: RunFolder,
    attempt: str,
    *,
    without: Sequence[str] = (),
) -> Iterator[StagedJob]:
    """Write the driver's input into the task run's folder; remove it afterwards.

    The report stays: it is removed with the folder, once the attempt is settled. An application that is
    not a file of this machine is left where it is.

    :param attempt: name of the attempt, unique in its folder.
    :param without: prefixes of the site's options that do not go with the attempt.
    :raises TableUnreadableError: if the storage refuses the input.
    """
    url = folder.report(attempt)
    given = driver_input(job, options, without)
    given["report"] = {"url": url, "program": Path(report.__file__).read_text(encoding="utf-8")}
    local = Path(job.application.removeprefix("file://").removeprefix("file:"))
    try:
        if local.is_file():
            given["application"] = folder.put(f"{attempt}/job/{local.name}", local.read_bytes())
        runner = folder.put(f"{attempt}/run_job.py", Path(run_job.__file__).read_bytes())
        payload = folder.put(f"{attempt}/payload.json", json.dumps(given).encode())
        yield StagedJob(runner, (payload,), url)
    finally:
        folder.remove(attempt)

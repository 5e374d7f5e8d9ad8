"""Put the input of a driver on another machine where that machine reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    digest_of,
    driver_input,
    local_path,
    runner_arguments,
)
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.in_driver import report, run_job
from airflow_occ_provider.storage.report import RunFolder


@contextmanager
def staged(
    job: SparkJob,
    options: Mapping[str, str],
    folder: RunFolder,
    attempt: str,
    *,
    without: Sequence[str] = (),
) -> Iterator[Submission]:
    """Write the driver's input into the task run's folder; remove it afterwards.

    The report stays: it is removed with the folder, once the attempt is settled. So does the input if
    the task waits for the driver, which removes it once it has read it. An application that is not a
    file of this machine is left where it is.

    :param attempt: name of the attempt, unique in its folder.
    :param without: prefixes of the site's options that do not go with the attempt.
    :raises TableUnreadableError: if the storage refuses the input.
    """
    url = folder.report(attempt)
    given = driver_input(job, options, without)
    given["report"] = {"url": url, "program": Path(report.__file__).read_text(encoding="utf-8")}
    path = local_path(job.application, is_remote=True)
    with ExitStack() as removal:
        removal.callback(folder.remove, attempt)
        if path is not None and Path(path).is_file():
            content = Path(path).read_bytes()
            given["application"] = folder.put(f"{attempt}/job/{Path(path).name}", content)
            given["application_digest"] = digest_of(content)
        runner = folder.put(f"{attempt}/run_job.py", Path(run_job.__file__).read_bytes())
        payload = json.dumps(given).encode()
        arguments = runner_arguments(folder.put(f"{attempt}/payload.json", payload), payload)
        try:
            yield Submission(runner, arguments, report=url)
        except WaitNeeded:
            removal.pop_all()
            raise

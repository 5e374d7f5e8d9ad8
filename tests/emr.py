"""EMR Serverless and S3 by moto, and what moto leaves out: its job runs are run, on this machine.

moto accepts, lists and cancels job runs, but starts none and ignores client tokens. Here a job run is
a local process. This is no proof of how AWS behaves.
"""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import boto3
from moto.core.exceptions import JsonRESTError
from moto.emrserverless import models, responses
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

ACCOUNT, REGION, BUCKET = "123456789012", "us-east-1", "lake"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/job"
KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": REGION}
_PERIOD_S = 0.05


@dataclass
class EmulatedEmr:
    """One application whose job runs are processes.

    :param command: returns the command of a job run, by its entry point, arguments and properties;
        ``None`` if a test says what its job runs do.
    :param requests: every request to start a job run.
    """

    url: str
    command: Callable[[str, Sequence[str], dict[str, str]], Sequence[str]] | None
    requests: list[dict[str, Any]] = field(default_factory=list)
    application: str = ""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _clients: dict[str, Any] = field(default_factory=dict)
    busy: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def client(self, service: str = "emr-serverless") -> Any:
        """Return a client, the same for all threads."""
        if service not in self._clients:
            self._clients[service] = boto3.client(service, endpoint_url=self.url, **KEYS)
        return self._clients[service]

    @property
    def connection(self) -> dict[str, Any]:
        """A connection of Airflow without settings of EMR Serverless."""
        extra = {"endpoint_url": self.url, "region_name": REGION}
        return {"conn_type": "aws", "login": "k", "password": "s", "extra": extra}

    @property
    def job_runs(self) -> list[Any]:
        return models.emrserverless_backends[ACCOUNT][REGION].job_runs.get(self.application, [])

    def run_until_stopped(self) -> None:
        """Start, watch and cancel job runs in this thread: a driver may end with it."""
        with tempfile.TemporaryDirectory() as folder:
            while not self._stopped.wait(_PERIOD_S):
                for one in list(self.job_runs):
                    with self.busy:
                        self._step(one, folder)
            for process in self._processes.values():
                _kill(process)

    def stop(self) -> None:
        self._stopped.set()

    def _step(self, one: Any, folder: str) -> None:
        if self.command is None:
            return
        if one.state == "SUBMITTED":
            submit = one.job_driver["sparkSubmit"]
            classes = one.configuration_overrides["applicationConfiguration"]
            command = self.command(
                submit["entryPoint"], submit["entryPointArguments"], classes[-1]["properties"]
            )
            with open(f"{folder}/{one.id}", "wb") as log:  # noqa: PTH123
                self._processes[one.id] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            one.state = "RUNNING"
            return
        if one.state not in ("RUNNING", "CANCELLING"):
            return
        process = self._processes.get(one.id)
        if process is None:  # it was cancelled before it began
            one.state = "CANCELLED"
            return
        if one.state == "CANCELLING":
            _kill(process)
        if process.poll() is None:
            return
        self._put_log(one, f"{folder}/{one.id}")
        ended = "FAILED" if process.returncode else "SUCCESS"
        one.state = "CANCELLED" if one.state == "CANCELLING" else ended

    def _put_log(self, one: Any, path: str) -> None:
        monitoring = one.configuration_overrides.get("monitoringConfiguration", {})
        uri = monitoring.get("s3MonitoringConfiguration", {}).get("logUri")
        if uri:
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            key = f"{key}/applications/{one.application_id}/jobs/{one.id}/SPARK_DRIVER/stdout.gz"
            with open(path, "rb") as log:  # noqa: PTH123
                self.client("s3").put_object(Bucket=bucket, Key=key, Body=gzip.compress(log.read()))


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def emulated_emr(
    command: Callable[[str, Sequence[str], dict[str, str]], Sequence[str]] | None,
) -> Iterator[EmulatedEmr]:
    """Serve an application on loopback."""
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    one = EmulatedEmr(f"http://127.0.0.1:{server.server_port}", command)
    threads = [
        threading.Thread(target=target, daemon=True)
        for target in (server.serve_forever, one.run_until_stopped)
    ]
    accepted, backend = responses.EMRServerlessResponse.start_job_run, models.EMRServerlessBackend

    def start(response: Any) -> Any:
        given = response._get_params()
        with one.busy:
            one.requests.append(given)
            if given["mode"] != "BATCH" or given["retryPolicy"] != {"maxAttempts": 1}:
                raise JsonRESTError("ValidationException", "this emulator runs a driver only once")
            for known in one.job_runs:
                if known.client_token == given["clientToken"]:
                    answer = {"applicationId": known.application_id, "jobRunId": known.id}
                    return responses.ActionResult({**answer, "arn": known.arn})
            return accepted(response)

    def cancel(self: Any, application_id: str, job_run_id: str) -> tuple[str, str]:
        known = self.get_job_run(application_id, job_run_id)
        with one.busy:
            if known.state not in ("SUCCESS", "FAILED", "CANCELLED"):
                known.state = "CANCELLING"
        return application_id, job_run_id

    with (
        patch.object(models, "JOB_STATUS", "SUBMITTED"),
        patch.object(responses.EMRServerlessResponse, "start_job_run", start),
        patch.object(backend, "cancel_job_run", cancel),
    ):
        for thread in threads:
            thread.start()
        made = one.client().create_application(
            name="tests", releaseLabel="emr-7.9.0", type="SPARK", clientToken="tests"
        )
        one.application = made["applicationId"]
        one.client("s3").create_bucket(Bucket=BUCKET)
        yield one
        one.stop()
        server.shutdown()
        for thread in threads:
            thread.join()
        server.server_close()

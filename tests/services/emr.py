"""EMR Serverless, EMR's steps and Glue by moto, with the work that it leaves out.

moto accepts, lists and cancels job runs and steps, but it starts none, and ignores client tokens and
retry policies. Here each of them is a ``spark-submit``. This is no proof of how AWS behaves.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
from moto.core.responses import ActionResult
from moto.emr.models import emr_backends
from moto.emrserverless import models, responses
from moto.glue.models import FakeJobRun, glue_backends
from moto.moto_api import state_manager
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.services.quiet import QuietHandler

ACCOUNT, REGION = "123456789012", "us-east-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/job"
_KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": REGION}
_PERIOD_S = 0.05
_ENDED = ("SUCCESS", "COMPLETED", "SUCCEEDED", "FAILED", "CANCELLED")


@dataclass
class GlueRun:
    """A run of Glue's job, with the names that moto's other items have."""

    run: FakeJobRun

    @property
    def id(self) -> str:
        return str(self.run.job_run_id)

    @property
    def state(self) -> str:
        return str(self.run.status)

    @state.setter
    def state(self, state: str) -> None:
        self.run.status = state


@dataclass
class Work:
    """A job run or a step: its processes, one after the other.

    :param item: moto's own, which has the state that clients are told.
    :param most_starts: how often the service starts a driver that fails.
    :param codes: the exit codes of the processes that have ended.
    """

    item: Any
    command: list[str]
    log: Path
    done_state: str
    most_starts: int = 1
    codes: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_over(self) -> bool:
        """Whether its last process has ended."""
        return self.item.state in _ENDED

    def advance(self, environment: Mapping[str, str]) -> None:
        """Start it, or note its end."""
        if self.is_over:
            return
        if self.process is None:
            self._start(environment)
        code = self.process.poll() if self.process else None
        if code is None:
            return
        self.codes.append(code)
        if code and len(self.codes) < self.most_starts and self.item.state == "RUNNING":
            self._start(environment)
            return
        is_cancelled = self.item.state == "CANCELLING"
        self.item.state = "CANCELLED" if is_cancelled else ("FAILED" if code else self.done_state)

    def end(self) -> None:
        """End its process."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _start(self, environment: Mapping[str, str]) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        self.item.state = "RUNNING"


@dataclass
class EmulatedEmr:
    """One application of EMR Serverless, one cluster, and one job of Glue.

    A cancellation is accepted, and ends nothing: how soon AWS ends a driver is not known here.

    :param environment: of the drivers.
    :param folder: of their logs.
    :param starts: how often the driver of a step or of Glue is started if it fails.
    :param work: all job runs and steps, in their order.
    """

    url: str
    environment: Mapping[str, str]
    folder: Path
    starts: int = 1
    application: str = ""
    cluster: str = ""
    job: str = "tests"
    work: list[Work] = field(default_factory=list)
    busy: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def connection(self) -> dict[str, Any]:
        """The connection of Airflow."""
        extra = {"endpoint_url": self.url, "region_name": REGION}
        return {"conn_type": "aws", "login": "k", "password": "s", "extra": extra}

    @property
    def names(self) -> dict[str, dict[str, str]]:
        """What the operator of each service names, by its argument."""
        return {
            "emr_serverless": {"application_id": self.application},
            "emr_steps": {"job_flow_id": self.cluster},
            "glue": {"job_name": self.job},
        }

    def create(self) -> None:
        """Create the application, the cluster and the job."""
        serverless, emr = (
            boto3.client(name, endpoint_url=self.url, **_KEYS) for name in ("emr-serverless", "emr")
        )
        application = serverless.create_application(
            name="tests", releaseLabel="emr-7.9.0", type="SPARK", clientToken="tests"
        )
        self.application = application["applicationId"]
        cluster = emr.run_job_flow(
            Name="tests", Instances={"KeepJobFlowAliveWhenNoSteps": True, "InstanceCount": 1}
        )
        self.cluster = cluster["JobFlowId"]
        boto3.client("glue", endpoint_url=self.url, **_KEYS).create_job(
            Name=self.job,
            Role=ROLE,
            Command={"Name": "glueetl"},
            ExecutionProperty={"MaxConcurrentRuns": 9},
        )

    def run_until_stopped(self) -> None:
        """Start and watch the work in this thread: a driver may end with it."""
        while not self._stopped.wait(_PERIOD_S):
            with self.busy:
                self._add_steps()
                self._add_glue_runs()
                for work in self.work:
                    work.advance(self.environment)
        for work in self.work:
            work.end()

    def stop(self) -> None:
        self._stopped.set()

    def job_run(self, token: str) -> Any:
        """Return the job run that was started with a token; ``None`` for a new one."""
        runs = models.emrserverless_backends[ACCOUNT][REGION].job_runs.values()
        return next((item for items in runs for item in items if item.client_token == token), None)

    def add_job_run(self, item: Any, policy: Mapping[str, Any]) -> None:
        """Have a job run started."""
        submit = item.job_driver["sparkSubmit"]
        parameters = shlex.split(submit.get("sparkSubmitParameters", ""))
        command = [
            "spark-submit",
            *parameters,
            submit["entryPoint"],
            *submit["entryPointArguments"],
        ]
        item.state = "SUBMITTED"
        starts = policy.get("maxAttempts", 1)
        self.work.append(Work(item, command, self._log(item), "SUCCESS", starts))

    def _add_steps(self) -> None:
        present = {work.item.id for work in self.work}
        for item in emr_backends[ACCOUNT][REGION].clusters[self.cluster].steps:
            if item.id not in present:
                assert item.jar == "command-runner.jar"
                item.state = "PENDING"
                self.work.append(Work(item, item.args, self._log(item), "COMPLETED", self.starts))

    def _add_glue_runs(self) -> None:
        present = {work.item.id for work in self.work}
        for run in glue_backends[ACCOUNT][REGION].jobs[self.job].job_runs:
            if run.job_run_id not in present:
                arguments = dict(run.arguments)
                # Hadoop of this machine knows s3a alone.
                script = arguments.pop("--scriptLocation").replace("s3://", "s3a://")
                named = [part for argument in arguments.items() for part in argument]
                command = ["spark-submit", script, "--JOB_NAME", self.job, *named]
                item = GlueRun(run)
                self.work.append(Work(item, command, self._log(item), "SUCCEEDED", self.starts))

    def _log(self, item: Any) -> Path:
        return self.folder / f"{item.id}.log"


@contextmanager
def emulated_emr(environment: Mapping[str, str], folder: Path) -> Iterator[EmulatedEmr]:
    """Serve it on loopback."""
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=QuietHandler)
    emr = EmulatedEmr(f"http://127.0.0.1:{server.server_port}", environment, folder)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    running = threading.Thread(target=emr.run_until_stopped, daemon=True)
    accepted = responses.EMRServerlessResponse.start_job_run

    def start(response: Any) -> Any:
        token = response._get_param("clientToken")
        with emr.busy:
            item = emr.job_run(token)
            if item:
                answer = {"applicationId": item.application_id, "jobRunId": item.id}
                return ActionResult({**answer, "arn": item.arn})
            answer = accepted(response)
            emr.add_job_run(emr.job_run(token), response._get_param("retryPolicy") or {})
            return answer

    def cancel(backend: Any, application_id: str, job_run_id: str) -> tuple[str, str]:
        item = backend.get_job_run(application_id, job_run_id)
        with emr.busy:
            if item.state not in _ENDED:
                item.state = "CANCELLING"
        return application_id, job_run_id

    with (
        patch.object(responses.EMRServerlessResponse, "start_job_run", start),
        patch.object(models.EMRServerlessBackend, "cancel_job_run", cancel),
    ):
        # A run of Glue would succeed when it is asked for.
        state_manager.set_transition("glue::job_run", {"progression": "manual", "times": sys.maxsize})
        serving.start()
        emr.create()
        running.start()
        try:
            yield emr
        finally:
            emr.stop()
            running.join()
            state_manager.unset_transition("glue::job_run")
            server.shutdown()
            serving.join()
            server.server_close()

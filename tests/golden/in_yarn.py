"""Writers whose drivers run in a real YARN, for recording their containers' logs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Self

from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.embedded.bundle import resolve_jars
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.embedded.yarn import EmbeddedYarn
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager
from tests.writers import Writer

_SETTINGS = {
    "yarn.nodemanager.log-aggregation.compression-type": "gz",
    # It copies scripts with this machine's environment into the logs.
    "yarn.nodemanager.log-container-debug-info.enabled": "false",
}
_HADOOP = "3.3.4"

_ONE_TRY = ("--conf", "spark.task.maxFailures=1")  # a task's, as in local mode


class YarnStack(EmbeddedStack):
    """The services of a writer's test, with a YARN."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.yarn = EmbeddedYarn(folder / "yarn", _SETTINGS)

    def __enter__(self) -> Self:
        super().__enter__()
        self.yarn.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.yarn.stop()
        super().__exit__()

    @property
    def yarn_environment(self) -> dict[str, str]:
        """The environment in which ``spark-submit`` finds the YARN."""
        return self.yarn.environment(self.environment)

    def submitter(
        self,
        job: Sequence[str],
        files: Sequence[str],
        conf: Mapping[str, object],
        environment: Mapping[str, str],
    ) -> YarnCluster:
        """Return what runs a job: a file with its arguments."""

        def command(protected: Mapping[str, str]) -> list[str]:
            flags = [part for key, value in protected.items() for part in ("--conf", f"{key}={value}")]
            shipped = ("--files", ",".join(files)) if files else ()
            return ["spark-submit", *_ONE_TRY, *flags, *shipped, *job]

        manager = ResourceManager([self.yarn.resource_manager])
        return YarnCluster(manager, command, conf, environment, self.open_log, end_s=60.0)

    def open_log(self, path: str) -> BinaryIO:
        """Open an aggregated log."""
        return (self.yarn.aggregated_logs / path).open("rb")

    def yarn_logs(self, application: str) -> str:
        """Return what ``yarn logs -applicationId`` prints, by Hadoop's own program."""
        client = ("org.apache.hadoop", "hadoop-yarn-client", _HADOOP)
        alone = resolve_jars(f"yarn-client-{_HADOOP}", (), alone=[client])
        jars = resolve_jars(f"yarn-{_HADOOP}", ())
        path = os.pathsep.join(map(str, (self.yarn.folder / "conf", jars / "*", alone / "*")))
        program = "org.apache.hadoop.yarn.client.cli.LogsCLI"
        java = str(find_java_home() / "bin" / "java")
        command = [java, "-Xmx256m", "-cp", path, program, "-applicationId", application]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


class YarnWriter(Writer):
    """A protected attempt whose driver runs in a container."""

    stack: YarnStack
    is_remote = True
    deploy_mode = "cluster"

    def kill(self, number: int = 0) -> None:
        """Kill the application."""
        assert self.handle
        self.submitter.end(self.handle)

    def _submitter(self, submission: Submission, environment: Mapping[str, str]) -> YarnCluster:
        changed = {**environment, **self.stack.yarn_environment, **submission.environment}
        job = [submission.application, *submission.arguments]
        self.submitter = self.stack.submitter(job, submission.files, self.conf, changed)
        return self.submitter


def recorded_writer(stack: EmbeddedStack) -> type[Writer]:
    """Return the class of the writers whose logs are recorded."""
    return YarnWriter if isinstance(stack, YarnStack) else Writer

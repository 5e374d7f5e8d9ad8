"""Writers whose drivers run in a real YARN."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from airflow_occ_provider.attempts.site import NO_LIMIT
from airflow_occ_provider.attempts.submission import SparkJob, Submission, offered
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.storage.attempt_folder import AttemptFolder, run_folder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.yarn_place import ResourceManager, YarnPlace
from tests.services.yarn import EmbeddedYarn
from tests.support.writers import Writer


class YarnStack(EmbeddedStack):
    """The services of a writer's test, with a YARN."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.yarn = EmbeddedYarn(folder / "yarn")

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


class YarnLaunch:
    """A submission by Spark's own command, without Airflow's hook."""

    start_limit = NO_LIMIT

    def __init__(self, submission: Submission, environment: Mapping[str, str]) -> None:
        self._submission, self.environment = submission, environment

    def command(self, conf: Mapping[str, str]) -> Sequence[str]:
        flags = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        job = (self._submission.application, *self._submission.arguments)
        return ["spark-submit", "--conf", "spark.task.maxFailures=1", *flags, *job]


class YarnWriter(Writer):
    """A protected attempt whose driver runs in a container."""

    stack: YarnStack
    is_remote = True
    deploy_mode = "cluster"

    def kill(self, number: int = 0) -> None:
        """Kill the application."""
        assert self.handle
        self.driver.place.kill(self.handle)

    def _prepared(self, job: SparkJob, options: Mapping[str, str]) -> AbstractContextManager[Submission]:
        folder = f"{run_folder(str(self.table), self.identity)}/{secrets.token_hex(4)}"
        return offered(job, options, AttemptFolder(folder))

    def _submitter(self, submission: Submission, environment: Mapping[str, str]) -> FolderDriver:
        changed = {**environment, **self.stack.yarn_environment}
        manager = ResourceManager([self.stack.yarn.resource_manager])
        place = YarnPlace(manager, YarnLaunch(submission, changed), self.conf)
        self.driver = FolderDriver(AttemptFolder, place, submission)
        return self.driver

"""What a task's drivers are given before one is submitted, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.site import NO_LIMIT, StartLimit
from airflow_occ_provider.attempts.submission import Submission, without_secrets
from airflow_occ_provider.submitters.flag import Flag


@dataclass(frozen=True, slots=True)
class Launch:
    """One submission of a task's job.

    :param spark: Spark's hook with the attempt's arguments.
    :param env_vars: the environment variables that the user has given to the task.
    :param killed: set when the task is asked to stop.
    :param site: what the site sets for Spark.
    :param start_limit: the longest wait for the begin of its job.
    """

    spark: Any
    submission: Submission
    env_vars: Mapping[str, str]
    killed: Flag
    site: Mapping[str, str] = field(default_factory=dict)
    start_limit: StartLimit = NO_LIMIT

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the process that submits."""
        return {**os.environ, **self.env_vars, **self.submission.environment}

    def command(self) -> list[str]:
        """Return the command that Spark's hook builds, without secrets."""
        settings, properties_file = without_secrets(self.spark._conf, self.site, self.submission.folder)
        if properties_file:
            self.spark._conf, self.spark._properties_file = settings, properties_file
        return list(self.spark._build_spark_submit_command(self.submission.application))

    def command_with(self, conf: Mapping[str, str]) -> list[str]:
        """Return the command with other properties of Spark.

        Its driver has the user's variables alone: those of the submission are the launcher's.
        """
        self.spark._conf, self.spark._env_vars = dict(conf), dict(self.env_vars)
        return self.command()

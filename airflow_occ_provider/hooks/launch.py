"""What a task's drivers are given before one is submitted, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.submitters.spark_submit import Flag


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A task's job before any driver of it.

    :param spark: Spark's hook with the user's arguments.
    :param env_vars: the environment variables of the task.
    """

    job: SparkJob
    site: Site
    spark: Any
    env_vars: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launch:
    """One submission of a task's job.

    :param spark: Spark's hook with the attempt's arguments.
    :param env_vars: the environment variables that the user has given to the task.
    :param killed: set when the task is asked to stop.
    """

    spark: Any
    submission: Submission
    env_vars: Mapping[str, str]
    killed: Flag

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the process that submits."""
        return {**os.environ, **self.env_vars, **self.submission.environment}

    def command(self) -> list[str]:
        """Return the command that Spark's hook builds."""
        return list(self.spark._build_spark_submit_command(self.submission.application))

    def command_with(self, conf: Mapping[str, str]) -> list[str]:
        """Return the command with other properties of Spark.

        Its driver has the user's variables alone: those of the submission are the launcher's.
        """
        self.spark._conf, self.spark._env_vars = dict(conf), dict(self.env_vars)
        return self.command()

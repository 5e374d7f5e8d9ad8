"""A real Airflow with the Celery executor, whose broker is PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from airflow_occ_provider.embedded.process import Server
from tests.services.airflow import EmbeddedAirflow
from tests.services.postgres import Postgres
from tests.support.airflow_component import COMPONENTS

_NAME = "airflow"
_WORKER = ("-m", "airflow", "celery", "worker", "--concurrency", "4", "--skip-serve-logs")


class CeleryAirflow(EmbeddedAirflow):
    """Airflow with one Celery worker; a PostgreSQL holds its metadata, the messages and the results.

    Its arguments are those of ``EmbeddedAirflow``.
    """

    _LOG = "components.log"

    def __init__(
        self,
        folder: Path,
        dags: Path,
        environment: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, dags, environment, settings)
        self._database = Postgres(_NAME, _NAME)
        self._shared: Mapping[str, str] = {}
        self._worker: Server | None = None

    @property
    def database_url(self) -> str:
        """The address of its database."""
        return self._database.address

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes, to run ``airflow`` commands."""
        url = self.database_url
        return {
            **super().environment,
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": f"sqla+{url}",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{url}",
            "AIRFLOW__CELERY__OPERATION_TIMEOUT": "300",  # a slow machine needs more than the second
        }

    def start(self) -> None:
        """Start all of it and return when it answers."""
        self._database.__enter__()
        try:
            super().start()
            self.start_worker()
        except BaseException:
            self.stop()
            raise

    def start_worker(self) -> None:
        """Start a worker."""
        command, log = [sys.executable, *_WORKER], self.folder / "worker.log"
        self._worker = Server("Celery worker", command, self._shared, log)

    def kill_worker(self) -> None:
        """Kill the worker with its tasks; their drivers have sessions of their own."""
        if self._worker is None:
            return
        (worker,) = psutil.Process(self._worker._guard.pid).children()
        for process in (worker, *worker.children(recursive=True)):
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == worker.pid:
                    process.kill()
        self._worker.stop()

    def stop(self) -> None:
        """Stop it with all its processes; safe to repeat. Its files stay."""
        if self._worker:
            self._worker.stop()
        super().stop()
        self._database.__exit__()

    def _command(self) -> list[str]:
        return ["bash", "-c", COMPONENTS, sys.executable]

    def _variables(self) -> Mapping[str, str]:
        self._shared = super()._variables()
        return self._shared

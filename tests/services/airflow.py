"""A real Airflow with all its components, on a free loopback port."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.ports import free_ports
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.service import PORT_TAKEN, EmbeddedService
from tests.services import sqlite
from tests.support.observed import until

_ROOT = Path(__file__).parents[2]
_CALL_TIMEOUT_S = 30.0
_BUSY_PAUSE_S = 1.0
_TRIES = 10
_PAGE = 100
_ENDED = ("success", "failed")
_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


class EmbeddedAirflow(EmbeddedService):
    """``airflow standalone`` during a ``with`` block (SQLite, LocalExecutor).

    :param folder: its home; created if missing.
    :param dags: the folder of its DAGs.
    :param environment: its environment, for example from ``spark_environment``.
    :param settings: further settings as environment variables, ``AIRFLOW__SECTION__KEY``.
    """

    _NAME = "Airflow"
    _LOG = "standalone.log"
    _START_TIMEOUT_S = 600.0

    def __init__(
        self,
        folder: Path,
        dags: Path,
        environment: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.dags = dags
        self._environment = environment
        self._settings = settings or {}
        self._token = ""
        self._log_ports = (0, 0)

    @property
    def url(self) -> str:
        """The address of its UI."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        """Its SQLite database."""
        return self.folder.absolute() / "airflow.db"

    @property
    def database_url(self) -> str:
        """The address of its database, which its settings may name."""
        return self._settings.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{self.database}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its processes, to run ``airflow`` commands."""
        return {
            **self._environment,
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            **_connect_args(self.database_url),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database_url,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
            "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            # A supervisor notices the end of a task at its next heartbeat: until then its slot is taken.
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            # A try whose start a busy API server does not answer in time is lost without a log.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            # A changed file is read again at once; to read the others takes a core on a slow machine.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self._log_ports[0]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self._log_ports[1]),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), self._environment["PATH"]]),
            **self._settings,
            "PYTHONPATH": self._python_path,
        }

    @property
    def _python_path(self) -> str:
        """The folders of the settings and of the environment, and that of ``tests.services.sqlite``."""
        folders = [variables.get("PYTHONPATH") for variables in (self._settings, self._environment)]
        return os.pathsep.join([folder for folder in folders if folder] + [str(_ROOT)])

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        is_repeatable: bool = False,
    ) -> Any:
        """Call its REST API and return the decoded answer.

        :param method: HTTP method.
        :param path: path below ``/api/v2``.
        :param body: JSON body.
        :param is_repeatable: whether a request that was not answered is made again, as each GET is.
        :raises EmbeddedError: if the API refuses or does not answer; with its message.
        """
        for _ in range(_TRIES):
            try:
                if not self._token:
                    self._token = str(self._request("GET", "/auth/token")["access_token"])
                return self._request(method, f"/api/v2{path}", body)
            except EmbeddedError as error:
                refused = error
                if not self._is_transient(str(error), is_repeatable=is_repeatable or method == "GET"):
                    break
        raise refused

    def _is_transient(self, error: str, *, is_repeatable: bool) -> bool:
        """Whether a repeated call may succeed: busy server or SQLite, or an invalid token."""
        if "Invalid JWT token" in error:
            self._token = ""
            return True
        if is_repeatable and "timed out" in error:
            return True
        if '"Database error"' not in error and "Database is locked" not in error:
            return False
        time.sleep(_BUSY_PAUSE_S)
        return True

    def add_connection(self, connection_id: str, **fields: Any) -> None:
        """Add or replace a connection; ``extra`` may be a mapping."""
        extra = fields.get("extra")
        if isinstance(extra, Mapping):
            fields["extra"] = json.dumps(extra)
        body = {"connection_id": connection_id, **fields}
        try:
            self.call("POST", "/connections", body)
        except EmbeddedError as error:
            if " 409" not in str(error):
                raise
            self.call("PATCH", f"/connections/{connection_id}", body)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Unpause a DAG, start a run of it, and return the run's id.

        :param more: of the run, such as its ``partition_key``.
        """
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
        run_id = f"manual__{datetime.now(UTC).isoformat()}_{secrets.token_hex(4)}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}, **more}
        try:
            self.call("POST", f"/dags/{dag_id}/dagRuns", body, is_repeatable=True)
        except EmbeddedError as error:
            if " 409" not in str(error):  # else a request that was not answered was carried out
                raise
        return run_id

    def end_of(self, dag_id: str, run_id: str) -> str:
        """Wait for the end of a run, and return its state."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}"

        def ended() -> str:
            state = str(self.call("GET", path)["state"])
            return state if state in _ENDED else ""

        return until(ended, f"the end of {run_id}")

    def listed(self, path: str, key: str, order: str = "id") -> Iterator[dict[str, Any]]:
        """Yield the entries of all pages of a list.

        :param path: of the list, without a query.
        :param key: of the entries in an answer.
        :param order: by which they are sorted.
        """
        offset, total = 0, 1
        while offset < total:
            page = self.call("GET", f"{path}?limit={_PAGE}&offset={offset}&order_by={order}")
            yield from page[key]
            offset, total = offset + _PAGE, page["total_entries"]

    def has_dag(self, dag_id: str) -> bool:
        """Whether the DAG processor has loaded the DAG."""
        try:
            self.call("GET", f"/dags/{dag_id}")
        except EmbeddedError as error:
            if " 404" in str(error):
                return False
            raise
        return True

    def log_lines(
        self, dag_id: str, run_id: str, task_id: str, try_number: int, map_index: int = -1
    ) -> list[str]:
        """Return the lines of one try's log, as the UI shows them."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.call("GET", f"{path}?full_content=true&map_index={map_index}")["content"]
        return [text for line in content for text in _shown(line)]

    def _command(self) -> list[str]:
        worker, triggerer = free_ports(2)
        self._log_ports = (worker, triggerer)
        return [sys.executable, "-m", "airflow", "standalone"]

    def _variables(self) -> Mapping[str, str]:
        return {
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
            **self.environment,
        }

    def _answers(self) -> bool:
        try:
            health = self.call("GET", "/monitor/health")
        except EmbeddedError:
            self._refuse_taken_port()
            return False
        return all((health.get(name) or {}).get("status") == "healthy" for name in _COMPONENTS)

    def _refuse_taken_port(self) -> None:
        """Refuse to wait for an API server that could not bind its port: the other components run on.

        :raises EmbeddedError: if the log says that it could not.
        """
        for line in (self.folder / self._LOG).read_text(errors="replace").splitlines():
            if f", {self.port}): {PORT_TAKEN}" in line:
                raise EmbeddedError(line)

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310 - our own loopback server
        request.add_header("Accept", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        content = None
        if body is not None:
            request.add_header("Content-Type", "application/json")
            content = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, content, timeout=_CALL_TIMEOUT_S) as answer:  # noqa: S310
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")[:500]
            raise EmbeddedError(f"{method} {path}: {error.code} {text}") from error
        except (OSError, ValueError) as error:
            raise EmbeddedError(f"{method} {path}: {error}") from error


def _connect_args(database_url: str) -> dict[str, str]:
    """Return the settings by which a busy SQLite is waited for."""
    if not database_url.startswith("sqlite"):
        return {}
    name = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS"
    return dict.fromkeys((name, f"{name}_ASYNC"), f"{sqlite.__name__}.CONNECT_ARGS")


def _shown(line: Any) -> Iterator[str]:
    """Yield a line of a task's log, and the errors below it."""
    if not isinstance(line, dict):
        yield str(line)
        return
    yield str(line["event"])
    for error in line.get("error_detail") or ():
        yield f"{error['exc_type']}: {error['exc_value']}"

"""A real Airflow on PostgreSQL whose users sign in, for the pages about Hudi tables."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.services.airflow import EmbeddedAirflow
from tests.services.postgres import Postgres
from tests.support.airflow_component import COMPONENTS

ROOT = Path(__file__).parents[2]
DAGS = Path(__file__).parent / "dags"
JOB = Path(__file__).parents[1] / "jobs" / "gated_write.py"
ROLES = {"simple": ("admin", "op", "viewer"), "fab": ("Admin", "Op", "Viewer")}
MANAGERS = {
    "simple": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
    "fab": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
}
LIMITED = "limited"
"""A user who may read the tables and no DAG, where the auth manager has such users."""
LOCK = "hudi_lock_default"
_NAME = "airflow"
_PASSWORD = "a-word-of-the-test"
_PATIENCE_S = 900


class SignedInAirflow(EmbeddedAirflow):
    """An Airflow that gives tokens to users with a password alone."""

    def token(self, user: str) -> str:
        """Return a new token of a user."""
        given = {"username": user, "password": _PASSWORD}
        return str(super()._request("POST", "/auth/token", given)["access_token"])

    def _command(self) -> list[str]:
        super()._command()  # which chooses ports for the logs
        return ["bash", "-c", COMPONENTS, sys.executable]

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if path == "/auth/token":
            return {"access_token": self.token("admin")}
        return super()._request(method, path, body)


@contextmanager
def running(
    folder: Path,
    stack: EmbeddedStack,
    manager: str,
    more_settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[SignedInAirflow]:
    """Run Airflow for the time of a ``with`` block.

    :param manager: which auth manager, ``simple`` or ``fab``.
    :param more_settings: environment variables of Airflow.
    """
    folder.mkdir(parents=True)
    with Postgres(_NAME, _NAME) as database:
        settings = {
            **more_settings,
            "AIRFLOW__CORE__AUTH_MANAGER": MANAGERS[manager],
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.address,
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "3600",  # the dead stay to be seen
        }
        if manager == "simple":
            settings |= _simple_users(folder)
        airflow = SignedInAirflow(folder, DAGS, stack.environment, settings)
        if manager == "fab":
            _fab_users(airflow)
        with airflow:
            airflow.add_connection(LOCK, **stack.lock_connection)
            airflow.add_connection("spark_default", conn_type="spark", host="local[2]")
            wait_for("the DAGs", lambda: airflow.has_dag("load_trips"))
            yield airflow


def wait_for(what: str, happened: Callable[[], Any], pause_s: float = 0.5) -> Any:
    """Wait until something has happened, and return what it is."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < deadline, f"{what}: not in {_PATIENCE_S} s"
        time.sleep(pause_s)
    return found


def _simple_users(folder: Path) -> dict[str, str]:
    users = ROLES["simple"]
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps(dict.fromkeys(users, _PASSWORD)))
    return {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{one}:{one}" for one in users),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
    }


def _fab_users(airflow: SignedInAirflow) -> None:
    """Create the users in the database, which Airflow has not used yet."""
    for command in (["airflow", "db", "migrate"], ["tests.pages.fab_users", _PASSWORD]):
        subprocess.run(
            [sys.executable, "-m", *command],
            env={**airflow.environment, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            timeout=_PATIENCE_S,
        )

"""A real Hive metastore over a real PostgreSQL, with the tables that the production stack makes."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_occ_provider.embedded.bundle import resolve_jar
from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from tests.services.compose import DOCKER, fetched_jars
from tests.services.postgres import Postgres

_NAME = _PASSWORD = "metastore"
_TIMEOUT_S = 60


@contextmanager
def metastore_on_postgres(folder: Path, lock_timeout_s: int) -> Iterator[EmbeddedMetastore]:
    """Run both for the time of a ``with`` block.

    :param folder: where the metastore keeps its logs; it is on its class path, and so the place of
        PostgreSQL's driver.
    :param lock_timeout_s: seconds without a heartbeat after which the metastore drops a lock.
    """
    (folder / "database").mkdir(parents=True)  # else it would make one of Derby's
    with zipfile.ZipFile(resolve_jar(*fetched_jars()["POSTGRES"])) as driver:
        driver.extractall(folder)
    with Postgres(_NAME, _PASSWORD) as database:
        _make_lock_tables(database)
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://127.0.0.1:{database.port}/{_NAME}",
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": _NAME,
            "javax.jdo.option.ConnectionPassword": _PASSWORD,
        }
        with EmbeddedMetastore(folder, lock_timeout_s=lock_timeout_s, settings=settings) as metastore:
            yield metastore


def _make_lock_tables(database: Postgres) -> None:
    words = ("--host=127.0.0.1", f"--port={database.port}", f"--username={_NAME}", f"--dbname={_NAME}")
    locks = DOCKER / "metastore" / "locks.sql"
    subprocess.run(
        [str(database.programs / "psql"), *words, "--quiet", "--set=ON_ERROR_STOP=1", f"--file={locks}"],
        env={**os.environ, "PGPASSWORD": _PASSWORD},
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )

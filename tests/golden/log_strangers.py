"""Jobs that this provider does not run, for recording their drivers' logs."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.writer.options import (
    metastore_lock_options,
    writer_options,
)
from tests.support.writers import JOB, Writer, lock_options, wait_for

_PATIENCE_S = 240
# Port 1 of loopback refuses connections.
_NO_METASTORE = "thrift://127.0.0.1:1"
_SQL = """\
CREATE TABLE t USING hudi LOCATION '{table}';
{options}
INSERT INTO t SELECT id, 'sql', 2, p FROM (
  SELECT TRANSFORM(id, p) USING 'sh {gate}' AS (id string, p string)
  FROM VALUES ('0', '0'), ('1', '1') AS new(id, p)
);
"""
_GATE = "touch {folder}/sql.begun; while [ ! -e {folder}/sql.go ]; do sleep 0.1; done; cat\n"


@dataclass
class Stranger:
    """A driver that is started without this provider, as a user would start it."""

    stack: EmbeddedStack
    command: Sequence[str]

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.exit_code: int | None = None
        self.handle: Handle | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Stranger:
        self._thread.start()
        return self

    def wait(self) -> Stranger:
        self._thread.join(_PATIENCE_S)
        assert self.exit_code is not None, "".join(self.lines[-40:])
        return self

    def _run(self) -> None:
        process = subprocess.Popen(
            self.command,
            env=self.stack.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        self.lines.extend(process.stdout)
        process.stdout.close()
        self.exit_code = process.wait()


def _zookeeper(stack: EmbeddedStack) -> dict[str, str]:
    return writer_options(lock_options(stack.zookeeper.hosts), {})


def _pyspark(stack: EmbeddedStack, table: Path, options: Mapping[str, str], *arguments: str) -> Stranger:
    given = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    job = [str(JOB), str(table), *arguments, *given]
    return Stranger(stack, ["spark-submit", "--master", "local[2]", "--driver-memory", "1g", *job])


def _with_options(changed: Mapping[str, str], stack: EmbeddedStack, folder: Path) -> Stranger:
    """Run a writer with a protected one's settings, some of which Hudi rejects."""
    return _pyspark(stack, folder / "t", {**_zookeeper(stack), **changed}).start().wait()


def _metastore_unreachable(stack: EmbeddedStack, folder: Path) -> Stranger:
    lock = metastore_lock_options(
        _NO_METASTORE, "hudi", "locks", wait_time_ms=2000, heartbeat_interval_ms=1000, num_retries=0
    )
    return _pyspark(stack, folder / "t", writer_options(lock, {})).start().wait()


def conflict_caught(stack: EmbeddedStack, folder: Path) -> Stranger:
    """The loser's job prints the conflict and continues."""
    Writer(stack, folder / "t").run()
    arguments = ("--writer", "loser", "--gate", str(folder), "--catch", "print")
    loser = _pyspark(stack, folder / "t", _zookeeper(stack), *arguments).start()
    _pass_by(stack, folder, "loser")
    return loser.wait()


def _conflict_in_sql(stack: EmbeddedStack, folder: Path) -> Stranger:
    """``spark-sql -f`` loses a conflict; its source is a script that waits."""
    Writer(stack, folder / "t").run()
    (gate := folder / "gate.sh").write_text(_GATE.format(folder=folder))
    options = {**_zookeeper(stack), "hoodie.spark.sql.insert.into.operation": "upsert"}
    sets = "\n".join(f"SET {key}={value};" for key, value in options.items())
    (sql := folder / "t.sql").write_text(_SQL.format(table=folder / "t", options=sets, gate=gate))
    conf = {
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    flags = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = ["spark-sql", "--master", "local[2]", "--driver-memory", "1g", *flags, "-f", str(sql)]
    loser = Stranger(stack, command).start()
    _pass_by(stack, folder, "sql")
    return loser.wait()


def _pass_by(stack: EmbeddedStack, folder: Path, loser: str) -> None:
    """Commit while another writer has begun, then open its gate."""
    wait_for(f"the begin of {loser}", (folder / f"{loser}.begun").exists)
    Writer(stack, folder / "t", ("--writer", "winner")).run()
    (folder / f"{loser}.go").touch()


STRANGERS: dict[str, Callable[[EmbeddedStack, Path], Stranger]] = {
    "stranger_conflict_in_sql": _conflict_in_sql,
    "stranger_metastore_unreachable": _metastore_unreachable,
    "stranger_unknown_lock_provider": partial(
        _with_options, {"hoodie.write.lock.provider": "org.example.NoSuchLockProvider"}
    ),
    "stranger_unknown_concurrency_mode": partial(
        _with_options, {"hoodie.write.concurrency.mode": "OPTIMISTIC"}
    ),
    "stranger_short_heartbeat_interval": partial(
        _with_options, {"hoodie.client.heartbeat.interval_in_ms": "500"}
    ),
}

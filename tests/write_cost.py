"""What the simplest write costs: the package's files it passes, and its requests to the table's storage.

``python -m tests.write_cost`` runs one uncontended write of ``HudiWriteOperator`` in client mode, with a
lock in a real ZooKeeper and its table behind a real S3 server. The job commits in the form of Hudi,
without Spark, on the server's disk, so each request is one of the worker's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.services.versitygw import EmbeddedVersitygw
from tests.support.faulty_proxy import FaultyProxy, Request
from tests.support.stand_in import Writer, make_empty_table, stand_in_variables
from tests.support.stores import BUCKET
from tests.support.task_state import Store

PACKAGE = Path(__file__).parents[1] / "airflow_occ_provider"


@contextmanager
def passed_functions() -> Iterator[set[tuple[str, str]]]:
    """Record the functions of the package that are called in any thread, with their files."""
    functions: set[tuple[str, str]] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if (
            event == "call"
            and name.startswith(f"{PACKAGE}{os.sep}")
            and frame.f_code.co_name != "<module>"
        ):
            functions.add((str(Path(name).relative_to(PACKAGE)), frame.f_code.co_qualname))

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        yield functions
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def measure(folder: Path) -> tuple[set[tuple[str, str]], list[Request]]:
    """Return the functions that a second write to a table passes, and its requests."""
    with ExitStack() as services:
        zookeeper = services.enter_context(EmbeddedZookeeper(folder / "zookeeper"))
        server = services.enter_context(EmbeddedVersitygw(folder / "s3"))
        server.make_bucket(BUCKET)
        proxy = services.enter_context(FaultyProxy(server.url))
        make_empty_table(server.folder / "buckets" / BUCKET / "t")
        variables = _environment(folder, server, proxy.url, zookeeper.hosts)
        services.enter_context(patch.dict(os.environ, variables))
        _write(folder, "first")
        proxy.counted()
        with passed_functions() as functions:
            _write(folder, "second")
        return functions, proxy.counted()


def _environment(folder: Path, server: EmbeddedVersitygw, url: str, hosts: str) -> dict[str, str]:
    aws = {"conn_type": "aws", "login": server.KEY, "password": server.SECRET}
    aws["extra"] = json.dumps({"endpoint_url": url, "region_name": server.REGION})
    lock = {"conn_type": "hudi_zookeeper_lock", "host": hosts, "extra": {"base_path": "/hudi/locks"}}
    return {
        **stand_in_variables(folder / "spark", server.folder / "buckets" / BUCKET / "t"),
        "AIRFLOW_CONN_LAKE": json.dumps(aws),
        "AIRFLOW_CONN_LOCK": json.dumps(lock),
        "STAND_IN_ZOOKEEPER": hosts,
    }


def _write(folder: Path, run_id: str) -> None:
    job = folder / "job.py"
    job.touch()
    task = HudiWriteOperator(
        task_id="t",
        application=str(job),
        table=f"s3://{BUCKET}/t",
        lock_conn_id="lock",
        storage_conn_id="lake",
    )
    instance = Writer(1, 14)
    instance.run_id = run_id
    context = {"ti": instance, "task": task, "task_state_store": Store(), "outlet_events": {}}
    assert task.execute(context)["instant"]  # type: ignore[arg-type]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="airflow_occ_cost_") as scratch:
        functions, requests = measure(Path(scratch))
    files = sorted({file for file, _ in functions})
    print(f"\nfiles ({len(files)}), of {len(functions)} functions")
    for file in files:
        print(f"  {sum(name == file for name, _ in functions):>3} {file}")
    print(f"\nrequests to the table's storage ({len(requests)})")
    for request in requests:
        print(f"  {request}")


if __name__ == "__main__":
    main()

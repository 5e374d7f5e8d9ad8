"""What real drivers in a bucket cost in requests: ``python -m tests.bench.driver_requests``.

Drivers of Spark, which BashOperators have started, run a job that reports nothing, alone and under a
lease on which its commits would depend, and one that reports all the time. Each is followed by the
process of its task. All requests for their attempts' folders go through a proxy, which counts them by
method and by client, in some minutes after the first. Those for the tables, at which the guards look,
are counted apart. ``CHECK=1`` makes it a test.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote

import structlog
from airflow.sdk import DAG

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.storage.attempt_folder import HIDDEN
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.bench.harness import Goal, conclude
from tests.faulty_s3 import S3proxy
from tests.support.faulty_proxy import FaultyProxy, Request
from tests.support.session_site import SITE
from tests.support.stores import BUCKET
from tests.support.via_runs import Run

JOB = Path(__file__).parents[1] / "jobs" / "printing_job.py"
STORE_CONN_ID = "store"
SILENT, REPORTING, LEASED = "silent", "reporting", "leased"
EVERY_S = {SILENT: 1e6, REPORTING: 1.0, LEASED: 1e6}
FIRST_S, MINUTE_S, STARTS_S = 65.0, 60.0, 60.0
MOST = 20
SUBMIT = f"spark-submit --master 'local[1]' --driver-memory 1g {RUNNER} {ARGUMENTS}"


def kind(request: Request, name: str) -> str:
    """Return what a request does and whose it is; nothing if it is not about a job's table."""
    what = unquote(f"{request.path}?{request.query}")
    if name not in what:
        return ""
    method = "LIST" if request.is_listing else request.method
    client = "driver" if "java" in request.agent.lower() else "attempt"
    return f"{client} {method}" if HIDDEN in what else f"table {method}"


def started(name: str, folder: Path, seconds: float) -> Run:
    """Start the task of a job, and wait until its session is there."""
    times = folder / f"{name}.times"
    run = Run(
        HudiWriteOperator(
            task_id=name,
            dag=DAG("requests", schedule=None),
            application=str(JOB),
            application_args=[str(seconds), "0", "--every", str(EVERY_S[name])],
            table=f"s3a://{BUCKET}/{name}",
            lock_conn_id="lock",
            storage_conn_id=STORE_CONN_ID,
            isolation="serializable" if name == LEASED else "snapshot",
            deferrable=False,
            via="airflow.providers.standard.operators.bash.BashOperator",
            via_kwargs={
                "bash_command": SUBMIT,
                "append_env": True,
                "env": {"BENCH_TIMES": str(times)},
            },
        )
    ).start()
    run.reached(times)
    return run


def minutes(proxy: FaultyProxy, number: int) -> Iterator[dict[str, Counter[str]]]:
    """Yield the requests of each minute by their kind, for each job."""
    proxy.counted()
    for _ in range(number):
        time.sleep(MINUTE_S)
        requests = proxy.counted()
        yield {name: Counter(filter(None, (kind(one, name) for one in requests))) for name in EVERY_S}


def goals(seen: list[dict[str, Counter[str]]]) -> Iterator[Goal]:
    for name in EVERY_S:
        for client in ("driver", "attempt"):
            of_client = [of(minute[name], client) for minute in seen]
            yield Goal(f"{name}: a minute, of the {client}", statistics.mean(of_client), unit="")
        both = [of(minute[name], "driver") + of(minute[name], "attempt") for minute in seen]
        yield Goal(f"{name}: a minute, in all", statistics.mean(both), at_most=MOST, unit="")


def of(requests: Counter[str], client: str) -> int:
    return sum(count for what, count in requests.items() if what.startswith(client))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    number: int = parser.parse_args().minutes
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="airflow_occ_requests_") as scratch:
        folder = Path(scratch)
        with (
            S3proxy(folder / "store") as store,
            FaultyProxy(store.url) as proxy,
            ExitStack() as services,
        ):
            store.make_bucket(BUCKET)
            store.proxy = proxy  # the clients' configuration is written below
            stack = services.enter_context(EmbeddedStack(folder / "stack", store=store))
            os.environ.update(stack.environment)
            for name, connection in (("LOCK", stack.lock_connection), ("STORE", store.connection)):
                os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps(connection)
            os.environ["AIRFLOW__HUDI_OCC__SITE_ID"] = SITE
            seconds = FIRST_S + number * MINUTE_S + STARTS_S
            runs = [started(name, folder, seconds) for name in EVERY_S]
            time.sleep(FIRST_S)
            seen = []
            for minute in minutes(proxy, number):
                seen.append(minute)
                for name, requests in minute.items():
                    each = ", ".join(f"{count} {what}" for what, count in sorted(requests.items()))
                    print(f"  {name}: {each}", flush=True)
            for run in runs:
                if not run.thread.is_alive():
                    raise RuntimeError(f"{run.task.task_id} ended before: {run.error or run.result}")
                run.wait()
                if run.error:
                    raise run.error
    return conclude(list(goals(seen)))


if __name__ == "__main__":
    sys.exit(main())

"""Runs a shape plainly by ``spark-submit``, and as a task of ``HudiWriteOperator``."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_occ_provider.attempts.own_writes import is_service
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.storage.table import HudiTable
from tests.corpus.shapes import Shape
from tests.corpus.worker import main as worker_main
from tests.support.session_site import SITE

READER = Path(__file__).parent / "read_tables.py"
SUBMIT = ("spark-submit", "--master", "local[2]", "--driver-memory", "1g")
MOST_S = 240
_PART, _PARTS = 65536, 300


@dataclass
class Run:
    """What came of a shape, plainly or by a task."""

    lake: Path
    ok: bool
    output: str
    error: str = ""
    seconds: float = 0.0
    mib: int = 0
    instants: list[str] = field(default_factory=list)
    rows: dict[str, list[list[str]]] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, HudiTable]:
        """The tables of this run, by name."""
        folders = sorted(path.parent for path in self.lake.glob("*/.hoodie"))
        return {path.name: HudiTable(str(path)) for path in folders}

    def commits(self) -> dict[str, Counter[str]]:
        """Count the completed writes and services of each table, by action."""
        skipped = ("clean", "rollback")
        return {
            name: Counter(
                instant.action
                for instant in table.snapshot().timeline
                if instant.completed and instant.action not in skipped
            )
            for name, table in self.tables.items()
        }

    def written(self) -> list[str]:
        """Return the requested times of the completed writes of the task's table."""
        table = self.tables.get("t")
        if table is None:
            return []
        snapshot = table.snapshot()
        return [
            instant.time
            for instant in snapshot.timeline.completed_writes()
            if not is_service(snapshot, instant)
        ]


class Rig:
    """Runs shapes, one after the other, in a folder.

    :param stack: a running one.
    :param folder: of everything that is written.
    """

    def __init__(self, stack: EmbeddedStack, folder: Path) -> None:
        self.stack, self.folder = stack, folder
        os.environ.update(stack.environment)
        os.environ["AIRFLOW_CONN_LOCK"] = json.dumps(stack.lock_connection)
        spark = {"conn_type": "spark", "host": "local[2]"}
        os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(spark)
        os.environ["AIRFLOW__HUDI_OCC__SITE_ID"] = SITE

    def plainly(self, shape: Shape) -> Run:
        """Run a shape by ``spark-submit`` alone, until it succeeds or has no run left."""
        lake, marks = self._prepared(shape, "plain")
        if shape.hudi_defaults:
            lines = [f"{key}={value}\n" for key, value in shape.hudi_defaults.items()]
            (lake.parent / "hudi-defaults.conf").write_text("".join(lines))
        began = time.monotonic()
        for _ in range(shape.runs):
            code, text = self._submit(
                [*shape.conf, str(shape.path), *self._arguments(shape, lake, marks)], lake.parent
            )
            if code == 0:
                break
        return Run(
            lake, code == 0, text, "" if code == 0 else f"exit code {code}", time.monotonic() - began
        )

    def by_task(self, shape: Shape, task: Mapping[str, Any], name: str = "task") -> Run:
        """Run a shape as a task, by a process such as a worker's."""
        lake, marks = self._prepared(shape, name)
        began = time.monotonic()
        arguments = {
            "task_id": shape.job,
            "table": str(lake / "t"),
            "lock_conn_id": "lock",
            "application": str(shape.path),
            "application_args": self._arguments(shape, lake, marks),
            "driver_memory": "1g",
            "retries": shape.runs - 1,
            **task,
        }
        request, answer = lake.parent / "task.json", lake.parent / "result.json"
        request.write_text(json.dumps(arguments))
        output = _output_of(str(request), str(answer))
        (lake.parent / "log").write_text(output)
        if not answer.exists():
            return Run(
                lake, False, output, f"no result in {MOST_S} s, or the worker failed: {output[-2000:]}"
            )
        result = json.loads(answer.read_text())
        seconds = time.monotonic() - began
        error = result["error"]
        return Run(lake, not error, output, error, seconds, result["mib"], result["instants"])

    def read(self, runs: list[Run]) -> None:
        """Read the rows of all tables of runs, by one driver."""
        tables = {str(table.path): (run, name) for run in runs for name, table in run.tables.items()}
        request, answer = self.folder / "tables.json", self.folder / "rows.json"
        request.write_text(json.dumps(sorted(tables)))
        code, text = self._submit([str(READER), str(request), str(answer)], self.folder)
        if code:
            raise RuntimeError(text[-6000:])
        for table, rows in json.loads(answer.read_text()).items():
            run, name = tables[table]
            run.rows[name] = rows

    def _prepared(self, shape: Shape, kind: str) -> tuple[Path, Path]:
        """Return a folder for the tables of a run, and one for the job's own files."""
        folder = self.folder / shape.name.replace(" ", "-") / kind
        lake, marks = folder / "lake", folder / "marks"
        shutil.rmtree(folder, ignore_errors=True)
        marks.mkdir(parents=True)
        if shape.base:
            shutil.copytree(self._base(shape.base), lake)
        lake.mkdir(exist_ok=True)
        return lake, marks

    def _base(self, job: str) -> Path:
        lake = self.folder / "base" / job
        if not lake.exists():
            code, text = self._submit([str(Shape(job).path), str(lake / "t")], self.folder)
            if code:
                raise RuntimeError(text[-6000:])
        return lake

    def _arguments(self, shape: Shape, lake: Path, marks: Path) -> list[str]:
        return [str(lake / "t"), str(marks), *shape.words]

    def _submit(self, arguments: list[str], folder: Path) -> tuple[int, str]:
        """Run ``spark-submit`` plainly; return its exit code, and what it printed to stderr.

        A ``hudi-defaults.conf`` of the folder counts. A run that does not end in time is killed with
        its group, and fails by that.
        """
        log = folder / "stderr"
        is_configured = (folder / "hudi-defaults.conf").exists()
        site = {"HUDI_CONF_DIR": str(folder)} if is_configured else {}
        with log.open("wb") as stderr:
            driver = subprocess.Popen(
                [*SUBMIT, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=folder,
                env=os.environ | site,
                start_new_session=True,
            )
            try:
                code = driver.wait(MOST_S)
            except subprocess.TimeoutExpired:
                os.killpg(driver.pid, signal.SIGKILL)
                code = driver.wait(MOST_S)
                stderr.write(f"\nno end in {MOST_S} s\n".encode())
        return code, log.read_text(errors="replace")


def _output_of(request: str, answer: str) -> str:
    """Run a worker in a fork; return the end of what it printed, also if it was ended for its time."""
    read, write = os.pipe()
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(write, request, answer))
    worker.start()
    os.close(write)
    timer = threading.Timer(MOST_S, worker.kill)
    timer.start()
    parts: deque[bytes] = deque(maxlen=_PARTS)
    while part := os.read(read, _PART):
        parts.append(part)
    os.close(read)
    timer.cancel()
    worker.join()
    return b"".join(parts).decode(errors="replace")


def _work(pipe: int, request: str, answer: str) -> None:
    os.setsid()
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    os.close(pipe)
    worker_main(request, answer)

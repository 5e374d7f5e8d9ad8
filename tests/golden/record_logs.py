"""Record drivers' logs from real Hudi into ``logs/``: ``python -m tests.golden.record_logs``.

Each scenario is forced by gates and Hudi's own lock, never by sleeping. Paths of this machine are
replaced, and INFO of loggers that tell nothing of the write is left out; nothing else is changed.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.writers import Writer, commit_lock_held, has_markers, inflight, wait_for

LOGS = Path(__file__).parent / "logs"
_INFO_OF = re.compile(r" (?:INFO|DEBUG) ([\w$]+): ")
_KEPT = re.compile(
    r"ActiveTimeline\w*|Transaction\w+|\w*ConflictResolutionStrategy|BaseHoodieWriteClient|LockManager"
    r"|BaseZookeeperBased\w+|HoodieHeartbeatClient|HeartbeatUtils|HoodieSparkSqlWriterInternal"
    r"|DFSPropertiesConfiguration|SparkContext|ShutdownHookManager|TaskSchedulerImpl"
)


def record(stack: EmbeddedStack, folder: Path, wanted: list[str]) -> Iterator[tuple[str, Writer]]:
    """Run the wanted scenarios, all by default, and yield its name and its writer."""
    for scenarios in (_single, _conflict, _early_conflict, _killed):
        if scenarios.__name__.strip("_") in wanted or not wanted:
            yield from scenarios(stack, folder)


def _single(stack: EmbeddedStack, folder: Path) -> Iterator[tuple[str, Writer]]:
    scenarios: dict[str, dict[str, object]] = {
        "committed_info": {"arguments": ("--log-level", "INFO")},
        "committed_warn": {"arguments": ("--log-level", "WARN")},
        "nothing_written": {"arguments": ("--write-nothing",)},
        "misconfiguration_single_writer": {
            "arguments": ("--option", "hoodie.write.concurrency.mode=single_writer"),
            "early": True,
        },
        "unchecked_single_writer": {
            "arguments": ("--option", "hoodie.write.concurrency.mode=single_writer")
        },
        "lock_timeout": {
            "hosts": "127.0.0.1:1",
            "hudi_options": {
                "hoodie.write.lock.client.num_retries": 0,
                "hoodie.write.lock.num_retries": 1,
                "hoodie.write.lock.wait_time_ms": 2000,
            },
        },
        "job_error": {"arguments": ("--option", "hoodie.datasource.write.recordkey.field=nosuch")},
    }
    for name, arguments in scenarios.items():
        writer = Writer(stack, folder / name / "t", **arguments)  # type: ignore[arg-type]
        writer.run()
        yield name, writer


def _conflict(stack: EmbeddedStack, folder: Path) -> Iterator[tuple[str, Writer]]:
    """Two writers begin; one is let through and commits, then the other."""
    for name, extra in {
        "commit_conflict_info": ("--log-level", "INFO"),
        "commit_conflict_warn": ("--log-level", "WARN"),
        "commit_conflict_caught": ("--catch", "print"),
        "commit_conflict_caught_then_other_error": ("--catch", "raise"),
    }.items():
        table, gate = folder / name / "t", folder / name / "gate"
        gate.mkdir(parents=True)
        Writer(stack, table).run()
        loser = Writer(stack, table, ("--writer", "loser", "--gate", str(gate), *extra)).start()
        wait_for("the loser's begin", (gate / "loser.begun").exists, loser)
        Writer(stack, table, ("--writer", "winner")).run()
        (gate / "loser.go").touch()
        loser.wait()
        yield name, loser


def _early_conflict(stack: EmbeddedStack, folder: Path) -> Iterator[tuple[str, Writer]]:
    """The elder has written its markers and waits for the lock; then the younger writes."""
    name = "early_conflict"
    table, gate = folder / name / "t", folder / name / "gate"
    gate.mkdir(parents=True)
    Writer(stack, table, early=True).run()
    writers = []
    for who in ("elder", "younger"):
        arguments = ("--writer", who, "--gate", str(gate))
        writers.append(Writer(stack, table, arguments, early=True).start())
        wait_for(f"the {who}'s begin", (gate / f"{who}.begun").exists, *writers)
    with commit_lock_held(stack.zookeeper.hosts):
        (gate / "elder.go").touch()
        wait_for(
            "the elder's markers", lambda: any(has_markers(table, t) for t in inflight(table)), *writers
        )
        (gate / "younger.go").touch()
        writers[1].wait()
    writers[0].wait()
    yield name, writers[1]


def _killed(stack: EmbeddedStack, folder: Path) -> Iterator[tuple[str, Writer]]:
    table = folder / "killed" / "t"
    Writer(stack, table).run()
    gate = folder / "killed" / "gate"
    gate.mkdir()
    writer = Writer(stack, table, ("--gate", str(gate))).start()
    wait_for("the begin", (gate / "w.begun").exists, writer)
    writer.kill()
    (gate / "w.go").touch()
    writer.wait()
    yield "killed", writer


def clean(lines: list[str], folder: Path) -> str:
    """Take this machine's paths, and what chatters at INFO, out of a log."""
    loggers = ((line, _INFO_OF.search(line)) for line in lines)
    text = "".join(line for line, info in loggers if not info or _KEPT.fullmatch(info[1]))
    places = {
        str(folder): "/lake",
        str(Path(__file__).parents[2]): "/opt/project",
        sys.prefix: "/opt/venv",
        sys.base_prefix: "/opt/python",
        str(cache_folder()): "/opt/jars",
        str(Path.home()): "/home/user",
    }
    for place, name in places.items():
        text = text.replace(place, name)
    return re.sub(r"/tmp/(?:spark|airflow_occ)[-_\w]+", "/tmp/scratch", text)


def main(wanted: list[str]) -> None:
    LOGS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_golden_"))
    try:
        with EmbeddedStack(folder / "stack") as stack:
            for name, writer in record(stack, folder, wanted):
                assert writer.settlement is not None
                print(f"{name}: {writer.settlement.outcome}, exit code {writer.exit_code}", flush=True)
                (LOGS / f"{name}.exit{writer.exit_code}.log").write_text(clean(writer.lines, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])

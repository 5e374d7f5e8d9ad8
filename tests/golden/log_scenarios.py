"""The attempts whose drivers' logs are recorded; forced by gates and locks, never by sleeping."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.log_strangers import STRANGERS, Stranger, conflict_caught
from tests.support.writers import JOB, Writer, commit_lock_held, wait_for

Scenario = Callable[[EmbeddedStack, Path], Writer | Stranger]
"""A function that runs attempts on tables below a folder and returns the one to record."""
_INTERVAL_MS, _MISSES = 2000, 2
_SINGLE = ("--jvm-option", "hoodie.write.concurrency.mode=single_writer")


def _one(stack: EmbeddedStack, folder: Path, **writer: Any) -> Writer:
    """Run one writer alone."""
    attempt = Writer(stack, folder / "t", **writer)
    attempt.run()
    return attempt


def _held(
    stack: EmbeddedStack, folder: Path, who: str, *more: str, **writer: Any
) -> tuple[Writer, Path]:
    """Start a writer on a table with data; return it and the file that opens its gate."""
    gate = folder / "gate"
    gate.mkdir(parents=True, exist_ok=True)
    arguments = ("--writer", who, "--gate", str(gate), *more)
    attempt = Writer(stack, folder / "t", arguments, **writer).start()
    wait_for(f"the begin of {who}", (gate / f"{who}.begun").exists, attempt)
    return attempt, gate / f"{who}.go"


def _commit_conflict(stack: EmbeddedStack, folder: Path, more: tuple[str, ...] = ()) -> Writer:
    """Two writers begin; one passes its gate and commits, then the other."""
    Writer(stack, folder / "t").run()
    loser, go = _held(stack, folder, "loser", *more)
    Writer(stack, folder / "t", ("--writer", "winner")).run()
    go.touch()
    loser.wait()
    return loser


def _early_conflict(stack: EmbeddedStack, folder: Path) -> Writer:
    """The earlier writer has made its markers and waits for the lock; then the later one writes."""
    table = folder / "t"
    Writer(stack, table, early=True).run()
    elder, elder_go = _held(stack, folder, "elder", early=True)
    younger, younger_go = _held(stack, folder, "younger", early=True)
    with commit_lock_held(stack.zookeeper.hosts):
        elder_go.touch()
        wait_for("the elder's markers", partial(_any_markers, table), elder, younger)
        younger_go.touch()
        younger.wait()
    elder.wait()
    return younger


def _killed(stack: EmbeddedStack, folder: Path) -> Writer:
    Writer(stack, folder / "t").run()
    writer, go = _held(stack, folder, "w")
    writer.kill()
    go.touch()
    writer.wait()
    return writer


def _heartbeat_expired(stack: EmbeddedStack, folder: Path) -> Writer:
    """The heartbeat's folder is missing at one tick, which ends the timer; then it expires."""
    Writer(stack, folder / "t").run()
    beat = {
        "hoodie.client.heartbeat.interval_in_ms": _INTERVAL_MS,
        "hoodie.client.heartbeat.tolerable.misses": _MISSES,
    }
    writer, go = _held(stack, folder, "w", hudi_options=beat)
    heartbeats = folder / "t" / ".hoodie" / ".heartbeat"
    wait_for("the first heartbeat", lambda: any(heartbeats.glob("2*")), writer)
    heartbeats.rename(away := heartbeats.with_name(".away"))
    heartbeats.touch()
    wait_for("the timer's end", lambda: "HoodieHeartbeatException" in writer.log, writer)
    heartbeats.unlink()
    away.rename(heartbeats)
    (last,) = (path.stat().st_mtime for path in heartbeats.glob("2*"))
    wait_for("its expiry", lambda: time.time() - last > (_MISSES + 1) * _INTERVAL_MS / 1000, writer)
    go.touch()
    writer.wait()
    return writer


def _rolled_back_requested(stack: EmbeddedStack, folder: Path) -> Writer:
    """Another writer, with default settings, rolls back one that still reads its source."""
    Writer(stack, folder / "t").run()
    victim, go = _held(stack, folder, "victim")
    _neighbour(stack, folder / "t")
    go.touch()
    victim.wait()
    return victim


def _rolled_back_inflight(stack: EmbeddedStack, folder: Path, neighbour: tuple[str, ...] = ()) -> Writer:
    """Another writer, with default settings, rolls back one that waits to commit."""
    Writer(stack, folder / "t").run()
    victim, go = _held(stack, folder, "victim")
    with commit_lock_held(stack.zookeeper.hosts):
        go.touch()
        wait_for("the victim's markers", partial(_any_markers, folder / "t"), victim)
        _neighbour(stack, folder / "t", *neighbour)
    victim.wait()
    return victim


def _own_file_gone(stack: EmbeddedStack, folder: Path) -> Writer:
    """Another writer, with default settings, rolls back one that is still writing its files."""
    Writer(stack, folder / "t").run()
    streamed = ("--rows", "400000", "--gate-from", "150000", "--partition", "0")
    bulk = ("--option", "hoodie.datasource.write.operation=bulk_insert")
    victim, go = _held(stack, folder, "victim", *streamed, *bulk)
    wait_for("the victim's markers", partial(_any_markers, folder / "t"), victim)
    _neighbour(stack, folder / "t", "--partition", "other")
    go.touch()
    victim.wait()
    return victim


def _clustering_conflict(stack: EmbeddedStack, folder: Path) -> Writer:
    """A clustering is planned for the files that the next writer wants to update."""
    plan = {
        "hoodie.clustering.schedule.inline": "true",
        "hoodie.clustering.async.max.commits": 1,  # that of planning inline too
        "hoodie.clustering.plan.strategy.sort.columns": "id",  # else one file alone is no group
    }
    Writer(stack, folder / "t", hudi_options=plan).run()
    return _one(stack, folder)


def _neighbour(stack: EmbeddedStack, table: Path, *arguments: str) -> None:
    """Run the same job with default settings: a single writer that cleans eagerly."""
    job = [str(JOB), str(table), "--writer", "neighbour", *arguments]
    command = ["spark-submit", "--master", "local[1]", *job]
    subprocess.run(command, env=stack.environment, check=True, capture_output=True, timeout=240)


def _any_markers(table: Path) -> bool:
    snapshot = HudiTable(str(table)).snapshot()
    return any(snapshot.markers(instant.time) for instant in snapshot.timeline.pending_writes())


_UNREACHABLE = {
    "hoodie.write.lock.client.num_retries": 0,
    "hoodie.write.lock.num_retries": 1,
    "hoodie.write.lock.wait_time_ms": 2000,
}
_EVERY_RELEASE: dict[str, Scenario] = {
    "committed_warn": partial(_one, arguments=("--log-level", "WARN")),
    "lock_timeout": partial(_one, hosts="127.0.0.1:1", hudi_options=_UNREACHABLE),
    "commit_conflict_info": partial(_commit_conflict, more=("--log-level", "INFO")),
    "commit_conflict_warn": partial(_commit_conflict, more=("--log-level", "WARN")),
    "early_conflict": _early_conflict,
    "heartbeat_expired": _heartbeat_expired,
    "rolled_back_requested": _rolled_back_requested,
    "rolled_back_inflight": partial(_rolled_back_inflight, neighbour=("--partition", "other")),
    "clustering_conflict": _clustering_conflict,
    "own_file_gone": _own_file_gone,
    **STRANGERS,
}
_DEFAULT_RELEASE: dict[str, Scenario] = {
    "committed_info": partial(_one, arguments=("--log-level", "INFO")),
    "nothing_written": partial(_one, arguments=("--write-nothing",)),
    "misconfiguration_single_writer": partial(_one, arguments=_SINGLE, early=True),
    "unchecked_single_writer": partial(_one, arguments=_SINGLE),
    "job_error": partial(_one, arguments=("--option", "hoodie.datasource.write.recordkey.field=nosuch")),
    "commit_conflict_caught": partial(_commit_conflict, more=("--catch", "print")),
    "commit_conflict_caught_then_other_error": partial(_commit_conflict, more=("--catch", "raise")),
    "killed": _killed,
    "rolled_back_and_in_conflict": _rolled_back_inflight,
    "stranger_conflict_caught": conflict_caught,
}


def log_scenarios(*, everything: bool) -> dict[str, Scenario]:
    """Return the scenarios by name: those of every release, or also those that need only one."""
    return {**_EVERY_RELEASE, **_DEFAULT_RELEASE} if everything else dict(_EVERY_RELEASE)

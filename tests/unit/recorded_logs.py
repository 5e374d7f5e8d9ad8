"""The logs of real drivers, and the outcome that each shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.outcome import Outcome

LOGS = Path(__file__).parents[1] / "golden" / "logs"
CONFLICT = "org.apache.hudi.exception.HoodieWriteConflictException"
CAUSE = "java.util.ConcurrentModificationException: Cannot resolve conflicts for overlapping writes"
JVM_CONFLICT = [
    "py4j.protocol.Py4JJavaError: An error occurred while calling o48.save.",
    f": {CONFLICT}: {CAUSE}",
    "\tat org.apache.hudi.client.X.y(X.java:205)",
    f"Caused by: {CAUSE}",
    "\t... 58 more",
    "",
]

# What the log alone can tell; whether nothing was written only the table can.
FROM_LOG_ALONE = {
    "committed_info": Outcome.COMMITTED,
    "committed_warn": Outcome.COMMITTED,
    "nothing_written": Outcome.UNKNOWN,
    "misconfiguration_single_writer": Outcome.MISCONFIGURATION,
    "unchecked_single_writer": Outcome.COMMITTED,
    "lock_timeout": Outcome.LOCK_TIMEOUT,
    "job_error": Outcome.JOB_ERROR,
    "commit_conflict_info": Outcome.COMMIT_CONFLICT,
    "commit_conflict_warn": Outcome.COMMIT_CONFLICT,
    "commit_conflict_caught": Outcome.UNKNOWN,
    "commit_conflict_caught_then_other_error": Outcome.COMMIT_CONFLICT,
    "early_conflict": Outcome.EARLY_CONFLICT,
    "killed": Outcome.KILLED,
    "heartbeat_expired": Outcome.HEARTBEAT_EXPIRED,
    "rolled_back_requested": Outcome.ROLLED_BACK,
    "rolled_back_inflight": Outcome.ROLLED_BACK,
    "rolled_back_and_in_conflict": Outcome.COMMIT_CONFLICT,
    "clustering_conflict": Outcome.CLUSTERING_CONFLICT,
    "own_file_gone": Outcome.ROLLED_BACK,
    "stranger_conflict_in_sql": Outcome.COMMIT_CONFLICT,
    "stranger_conflict_caught": Outcome.UNKNOWN,
    "stranger_metastore_unreachable": Outcome.LOCK_TIMEOUT,
    "stranger_unknown_lock_provider": Outcome.MISCONFIGURATION,
    "stranger_unknown_concurrency_mode": Outcome.MISCONFIGURATION,
    "stranger_short_heartbeat_interval": Outcome.MISCONFIGURATION,
}
RECORDED = sorted(LOGS.rglob("*.log"))
each_recorded_log = pytest.mark.parametrize("path", RECORDED, ids=lambda p: str(p.relative_to(LOGS)))


def recorded(path):
    name, code = re.fullmatch(r"(\w+)\.exit(-?\d+)\.log", path.name).groups()
    return name, int(code), path.read_text().splitlines(keepends=True)


def traceback(error, *, frame="<module>", more=()):
    return [
        "Traceback (most recent call last):",
        f'  File "job.py", line 7, in {frame}',
        "    main()",
        *error,
        *more,
        "",
    ]

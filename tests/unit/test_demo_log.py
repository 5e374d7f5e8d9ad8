"""How the demo reads the log of a task whose driver logs elsewhere."""

from __future__ import annotations

from airflow_occ_provider.attempts.outcome import Outcome
from tests.demo import _check_tries, _read_try

LOST = (
    "Conflict: 20261127233313772 lost to 20261127233315497 (two_writers / write_b) in city-0 and city-1 "
    "(2 file groups). 138.9 s wasted. Next try: queued on them."
)
CAUSE = (
    "org.apache.hudi.exception.HoodieWriteConflictException: java.util.ConcurrentModificationException: "
    "Cannot resolve conflicts for overlapping writes"
)
LOSER = [
    "Following driver 779c6473d0fe0a11, which try 1 started.",
    "Hudi instant 20261127233313772 was requested by this driver.",
    LOST,
    "Outcome: commit_conflict (instant 20261127233313772, exit code 1).",
    "Decided by: py4j.protocol.Py4JJavaError",
    f"Decided by: {CAUSE}",
    "Task failed with exception",
    f"Retry in 0 s: [conflict, retry 1 of 5] {LOST}",
]
WINNER = ["Outcome: committed (instant 20261127233315497, exit code 0)."]


def read(task, number, state, lines):
    shown = {"task_id": task, "try_number": number, "state": state, "duration": 3.0}
    return _read_try(shown, lines)


def test_a_lost_conflict_is_read_and_shown_with_its_class_and_both_instants():
    loser = read("write_a", 1, "up_for_retry", LOSER)
    assert loser.reading.outcome is Outcome.COMMIT_CONFLICT
    assert (loser.reading.instant, loser.reading.rival) == ("20261127233313772", "20261127233315497")
    assert CAUSE in loser.reading.lines
    others = [("create", 1), ("write_a", 2), ("write_b", 1)]
    tries = [loser, *(read(task, number, "success", WINNER) for task, number in others)]
    assert list(_check_tries(tries)) == []

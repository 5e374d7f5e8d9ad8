"""What a driver leaves behind on its host does not keep its task from ending."""

from __future__ import annotations

import os
import secrets
import time

import pytest

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended
from airflow_occ_provider.submitters import spark_submit
from airflow_occ_provider.submitters.processes import marked
from airflow_occ_provider.submitters.spark_submit import SparkSubmit

PATIENCE_S = 60
UNMARKED = f"env -u {IDENTITY_VARIABLE} setsid timeout 50"
JVM = "python3 -c \"import time; time.sleep(2); print('committed')\" org.apache.spark.deploy.SparkSubmit"


@pytest.fixture(autouse=True)
def grace(monkeypatch):
    monkeypatch.setattr(spark_submit, "_ORPHAN_GRACE_S", 0.2)


def log_of(script):
    """Return the lines of a driver that is a shell script, and its state, once its log has ended."""
    key = f"orphans-{secrets.token_hex(6)}"
    submitter = SparkSubmit(["bash", "-c", script], {**os.environ, IDENTITY_VARIABLE: key})
    handle = submitter.submit(key, lambda _: None)
    lines, deadline = [], time.monotonic() + PATIENCE_S
    try:
        while (part := submitter.read(handle, 0.2)) is not None:
            lines += part
            assert time.monotonic() < deadline, lines[-10:]
        assert not marked(key)
        return lines, submitter.poll(handle)
    finally:
        submitter.end(handle)


@pytest.mark.parametrize(
    "child",
    [
        "setsid sleep 1000",
        "sleep 1000",
        "setsid nohup sleep 1000",
        "setsid bash -c 'trap : TERM; sleep 1000'",
    ],
    ids=["session", "own session", "nohup", "trap"],
)
def test_a_marked_process_that_keeps_the_log_open_is_ended_and_named(child):
    lines, state = log_of(f"echo begun; {child} & disown; echo done; exit 3")
    assert lines[:2] == ["begun\n", "done\n"]
    assert lines[2].startswith("Ending processes that the driver has left behind: ")
    assert state == Ended(3)


@pytest.mark.parametrize(
    "child",
    [
        f"{UNMARKED} sleep 1000",
        f"{UNMARKED} yes",
        f"{UNMARKED} bash -c 'while sleep 0.1; do echo x; done'",
    ],
    ids=["silent", "flood", "lines"],
)
def test_a_process_that_hides_does_not_keep_the_log_open(child):
    lines, state = log_of(f"echo begun; {child} & disown; echo done; exit 0")
    assert "begun\n" in lines
    assert "done\n" in lines
    assert state == Ended(0)


def test_a_driver_that_a_wrapper_has_left_is_read_to_its_end():
    lines, state = log_of(f"echo begun; setsid {JVM} & disown; exit 0")
    assert lines == ["begun\n", "committed\n"]
    assert state == Ended(0)


def test_the_log_has_all_lines_whatever_ends_them():
    script = r"printf 'a\r\nb\rc\n\xff\xc3\xa9'; head -c 2500000 /dev/zero | tr '\0' x; printf '\nlast'"
    lines, _ = log_of(script)
    assert lines[:3] == ["a\n", "b\n", "c\n"]
    assert max(map(len, lines)) <= 1 << 20
    assert "".join(lines[3:]) == f"\N{REPLACEMENT CHARACTER}é{'x' * 2_500_000}\nlast"

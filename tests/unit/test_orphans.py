"""What a driver leaves behind on its host does not keep its task from ending."""

from __future__ import annotations

import os
import secrets
import threading
import time

import pytest

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.submitters import launcher as module
from airflow_occ_provider.submitters.launcher import Launcher
from airflow_occ_provider.submitters.processes import Flag, processes_of

PATIENCE_S = 60
UNMARKED = f"env -u {IDENTITY_VARIABLE} setsid timeout 50"
JVM = "python3 -c \"import time; time.sleep(2); print('committed')\" org.apache.spark.deploy.SparkSubmit"


@pytest.fixture(autouse=True)
def grace(monkeypatch):
    monkeypatch.setattr(module, "_ORPHAN_GRACE_S", 0.2)


def log_of(script):
    """Return the lines of a driver that is a shell script, and its exit code, once it has ended."""
    key, launcher, killed = f"orphans-{secrets.token_hex(6)}", Launcher(), Flag()
    environment = {**os.environ, IDENTITY_VARIABLE: key}
    task = threading.Thread(target=launcher.run, args=(["bash", "-c", script], environment, killed))
    task.start()
    lines, deadline = [], time.monotonic() + PATIENCE_S
    try:
        while task.is_alive():
            lines += launcher.output.take(0.2)
            assert time.monotonic() < deadline, lines[-10:]
        assert not processes_of(key)
        while part := launcher.output.take(0):
            lines += part
        return lines, launcher.exit_code
    finally:
        killed.set()
        task.join()


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
    lines, code = log_of(f"echo begun; {child} & disown; echo done; exit 3")
    assert lines[:2] == ["begun\n", "done\n"]
    assert lines[-1].startswith("Ended processes that the driver has left behind: ")
    assert code == 3


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
    lines, code = log_of(f"echo begun; {child} & disown; echo done; exit 0")
    assert "begun\n" in lines
    assert "done\n" in lines
    assert code == 0


def test_a_driver_that_a_wrapper_has_left_is_read_to_its_end():
    lines, code = log_of(f"echo begun; setsid {JVM} & disown; exit 0")
    assert lines == ["begun\n", "committed\n"]
    assert code == 0


def test_the_log_has_all_lines_whatever_ends_them():
    script = r"printf 'a\r\nb\rc\n\xff\xc3\xa9'; head -c 2500000 /dev/zero | tr '\0' x; printf '\nlast'"
    lines, _ = log_of(script)
    assert lines[:3] == ["a\n", "b\n", "c\n"]
    assert max(map(len, lines)) <= 1 << 20
    assert "".join(lines[3:]) == f"\N{REPLACEMENT CHARACTER}é{'x' * 2_500_000}\nlast"

"""What a driver of this host reports, beside a job that prints anything."""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.guards.one_table import OneTable
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.private_facts import PrivateFacts
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, SparkJob, prepared
from airflow_occ_provider.submitters.spark_submit import SparkSubmit
from tests.unit.reports import cause, fact

LOG = logging.getLogger(__name__)
GOLDEN = Path(__file__).parents[1] / "golden" / "logs"
OWN, RIVAL, BACK = "20261121092507001", "20261121092507555", "20261121092507999"
FOREIGN = [  # what another driver's log holds
    fact("not_protected", reason="the session has another option"),
    fact("hudi", logger="T", message=f"Creating a new instant [==>{RIVAL}__commit__REQUESTED]"),
    fact("fatal", causes=[cause("org.apache.hudi.exception.HoodieWriteConflictException", "Cannot")]),
    fact("end", exit_code=1),
    'x airflow_occ_provider: {"fact": "end", "exit_code": "one"}',
    f"26/11/21 09:25:07 INFO ActiveTimelineV2: Creating a new instant [==>{RIVAL}__commit__REQUESTED]",
    f"26/11/21 09:25:07 INFO ActiveTimelineV2: Create new file for toInstant ?/.hoodie/{RIVAL}.inflight",
    f"26/11/21 09:25:07 INFO T: Requesting Rollback with instant time [==>{BACK}__rollback__REQUESTED]",
]


def written(folder, name, *facts):
    """Return the statement of a job that reports facts as the runner or Hudi's loggers do."""
    lines = "".join(f"{json.dumps(each)}\n" for each in facts)
    return f"with open({str(folder / name)!r}, 'a') as file: file.write({lines!r})\n"


def driven(folder, job, listeners):
    """Run a program as the driver of a private folder, and return what it printed."""
    key, printed = f"private-{secrets.token_hex(6)}", []
    environment = {**os.environ, IDENTITY_VARIABLE: key}
    submitter = SparkSubmit([sys.executable, "-c", job], environment, str(folder))
    driver = Driver(submitter, printed.append)
    driver.run(key, listeners)
    return printed, driver


def requested(time):
    return {
        "fact": "hudi",
        "logger": "ActiveTimelineV2",
        "thread": "main",
        "message": f"Creating a new instant [==>{time}__commit__REQUESTED]",
    }


@pytest.fixture
def folder(tmp_path):
    """A private folder as an attempt makes it."""
    with prepared(SparkJob("job.py"), {IDENTITY_KEY: "mine"}) as submission:
        yield Path(submission.folder)


PROTECTED = {"fact": "protected", "followed": True, "reports_end": True}
END = {"fact": "end", "exit_code": 0}


def test_nothing_that_a_job_prints_is_a_fact(folder):
    """It prints the log of a driver of another team, as a job that collects logs does."""
    log, table = DriverLog(), OneTable("/lake/own")
    job = (
        written(folder, "facts.jsonl", PROTECTED)
        + f"print({chr(10).join(FOREIGN)!r}, flush=True)\n"
        + written(folder, "hudi.jsonl", requested(OWN))
        + written(folder, "facts.jsonl", END)
    )
    printed, driver = driven(folder, job, [log.take, table.on_entry])
    assert printed == [f"{line}\n" for line in FOREIGN]  # people see all of it
    assert log.own_instants == (OWN,)
    assert log.unprotected is None
    assert log.fatal is None
    assert log.end == 0
    assert table.stop is None
    assert RIVAL not in log.instants.requested
    assert BACK not in log.instants.requested
    assert driver.exit_code == 0


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.log"))[::7], ids=lambda path: path.stem)
def test_the_whole_log_of_another_driver_changes_nothing(path):
    log = DriverLog()
    log.take(PROTECTED)
    log.take(requested(OWN))
    before = (log.own_instants, log.instants.requested.copy(), log.fatal, log.end, log.unprotected)
    table = OneTable("/lake/own")
    table.on_entry(PROTECTED)
    for line in path.read_text().splitlines():
        log.take(line)
        assert table.on_entry(line) is None
    after = (log.own_instants, log.instants.requested, log.fatal, log.end, log.unprotected)
    assert after == before


def test_no_fact_is_torn_beside_output_of_any_size(folder):
    """The runner's and Hudi's records of up to 40 kB, beside four threads that print."""
    many = 60
    job = textwrap.dedent(f"""
        import json, os, subprocess, sys, threading
        def print_much():
            for _ in range(400):
                os.write(1, b"x" * 30_000 + b"\\n")
        def report(name, kind):
            for number in range({many}):
                text = str(number) * 20_000
                line = json.dumps({{"fact": kind, "number": number, "text": text[:40_000]}})
                with open(os.path.join({str(folder)!r}, name), "a") as file:
                    file.write(line + chr(10))
        threads = [threading.Thread(target=print_much) for _ in range(4)]
        threads += [threading.Thread(target=report, args=pair)
                    for pair in (("facts.jsonl", "a"), ("hudi.jsonl", "b"))]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """)
    entries = []
    driven(folder, job, [entries.append])
    facts = [entry for entry in entries if not isinstance(entry, str)]
    for kind in ("a", "b"):
        assert [each["number"] for each in facts if each["fact"] == kind] == list(range(many))


def test_what_hudi_logged_before_the_end_is_read_before_the_end(folder):
    facts = PrivateFacts(str(folder))
    assert facts.new() == []
    exec(written(folder, "facts.jsonl", PROTECTED))  # noqa: S102 - our own statement
    assert facts.new() == [PROTECTED]
    exec(written(folder, "hudi.jsonl", requested(OWN)))  # noqa: S102
    exec(written(folder, "facts.jsonl", END))  # noqa: S102
    assert facts.new() == [requested(OWN), END]
    assert facts.new() == []


@pytest.mark.parametrize("torn", ['{"fact": "en', '{"fact": "end"}', '[1]\n{"fact": 3}\n{"end": 0}\n\n'])
def test_what_is_no_whole_fact_is_left_out(folder, torn):
    facts = PrivateFacts(str(folder))
    (folder / "facts.jsonl").write_text(torn)
    assert facts.new() == []


def test_a_fact_that_is_written_in_parts_is_read_once_whole(folder):
    facts, file = PrivateFacts(str(folder)), folder / "hudi.jsonl"
    content = json.dumps(requested(OWN)) + "\n" + json.dumps(requested(RIVAL)) + "\n"
    parts = [content[start : start + 40] for start in range(0, len(content), 40)]
    read = []
    for part in parts:
        with file.open("a") as opened:
            opened.write(part)
        read += facts.new()
    assert read == [requested(OWN), requested(RIVAL)]


def test_files_that_are_removed_are_read_to_their_end(folder):
    """As by a cron job that removes what was not changed for days."""
    facts = PrivateFacts(str(folder))
    assert facts.new() == []
    with (folder / "facts.jsonl").open("a") as runner, (folder / "hudi.jsonl").open("a") as hudi:
        for name in ("facts.jsonl", "hudi.jsonl"):
            (folder / name).unlink()
        for file, each in ((hudi, requested(OWN)), (runner, END)):
            file.write(json.dumps(each) + "\n")
            file.flush()
        assert facts.new() == [requested(OWN), END]
    facts.close()
    assert facts.new() == []


def test_what_the_runner_reports_after_a_line_that_was_cut_off_is_read(folder):
    facts = PrivateFacts(str(folder))
    (folder / "facts.jsonl").write_text('{"fact": "protec')
    code = (
        "from airflow_occ_provider.in_driver import run_job as r\n"
        f"r.FOLDER.append({str(folder)!r})\nr.keep_descriptor()\nr.report('end', exit_code=0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert facts.new() == [END]


def test_a_driver_without_a_folder_has_no_facts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.jsonl").write_text(json.dumps(END) + "\n")
    assert PrivateFacts("").new() == []

"""What a driver of this host reports, beside a job that prints anything."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import textwrap
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.guards.one_table import OneTable
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, SparkJob
from airflow_occ_provider.driver.contract import Grant, Hello, answer_from_bytes, digest
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.drivers import LocalDrivers
from airflow_occ_provider.in_driver.report import LocalReport
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import Offer
from airflow_occ_provider.submitters.private_folder import PrivateFolder
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
    submitter = SparkSubmit([sys.executable, "-c", job], environment, offer_in(folder))
    driver = Driver(submitter, printed.append)
    driver.run(key, listeners)
    return printed, driver


def offer_in(folder, lease_ttl_s=None):
    return Offer(AttemptFolder(str(folder)), "run_job.py", b"{}", lease_ttl_s=lease_ttl_s)


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
    with LocalDrivers().prepared(SparkJob("job.py"), {IDENTITY_KEY: "mine"}) as submission:
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
    facts = PrivateFolder(offer_in(folder))
    assert facts.new() == []
    exec(written(folder, "facts.jsonl", PROTECTED))  # noqa: S102 - our own statement
    assert facts.new() == [PROTECTED]
    exec(written(folder, "hudi.jsonl", requested(OWN)))  # noqa: S102
    exec(written(folder, "facts.jsonl", END))  # noqa: S102
    assert facts.new() == [requested(OWN), END]
    assert facts.new() == []


@pytest.mark.parametrize("torn", ['{"fact": "en', '{"fact": "end"}', '[1]\n{"fact": 3}\n{"end": 0}\n\n'])
def test_what_is_no_whole_fact_is_left_out(folder, torn):
    facts = PrivateFolder(offer_in(folder))
    (folder / "facts.jsonl").write_text(torn)
    assert facts.new() == []


def test_a_fact_that_is_written_in_parts_is_read_once_whole(folder):
    facts, file = PrivateFolder(offer_in(folder)), folder / "hudi.jsonl"
    content = json.dumps(requested(OWN)) + "\n" + json.dumps(requested(RIVAL)) + "\n"
    parts = [content[start : start + 40] for start in range(0, len(content), 40)]
    read = []
    for part in parts:
        with file.open("a") as opened:
            opened.write(part)
        read += facts.new()
    assert read == [requested(OWN), requested(RIVAL)]


def test_a_file_that_is_removed_is_read_to_its_end(folder):
    """As by a cron job that removes what was not changed for days: Hudi's facts of an idle job."""
    facts = PrivateFolder(offer_in(folder))
    with (folder / "hudi.jsonl").open("a") as hudi:
        assert facts.new() == []
        (folder / "hudi.jsonl").unlink()
        hudi.write(json.dumps(requested(OWN)) + "\n")
        hudi.flush()
        assert facts.new() == [requested(OWN)]
    facts.close()
    assert facts.new() == []


def test_what_the_runner_reports_after_a_line_that_was_cut_off_is_read(folder):
    facts = PrivateFolder(offer_in(folder))
    (folder / "facts.jsonl").write_text('{"fact": "protec')
    LocalReport(folder).add(json.dumps(END).encode() + b"\n")
    assert facts.new() == [END]


def says_hello(folder, nonce, left=None):
    (folder / f"hello.{nonce}").write_bytes(Hello(nonce, left).to_bytes())


def test_one_driver_is_granted_and_another_one_of_the_attempt_is_not(folder):
    attempt = PrivateFolder(offer_in(folder))
    assert attempt.new() == []
    assert not (folder / "payload").exists(), "not before a driver waits for it"
    says_hello(folder, "b", left="its JVM runs another application")
    assert attempt.new() == []
    says_hello(folder, "a")
    assert attempt.new() == []
    grant = Grant.from_bytes((folder / "grant").read_bytes())
    assert grant == Grant("a", digest(b"{}"))
    assert (folder / "payload").read_bytes() == b"{}"
    says_hello(folder, "c")
    assert attempt.new() == []
    assert Grant.from_bytes((folder / "grant").read_bytes()) == grant


def tick(number):
    return {"fact": "tick", "number": number}


def answer_in(folder):
    return answer_from_bytes((folder / "life").read_bytes()) if (folder / "life").exists() else None


def test_a_tick_is_answered_and_is_no_fact_for_the_attempt(folder):
    attempt = PrivateFolder(offer_in(folder))
    says_hello(folder, "a")
    attempt.new()
    exec(written(folder, "facts.jsonl", tick(1), PROTECTED))  # noqa: S102 - our own statement
    assert attempt.new() == [PROTECTED]
    assert answer_in(folder) == 1


class Lease:
    """A lease whose holder has extended it at some moment."""

    extended_s, asked = float("-inf"), 0

    def extend_soon(self):
        self.asked += 1


def test_a_tick_under_a_lease_is_answered_only_by_an_extension_that_began_after_it(folder):
    attempt, lease = PrivateFolder(offer_in(folder, lease_ttl_s=60.0)), Lease()
    says_hello(folder, "a")
    attempt.new(lease)
    lease.extended_s = time.monotonic()
    exec(written(folder, "facts.jsonl", tick(1)))  # noqa: S102 - our own statement
    attempt.new(lease)
    attempt.new()  # a process without the lease
    assert (answer_in(folder), lease.asked) == (None, 1)
    lease.extended_s = time.monotonic()
    exec(written(folder, "facts.jsonl", tick(2)))  # noqa: S102 - our own statement
    attempt.new(lease)
    assert (answer_in(folder), lease.asked) == (1, 2)
    lease.extended_s = time.monotonic()
    attempt.new(lease)
    assert (answer_in(folder), lease.asked) == (2, 2)


def test_a_disk_without_space_is_tried_again(folder, monkeypatch):
    attempt = PrivateFolder(offer_in(folder))
    says_hello(folder, "a")
    with monkeypatch.context() as full:
        full.setattr(AttemptFolder, "write", MagicMock(side_effect=TableUnreadableError("no space")))
        assert attempt.new() == []
    assert not (folder / "grant").exists()
    attempt.new()
    assert (folder / "grant").exists()

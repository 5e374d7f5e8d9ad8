"""What a driver of this host reports, beside a job that prints anything."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import signal
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.own_writes import OneTable
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, SparkJob
from airflow_occ_provider.attempts.submitter import SILENCE_FACT, Running
from airflow_occ_provider.driver.contract import FIXED_FACTS
from airflow_occ_provider.errors import FenceError
from airflow_occ_provider.in_driver.report import LocalReport
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters import followed_driver, launcher
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.place import Place
from tests.support.local_drivers import local_driver, local_drivers
from tests.support.offers import offer_in
from tests.unit.reports import cause, fact

LOG = logging.getLogger(__name__)
GOLDEN = Path(__file__).parents[1] / "golden" / "logs"
OWN, RIVAL, BACK = "20261121092507001", "20261121092507555", "20261121092507999"
FOREIGN_FACTS = (
    fact("not_protected", reason="the session has another option"),
    fact("hudi", logger="T", message=f"Creating a new instant [==>{RIVAL}__commit__REQUESTED]"),
    fact("fatal", causes=[cause("org.apache.hudi.exception.HoodieWriteConflictException", "Cannot")]),
    fact("end", exit_code=1),
)
FOREIGN = [  # what another driver's log holds
    *(f"airflow_occ_provider: {json.dumps(each)}" for each in FOREIGN_FACTS),
    'x airflow_occ_provider: {"fact": "end", "exit_code": "one"}',
    f"26/11/21 09:25:07 INFO ActiveTimelineV2: Creating a new instant [==>{RIVAL}__commit__REQUESTED]",
    f"26/11/21 09:25:07 INFO ActiveTimelineV2: Create new file for toInstant ?/.hoodie/{RIVAL}.inflight",
    f"26/11/21 09:25:07 INFO T: Requesting Rollback with instant time [==>{BACK}__rollback__REQUESTED]",
]


def written(folder, name, *facts):
    """Return the statement of a job that reports facts as the runner or Hudi's loggers do."""
    lines = "".join(f"{json.dumps(each)}\n" for each in facts)
    return f"with open({str(folder / name)!r}, 'a') as file: file.write({lines!r})\n"


def granted_in(folder):
    """Return the statements of a driver that waits for its grant."""
    return (
        f"import pathlib, time; folder = pathlib.Path({str(folder)!r})\n"
        "(folder / 'hello.a').write_text('{}')\n"
        "while not (folder / 'grant').exists(): time.sleep(0.01)\n"
    )


def driven(folder, job, listeners, printed=None):
    """Run a program as the driver of a private folder, and return what it printed."""
    printed = [] if printed is None else printed
    environment = {**os.environ, IDENTITY_VARIABLE: f"private-{secrets.token_hex(6)}"}
    words = [sys.executable, "-c", granted_in(folder) + job]
    driver = Driver(local_driver(words, environment, offer_in(folder)), printed.append)
    driver.run(listeners)
    return printed, driver


class Here(Place):
    """This host, on which a driver waits until a test is over."""

    name, is_local, waits = "local", True, True

    def __init__(self, over):
        self.over = over

    def start(self, runner, arguments):
        Path(arguments[0], "hello.a").write_text("{}")
        self.over.wait(60)

    def state(self, handle):
        return Running()


@pytest.fixture
def new_facts(folder, monkeypatch):
    """Returns the facts that are new."""
    monkeypatch.setattr(followed_driver, "_LOCAL_PERIOD_S", 0)
    submitter = FolderDriver(AttemptFolder, Here(over := threading.Event()), offer_in(folder))
    handle = submitter.submit(lambda _: None)
    yield lambda: submitter.read(handle, 0)
    over.set()


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
    with local_drivers().prepared(SparkJob("job.py"), {IDENTITY_KEY: "mine"}) as submission:
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


def test_a_command_that_fails_after_its_job_has_failed(folder):
    job = written(folder, "facts.jsonl", PROTECTED, END) + "import sys; sys.exit(3)"
    _, driver = driven(folder, job, [])
    assert driver.exit_code == 3


def test_what_does_not_end_fails_the_task(folder, monkeypatch):
    monkeypatch.setattr(launcher, "_ORPHAN_GRACE_S", 0.2)
    monkeypatch.setattr(launcher, "end_processes", lambda *_: [])  # as of a process in a dead mount
    job = "import subprocess; child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    printed = []
    with pytest.raises(FenceError, match="does not end"):
        driven(folder, job, [], printed)
    (pid,) = re.findall(r"left behind: (\d+)", "".join(printed))
    with suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)


def test_a_process_of_this_host_is_never_proven_over_by_its_silence(folder):
    submitter = FolderDriver(AttemptFolder, Here(over := threading.Event()), offer_in(folder))
    assert SILENCE_FACT not in submitter.submit(lambda _: None).facts
    over.set()


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


def test_what_hudi_logged_before_the_end_is_read_before_the_end(folder, new_facts):
    assert new_facts() == []
    exec(written(folder, "facts.jsonl", PROTECTED))  # noqa: S102 - our own statement
    assert new_facts() == [PROTECTED]
    exec(written(folder, "hudi.jsonl", requested(OWN)))  # noqa: S102
    exec(written(folder, "facts.jsonl", END))  # noqa: S102
    assert new_facts() == [requested(OWN), END]
    assert new_facts() == []


@pytest.mark.parametrize("torn", ['{"fact": "en', '{"fact": "end"}', '[1]\n{"fact": 3}\n{"end": 0}\n\n'])
def test_what_is_no_whole_fact_is_left_out(folder, new_facts, torn):
    (folder / "facts.jsonl").write_text(torn)
    assert new_facts() == []


def test_a_fact_that_is_written_in_parts_is_read_once_whole(folder, new_facts):
    content = json.dumps(requested(OWN)) + "\n" + json.dumps(requested(RIVAL)) + "\n"
    parts = [content[start : start + 40] for start in range(0, len(content), 40)]
    read = []
    for part in parts:
        with (folder / "hudi.jsonl").open("a") as opened:
            opened.write(part)
        read += new_facts()
    assert read == [requested(OWN), requested(RIVAL)]


def test_of_a_report_of_any_length_only_what_is_new_is_read(folder, new_facts, monkeypatch):
    starts, read = [], AttemptFolder.read

    def recorded(self, name, start=0):
        starts.append((name, start))
        return read(self, name, start)

    monkeypatch.setattr(AttemptFolder, "read", recorded)
    long = {**requested(OWN), "text": "x" * 2 * FIXED_FACTS}
    exec(written(folder, "hudi.jsonl", long))  # noqa: S102 - our own statement
    assert new_facts() == [long]
    starts.clear()
    exec(written(folder, "hudi.jsonl", requested(RIVAL)))  # noqa: S102
    assert new_facts() == [requested(RIVAL)]
    assert dict(starts)["hudi.jsonl"] > FIXED_FACTS


def test_what_the_runner_reports_after_a_line_that_was_cut_off_is_read(folder, new_facts):
    (folder / "facts.jsonl").write_text('{"fact": "protec')
    LocalReport(folder).add(json.dumps(END).encode() + b"\n")
    assert new_facts() == [END]

"""A job that prints as fast as it can is not held back, and delays neither its facts nor its end."""

from __future__ import annotations

import json
import os

import pytest

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.driver.contract import FACTS, HUDI_FACTS
from airflow_occ_provider.submitters import followed_driver
from airflow_occ_provider.submitters.launcher import AHEAD, BATCH
from tests.support.local_drivers import local_driver
from tests.support.observed import until
from tests.support.offers import offer_in

KEY = f"key-of-a-printing-job-{os.getpid()}"
LINE = 100
BATCHES = 50
LINES = 20 * AHEAD // LINE
WAITS = "cd {}; echo '{{}}' > hello.a; until [ -e grant ]; do sleep 0.01; done"
ENDLESS = f"yes {'x' * (LINE - 1)} 2>/dev/null"  # it complains once nothing reads it


@pytest.fixture
def printing(tmp_path, monkeypatch):
    """Start a driver whose job is a script; return its submitter and handle."""
    monkeypatch.setattr(followed_driver, "_LOCAL_PERIOD_S", 0)
    started = []

    def printing(script):
        words = ["sh", "-c", f"{WAITS.format(tmp_path)}; {script}"]
        submitter = local_driver(words, {**os.environ, IDENTITY_VARIABLE: KEY}, offer_in(tmp_path))
        started.append((submitter, submitter.submit(lambda _: None)))
        return started[-1]

    yield printing
    for submitter, handle in started:
        submitter.end(handle)


def report(folder, name=HUDI_FACTS, **fact):
    with (folder / name).open("a") as facts:
        facts.write(json.dumps(fact) + "\n")


def report_followed(folder):
    report(folder, FACTS, fact="protected", followed=True)


def test_a_fact_is_in_the_next_batch_and_a_batch_has_an_end(printing, tmp_path):
    submitter, handle = printing(f"exec {ENDLESS}")
    for number in range(BATCHES):
        report(tmp_path, fact="hudi", message=str(number))
        first, *lines = submitter.read(handle, 10)
        assert first == {"fact": "hudi", "message": str(number)}
        assert sum(map(len, lines)) <= 2 * BATCH + LINE


def lines_of(submitter, handle):
    while (entries := submitter.read(handle, 1)) is not None:
        yield from (entry for entry in entries if isinstance(entry, str))


def test_a_job_is_not_held_back_and_its_last_lines_are_read(printing, tmp_path):
    report_followed(tmp_path)
    submitter, handle = printing(f"{ENDLESS} | head -n {LINES}; echo last; touch {tmp_path}/done")
    lines = lines_of(submitter, handle)
    read = [next(lines)]
    until((tmp_path / "done").exists, "the end of a job whose output is not read")
    read += lines
    assert read[-1] == "last\n"
    assert sum(map(len, read)) <= AHEAD + 2 * BATCH
    left_out = [int(line.split()[0]) for line in read if "left out" in line]
    assert len(read) - len(left_out) + sum(left_out) == LINES + 1


def test_no_line_is_left_out_of_a_job_that_is_known_by_them(printing):
    submitter, handle = printing(f"{ENDLESS} | head -n {LINES}")
    assert len(list(lines_of(submitter, handle))) == LINES


def test_after_its_end_no_more_is_read_than_was_on_its_way(printing, tmp_path):
    report_followed(tmp_path)
    submitter, handle = printing(f"exec {ENDLESS}")
    while not submitter.read(handle, 1):
        """Wait for the job's first line."""
    submitter.end(handle)
    assert sum(map(len, lines_of(submitter, handle))) <= AHEAD + 2 * BATCH

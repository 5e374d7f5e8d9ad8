"""A job that prints as fast as it can delays neither its facts nor its end."""

from __future__ import annotations

import json
import os
import queue

import pytest

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.driver.contract import HUDI_FACTS
from airflow_occ_provider.submitters import spark_submit
from airflow_occ_provider.submitters.spark_submit import SparkSubmit
from tests.unit.test_private_folder import offer_in

KEY = f"key-of-a-printing-job-{os.getpid()}"
LINE, LINES_AHEAD = 100, 20
BATCHES = 50
IN_PIPE = 1 << 16  # bytes


@pytest.fixture
def printing(tmp_path, monkeypatch):
    """A driver whose job prints without an end, as its submitter and handle."""
    monkeypatch.setattr(spark_submit, "_LINES_AHEAD", LINES_AHEAD)
    submitter = SparkSubmit(
        ["sh", "-c", f"exec yes {'x' * (LINE - 1)}"],
        {**os.environ, IDENTITY_VARIABLE: KEY},
        offer_in(tmp_path),
    )
    handle = submitter.submit(KEY, lambda _: None)
    yield submitter, handle, tmp_path
    submitter.end(handle)


def report(folder, number):
    with (folder / HUDI_FACTS).open("a") as facts:
        facts.write(json.dumps({"fact": "hudi", "message": str(number)}) + "\n")


def test_a_fact_is_in_the_next_batch_and_a_batch_has_an_end(printing):
    submitter, handle, folder = printing
    for number in range(BATCHES):
        report(folder, number)
        first, *lines = submitter.read(handle, 10)
        assert first == {"fact": "hudi", "message": str(number)}
        assert len(lines) <= LINES_AHEAD


class Unceasing(queue.Queue):
    """Lines that come faster than they are taken."""

    taken = 0

    def get(self, *_, **__):
        self.taken += 1
        assert self.taken <= 10 * LINES_AHEAD, "the batch has no end"
        return "x\n"

    get_nowait = get


def test_a_batch_has_an_end_though_lines_come_faster_than_they_are_taken(printing):
    submitter, handle, folder = printing
    report(folder, 1)
    lines_of_job, submitter._lines = submitter._lines, Unceasing()
    first, *lines = submitter.read(handle, 10)
    submitter._lines = lines_of_job
    assert (first["message"], len(lines)) == ("1", LINES_AHEAD)


def test_after_its_end_no_more_is_read_than_was_on_its_way(printing):
    submitter, handle, _ = printing
    while not submitter.read(handle, 1):
        """Wait for the job's first line."""
    submitter.end(handle)
    remaining = 0
    while (lines := submitter.read(handle, 1)) is not None:
        remaining += len(lines)
    assert remaining <= LINES_AHEAD + 3 * IN_PIPE / LINE

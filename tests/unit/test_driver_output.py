"""What a task shows of its driver: its output in a folded group, and a link."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.submitter import URL_FACT, Handle
from airflow_occ_provider.errors import JobError
from airflow_occ_provider.hooks.spark import FoldedOutput, HudiDriverLink, show_driver
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.support.hand_made_tables import T1

URL = "http://rm1:8088/cluster/app/application_1_2"


@pytest.fixture
def chatty(scripted):
    """Drivers that print two lines."""
    submit = scripted.home / "bin" / "spark-submit"
    printed = "print('first', flush=True)\nprint('last', flush=True)\nplans = "
    submit.write_text(re.sub(r"^plans = ", printed, submit.read_text(), count=1, flags=re.MULTILINE))
    return scripted


def order(text):
    """The lines that matter, in their order."""
    return re.findall(r"::group::The driver's output|::endgroup::|\bfirst\b|\blast\b|Outcome: \w+", text)


def test_the_output_is_folded_and_the_outcome_is_not(chatty, capsys):
    chatty.plan(("write", T1), ("end", 0))
    assert chatty.run()["instant"] == T1
    group, first, last, end, outcome = order(capsys.readouterr().out)
    assert (group, first, last) == ("::group::The driver's output", "first", "last")
    assert (end, outcome) == ("::endgroup::", "Outcome: committed")


def test_a_failed_job_leaves_its_outcome_outside(chatty, capsys):
    chatty.plan(("raise", "no such column"), ("exit", 1))
    with pytest.raises(JobError):
        chatty.run()
    shown = order(capsys.readouterr().out)
    assert shown[-2:] == ["::endgroup::", "Outcome: job_error"]


class Interrupted:
    """A submitter whose log an exception interrupts."""

    outlives_task = False

    def __init__(self, *batches):
        self.batches = iter(batches)

    def read(self, handle, wait_s):
        lines = next(self.batches, None)
        if lines is None:
            raise KeyboardInterrupt
        return lines


@pytest.mark.parametrize(
    ("batches", "logged"),
    [
        ([["a\n"], [], ["b\n"]], ["::group::The driver's output", "a", "b", "::endgroup::"]),
        ([[]], []),
    ],
    ids=["some lines", "none"],
)
def test_the_group_ends_with_an_exception_too(batches, logged):
    lines = []
    output = FoldedOutput(lines.append)
    driver = Driver(Interrupted(*batches), output.add, output.close, Handle("s", "driver"))
    with pytest.raises(KeyboardInterrupt):
        driver.follow([])
    assert lines == logged


@pytest.mark.parametrize("url", [URL, None], ids=["a page", "none"])
def test_the_link_to_a_driver_is_shown_at_once_and_kept(url):
    task = HudiWriteOperator(task_id="t", application="job.py", table="/lake/trips")
    pushed = {}
    ti = SimpleNamespace(xcom_push=pushed.__setitem__)
    facts = {URL_FACT: url} if url else {}
    show_driver({"task": task, "ti": ti}, Handle("yarn", "driver", facts))
    (link,) = (one for one in task.operator_extra_links if isinstance(one, HudiDriverLink))
    assert pushed == ({link.xcom_key: URL} if url else {})
    assert link.get_link(task, ti_key=None) == (url or "")

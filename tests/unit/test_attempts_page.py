"""The page of a task run's attempts, and the words and links of all pages."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord, Waiting
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.spelling import spell_span
from airflow_occ_provider.ui.links import Viewer, table_link, task_link
from airflow_occ_provider.ui.pages import attempts_page
from airflow_occ_provider.ui.view import AttemptRow, AttemptsPage
from airflow_occ_provider.ui.words import margin, shorten, visible
from tests.unit.rendered import as_html, as_xml

NOW = 1_795_268_400_000  # 2026-11-21 13:40 UTC


def attempts(record, *shown, **values):
    view = AttemptsPage("nightly", "run", "load", -1, record, shown, NOW, Viewer("../"), **values)
    made = attempts_page(view)
    as_xml(made)
    return as_html(made)


def test_attempts_are_shown_with_their_instants():
    lost = AttemptRecord(
        1,
        2,
        "identity-1",
        "s3://lake/trips",
        NOW - 600_000,
        Handle("spark_submit", "process 42 on worker-1"),
        instants=("1", "2"),
        end="exit code 1",
        ended_ms=NOW - 300_000,
        outcome="commit_conflict",
        settled=True,
    )
    record = TaskRecord(
        "identity-1", attempts=(lost,), waiting=Waiting("rival 7 is pending", NOW - 5000)
    )
    states = {"1": "rolled back by 3 (COMPLETED)", "2": "commit COMPLETED"}
    found = attempts(record, AttemptRow(lost, states, "2"), keys={"s3://lake/trips": "trips"})
    assert set(found.texts) >= {
        "nightly / run / load",
        "process 42 on worker-1",
        "exit code 1",
        "commit_conflict",
        "rolled back by 3 (COMPLETED)",
        "rival 7 is pending",
        "Waiting since 2026-11-21 13:39:55 UTC (5 s):",
        "The task run has not done its work yet. Its commits are signed with",
    }
    assert ("href", "../t/trips/") in found.values
    assert ("href", "../../dags/nightly/runs/run/tasks/load") in found.values


def test_attempts_of_an_unreadable_table_and_of_no_record():
    bare = AttemptRecord(1, 2, "i", "/t", NOW)
    found = attempts(TaskRecord("i", attempts=(bare,)), AttemptRow(bare), unreadable="access denied")
    assert {"access denied", "not known", "not started", "not observed", "/t"} <= set(found.texts)
    nothing = attempts(None)
    sentence = "This task run has no record: no write operator of this provider ran in it."
    assert sentence in nothing.texts
    assert "No attempt has begun." in attempts(TaskRecord("i")).texts


def test_names_in_links_are_quoted_and_none_changes_the_path():
    path = ("a/b", "r?&#", "t%", "2")
    assert task_link("../", path) == "../../dags/a%2Fb/runs/r%3F%26%23/tasks/t%25/mapped/2"
    assert task_link("", ("d", "r")) == "../dags/d/runs/r"
    for bad in (("d",), ("..", "r"), ("d", "."), ("d", "r", "")):
        assert task_link("", bad) == ""
    assert table_link("../../", "s3://x") == "../../t/s3%3A%2F%2Fx/"
    assert table_link("", "..") == ""


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (59_999, "59 s"),
        (185_000, "3 min 5 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (93_600_000, "1 d 2 h"),
        (-1, "0 s"),
    ],
)
def test_a_span_has_two_units(ms, text):
    assert spell_span(ms) == text


def test_heartbeats_in_words():
    assert margin(None) == "no heartbeat"
    assert margin(95_000) == "expires in 1 min 35 s"
    assert margin(-60_000) == "expired 1 min ago"


def test_a_long_name_loses_its_middle():
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghijk", 10) == "abc…fghijk"


def test_what_hides_text_is_replaced():
    assert visible("a\x00\n\u202eb\ud800\u2028é") == "a\ufffd\ufffd\ufffdb\ufffd\u2028é"

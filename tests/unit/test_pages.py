"""The pages of tables that real Hudi made, and of what can be wrong with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.reading.overview import read_state
from airflow_occ_provider.reading.table_state import Bar, TableState
from airflow_occ_provider.spelling import spell_span
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.ui.links import Viewer
from airflow_occ_provider.ui.pages import attempts_page, table_page, tables_page
from airflow_occ_provider.ui.rows import MOST_ROWS
from airflow_occ_provider.ui.view import (
    RANGES,
    AttemptRow,
    AttemptsPage,
    Reach,
    TablePage,
    TablesPage,
)
from airflow_occ_provider.ui.words import margin
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.table_pages import HOME, NOW, known, page, with_queue
from tests.unit.rendered import as_html

TABLES = Path(__file__).parents[1] / "golden" / "tables"
FINDINGS = (
    Finding("lock_holder", Severity.WARNING, (), "the lock is held", "look at the holder"),
    Finding("unchecked_commit", Severity.ERROR, ("1",), "a commit was not checked", "configure it"),
)


@pytest.fixture(params=HUDI_RELEASES)
def golden(request, tmp_path):
    def golden(name, queue=()):
        table = HudiTable(str(unpack(TABLES / request.param / f"{name}.zip", tmp_path)))
        state = read_state(table, queue, 0)[0]
        newest = max(at for bar in state.bars for at in (bar.begun_ms, bar.ended_ms, bar.seen_ms) if at)
        return known(replace(state, at_ms=newest + 1000))

    return golden


def queued(number, table, partitions=None, *, dag="nightly", site="here", ttl_ms=60_000):
    owner = Owner((dag, "run", f"task{number}"), site=site)
    request = Request(f"id{number}", owner, (Scope.of(table, partitions),), ttl_ms)
    return QueuedRequest(request, f"name{number}", (number,), NOW - 90_000)


@pytest.mark.parametrize("name", ["live_direct", "rolled_back_alive", "compaction", "operations"])
@pytest.mark.parametrize("minutes", RANGES)
def test_every_range_of_a_real_table_is_well_formed(golden, name, minutes):
    table = golden(name)
    found = page(table, minutes)
    assert ("svg", "xmlns", "class", "viewbox", "role", "aria-labelledby") in found.tags
    assert [tag for tag in found.tags if tag[0] == "script"] == [("script", "src", "defer")]


def test_dead_writers_are_shown_with_their_heartbeats(golden):
    table = golden("live_direct")
    found = page(table, "24h")
    assert table.state.dead
    assert found.texts.count("✕ dead") == len(table.state.dead)
    for one in table.state.writers:
        assert one.instant.time in found.texts
        assert margin(one.margin_ms) in found.texts


def test_the_verdict_names_the_rival(golden):
    table = golden("early_conflict")
    texts = page(table).texts
    assert all(one.sentence in texts for one in table.state.writers)
    first, second = (one.instant.time for one in table.state.writers)
    assert f"{first} may lose to {second}" in texts


def test_a_rolled_back_write_is_in_the_drawing_with_its_rollback(golden):
    table = golden("rolled_back_alive")
    ((source, target),) = [(one.source, one.target) for one in table.state.edges]
    texts = page(table).texts
    assert f"{source} rolled back {target}" in texts
    assert spell_span(table.state.lost_ms) in texts


def test_pending_services_are_shown_with_their_age(golden):
    table = golden("compaction")
    texts = page(table).texts
    for one in table.state.services:
        assert one.instant.time in texts
        assert spell_span(one.age_ms) in texts
    assert "No write is pending." in texts


def test_a_holder_holds_and_a_waiter_waits_for_it():
    found = page(with_queue(queued(1, "/t", ["a"]), queued(2, "/t")), site="here")
    after = found.texts[found.texts.index("Queue") :]
    start = after.index("1")
    assert after[start : start + 5] == [
        "1",
        "nightly / run / task1",
        "holds",
        "2026-11-21 13:38:30 UTC (1 min 33 s)",
        "exclusive, a",
    ]
    assert after[start + 5 : start + 10] == [
        "2",
        "nightly / run / task2",
        "waits",
        "for",
        "nightly / run / task1",
    ]
    assert ("href", "../../../dags/nightly/runs/run/tasks/task1") in found.values


def test_the_queue_shows_the_states_of_the_tasks_that_airflow_knows():
    first, second = queued(1, "/t", ["a"]), queued(2, "/t")
    shown = page(with_queue(first, second), site="here", states={first.request.owner: "deferred"})
    assert [text for text in shown.texts if text.startswith("task: ")] == ["task: deferred"]


@pytest.mark.parametrize(
    ("one", "named"),
    [
        (queued(1, "/t", dag="secret"), "another DAG"),
        (queued(1, "/t", dag="secret", site="there"), "another Airflow (site there)"),
        (queued(1, "/t", dag="nightly", site="there"), "another Airflow (site there)"),
    ],
)
def test_an_owner_that_the_viewer_may_not_read_has_no_name(one, named):
    states = {one.request.owner: "deferred"}
    shown = page(
        with_queue(one, queued(2, "/t")), site="here", dags=frozenset({"nightly"}), states=states
    )
    assert shown.texts.count(named) == 2  # as owner, and as what blocks the next one
    assert "deferred" not in shown.text
    assert "secret" not in shown.text
    assert "task1" not in shown.text


def test_a_request_of_another_release_is_named_without_a_link():
    one = QueuedRequest.unreadable("x-7", (0,))
    found = page(with_queue(one), dags=frozenset())
    assert "unknown request x-7" in found.texts
    assert ("a", "href", "data-airflow") not in found.tags


def test_a_writer_is_named_by_its_signature():
    signature = Signature("identity", "nightly", "run", "load", 3)
    bar = Bar("1", "UPSERT", Fate.ALIVE, NOW - 60_000, writer=signature)
    found = page(known(TableState("/t", NOW, bars=(bar,))))
    assert "nightly / load / 3" in found.texts
    assert ("href", "../../../dags/nightly/runs/run/tasks/load/mapped/3") in found.values


def test_many_requests_are_cut_and_counted():
    found = page(with_queue(*(queued(n, "/t", [f"p{n}"]) for n in range(MOST_ROWS + 4))))
    assert "4 more are not shown." in found.texts


def test_an_empty_page_says_so():
    texts = page(replace(with_queue(), findings=())).texts
    for sentence in (
        "The queue is empty: no task holds this table or waits for it.",
        "No write is pending.",
        "No instant was pending or ended in this range.",
        "No compaction or clustering is pending.",
        "No finding: the metadata shows no unsafe writer.",
    ):
        assert sentence in texts


def test_what_was_not_asked_is_not_shown_as_empty():
    texts = page(known(TableState("/t", NOW))).texts
    assert "The queue is not known: the lock service was not asked or has not answered." in texts
    assert "The table has not been examined yet." in texts
    assert "The queue is empty: no task holds this table or waits for it." not in texts


def test_a_stale_table_is_shown_with_its_age_and_the_reason():
    storage = Reach(False, NOW, "no answer within 5 s")
    table = replace(with_queue(), storage=storage)
    made = table_page(TablePage(table, NOW + 300_000, Viewer(HOME)))
    text = as_html(made).text
    assert "does not answer since 2026-11-21 13:40:00 UTC (5 min)" in text
    assert "no answer within 5 s" in text
    assert "5 min ago stale" in text
    assert "the page shows the table as it was at 2026-11-21 13:40:00 UTC" in text


@pytest.mark.parametrize(
    ("reach", "words"),
    [
        (Reach(None, reading_since_ms=NOW - 9000), "being read since 2026-11-21 13:39:51 UTC (12 s)"),
        (Reach(True, NOW, reading_since_ms=NOW - 9000), "answers (being read since 2026-11-21 13:39:51"),
        (Reach(), "not asked"),
    ],
)
def test_a_read_that_takes_long_is_not_a_failure(reach, words):
    table = replace(with_queue(queued(1, "/t")), storage=reach, lock=reach)
    text = " ".join(page(table).text.split())
    assert text.count(words) == 2
    assert "Stale" not in text
    assert f"{words}" in " ".join(as_html(tables_page(TablesPage((table,), NOW + 3000))).text.split())


def test_a_table_that_was_never_read_has_no_numbers():
    table = known(storage=Reach(False, None, "access denied"))
    text = page(table).text
    assert "does not answer and never did" in " ".join(text.split())
    assert "access denied" in text
    assert "Writers" not in page(table).texts
    cells = as_html(tables_page(TablesPage((table,), NOW))).texts
    assert cells.count("?") == 5
    assert "never read" in cells


def test_a_queue_is_shown_also_if_the_storage_was_never_read():
    table = replace(with_queue(queued(1, "/t"), queued(2, "/t")), storage=Reach())
    texts = page(table).texts
    assert texts.count("holds") == texts.count("waits") == 1
    assert "No write is pending." not in texts
    assert not table.is_stale
    cells = as_html(tables_page(TablesPage((table,), NOW))).texts
    assert cells[cells.index("/t") + 1 :][:5] == ["?", "1", "?", "?", "?"]


def test_a_queue_of_a_lock_service_that_is_away_is_stale():
    table = replace(with_queue(queued(1, "/t")), lock=Reach(False, NOW, "no answer"))
    text = page(table).text
    assert "Stale: the lock service does not answer, so the queue may have changed since." in text
    assert "Stale: the storage" not in text


def test_findings_have_evidence_and_remedy():
    texts = page(replace(with_queue(), findings=FINDINGS)).texts
    for one in FINDINGS:
        assert {one.severity.value, one.check, one.evidence, one.remedy} <= set(texts)


def test_a_failed_examination_is_shown():
    table = replace(with_queue(), findings_problem="The storage does not answer in time.")
    failed, sentence = page(table).text, "The last examination of the table failed: "
    assert sentence in failed
    assert "The storage does not answer in time." in failed
    assert "has not been examined yet" not in failed
    kept = page(replace(table, findings=FINDINGS)).texts
    assert FINDINGS[0].evidence in kept
    assert sentence.strip() in kept
    assert "examination failed" in as_html(tables_page(TablesPage((table,), NOW))).texts


def test_the_list_counts_what_each_table_has(golden):
    table = replace(golden("live_direct"), findings=FINDINGS, lock=Reach(True, NOW))
    found = as_html(tables_page(TablesPage((table,), NOW)))
    row = found.texts[found.texts.index("Read") + 1 :]
    state = table.state
    assert row[:7] == [
        "trips",
        state.table,
        str(len(state.writers) - len(state.dead)),
        "0",
        f"✕ {len(state.dead)}",
        str(len(state.services)),
        spell_span(state.lost_ms),
    ]
    assert row[7:9] == ["error", "unchecked_commit"]
    assert ("href", "t/trips/") in found.values


@pytest.mark.parametrize(
    ("attempt", "shown"),
    [
        ({"commit": "7", "committed": True}, "7"),
        ({"committed": True}, "yes"),
        ({"committed": False}, "no"),
        ({}, "not known"),
    ],
)
def test_the_page_of_attempts_says_whether_one_committed(attempt, shown):
    record = AttemptRecord(1, 2, "i", "/t", NOW, outcome="o", settled=True)
    view = AttemptsPage(
        "d", "r", "t", -1, TaskRecord("i", attempts=(record,)), (AttemptRow(record, **attempt),), NOW
    )
    cells = as_html(attempts_page(view)).texts
    assert cells[cells.index("o") + 1 :][:2] == [shown, "yes"]


def test_a_list_of_no_tables_says_how_one_appears():
    assert "No Hudi table is known yet." in as_html(tables_page(TablesPage((), NOW))).text

"""What a table's page does not show, and says instead."""

from __future__ import annotations

from airflow_occ_provider.attempts.scope import HINTS
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.ui.view import Reach
from tests.support.table_pages import NOW, known, page, with_queue

T = "/t"


def queued(number, *scopes, path=("nightly", "run", "task")):
    request = Request(f"id{number}", Owner(path), scopes, 60_000)
    return QueuedRequest(request, f"name{number}", (number,), NOW)


def test_a_finding_about_a_lock_names_no_server():
    findings = tuple(
        Finding(check, Severity.WARNING, (), f"{check} at zk1:2181", "do something")
        for check in ("other_lock", "unused_lock", "lock_holder")
    )
    found = page(known(TableState(T, NOW), findings=findings))
    assert found.text.count("zk1:2181") == 1
    assert found.text.count("airflow hudi doctor shows the evidence") == 2


def test_a_table_that_only_a_queue_names_is_not_said_to_be_read_later():
    found = page(known(TableState(T, NOW, queue=()), storage=Reach()))
    assert "Only a queue names this table" in found.text
    assert "as soon as its storage answers" not in found.text


def test_a_hint_is_told_from_a_scope():
    hint = Scope.of(f"{T}{HINTS}", ("p",))
    shared = Scope.of(T, None, Mode.SHARED)
    found = page(with_queue(queued(1, shared, hint), queued(2, shared, hint)))
    assert "by its last try, p" in found.text
    assert HINTS not in found.text


def test_of_many_scopes_the_rest_is_counted():
    scopes = tuple(Scope.of(T, (f"p{number}",)) for number in range(8))
    assert "and 3 more" in page(with_queue(queued(1, *scopes))).text


def test_an_owner_that_another_release_wrote_has_a_row():
    paths = ((), (5,))
    requests = (queued(number, Scope.of(T, None), path=path) for number, path in enumerate(paths, 1))
    found = page(with_queue(*requests))
    assert "5" in found.texts

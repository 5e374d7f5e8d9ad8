"""Owners, times and spans are spelled by one function each, wherever a person reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_occ_provider import spelling
from airflow_occ_provider.attempts.identity import Signature, TaskKey
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Request, Scope, blockers
from airflow_occ_provider.spelling import spell_expiry, spell_owner, spell_span, spell_time
from airflow_occ_provider.ui.links import Viewer, of_request, of_signature, task_name

ROOT = Path(spelling.__file__).parent
AT_MS = 1_795_268_400_999


@pytest.mark.parametrize(
    ("path", "more", "text"),
    [
        (("d", "r", "t"), {}, "d / r / t"),
        (("d", "r", "t", "3"), {"try_number": 2}, "d / r / t / 3 (try 2)"),
        (("d", "r"), {"label": "lease"}, "d / r / by lease"),
        (("d", "r", "t"), {"site": "blue"}, "d / r / t (site blue)"),
        (("d", "r", "t"), {"site": "blue", "try_number": 1}, "d / r / t (try 1, site blue)"),
    ],
)
def test_an_owner_is_spelled_from_the_dag_down(path, more, text):
    assert spell_owner(path, **more) == text


@pytest.mark.parametrize(("map_index", "mapped"), [(-1, ()), (0, ("0",)), (12, ("12",))])
def test_a_task_run_has_one_name_in_the_queue_in_the_table_and_on_the_page(map_index, mapped):
    signature = Signature("identity", "d", "r", "t", map_index, try_number=0)
    owner = Owner(("d", "r", "t", *mapped))
    queued = QueuedRequest(Request("i", owner, (Scope("/t"),), 1000), "n", (1,))
    name = spell_owner(("d", "r", "t", *mapped))
    names = (str(owner), signature.spelled, of_signature(signature, Viewer()).name)
    assert {*names, of_request(queued, Viewer()).name} == {name}
    assert task_name(signature, Viewer()) == spell_owner(("d", "t", *mapped))
    assert TaskKey.of_owner(owner) == signature.task_run == ("d", "r", "t", map_index)


@pytest.mark.parametrize(
    ("path", "label", "task"),
    [
        (("d", "r"), "lease", ("d", "r", "lease", -1)),
        (("d", "r"), spell_owner(("lease", "4")), ("d", "r", "lease", 4)),
        (("d", "r"), "", None),
        (("d",), "", None),
        (("d", "r", "t", "x"), "", None),
        (("d", "r", "t", "1", "2"), "", None),
    ],
)
def test_the_owner_of_a_run_is_the_task_that_made_its_request(path, label, task):
    assert TaskKey.of_owner(Owner(path, label)) == task


def test_a_time_is_in_utc_and_says_so():
    assert spell_time(AT_MS) == "2026-11-21 13:40:00 UTC"
    request = Request("i", Owner(("d",)), (Scope("/t", Mode.EXCLUSIVE),), 1)
    first, second = (QueuedRequest(request, str(order), (order,), AT_MS) for order in (1, 2))
    assert f"since {spell_time(AT_MS)}" in str(blockers(second, [first, second])[0])


@pytest.mark.parametrize(
    ("ms", "text"),
    [(-1, "0 s"), (999, "0 s"), (95_000, "1 min 35 s"), (7_500_000, "2 h 5 min"), (86_400_000, "1 d")],
)
def test_a_span_has_its_two_largest_units(ms, text):
    assert spell_span(ms) == text
    assert spell_expiry(ms) == (f"expires in {text}" if ms > 0 else "expired 0 s ago")
    assert spell_expiry(-abs(ms)) == f"expired {spell_span(abs(ms))} ago"


def test_no_other_source_spells_an_owner_or_a_date():
    others = {
        path.relative_to(ROOT).as_posix(): re.findall(
            r"""["'] / ["']\.join|\} / \{|isoformat\(["'] |%Y-%m-%d %H|:%H:%M:%S""", path.read_text()
        )
        for path in ROOT.rglob("*.py")
        if path.name != "spelling.py" and path.parent.name != "embedded"
    }
    assert len(others) > 200
    assert {name: spelled for name, spelled in others.items() if spelled} == {}

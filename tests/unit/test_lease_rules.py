from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_occ_provider.errors import ConfigurationError, LeaseRefusedError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import (
    Mode,
    Owner,
    QueuedRequest,
    Request,
    Scope,
    all_hold,
    blockers,
    covering_lease,
)
from airflow_occ_provider.leases.store import Node
from tests.golden.request_nodes import FIRST, NAMES, SECOND, TRIPS, WRITES

A, B = "s3://lake/a", "s3://lake/b"
RUN, TASK, OTHER = ("d", "r"), ("d", "r", "t"), ("d", "s", "t")


def whole(table=A, mode=Mode.EXCLUSIVE):
    return Scope.of(table, None, mode)


def part(*partitions, table=A):
    return Scope.of(table, partitions)


SHARED = whole(mode=Mode.SHARED)


def asked(path, *scopes, name="q", label="", ttl_ms=3000):
    return Request(name, Owner(tuple(path), label), scopes, ttl_ms)


def queued(path, order, *scopes):
    order = (order,) if isinstance(order, int) else order
    return QueuedRequest(asked(path, *scopes), f"q-{order}", order)


def waits_for(mine, *line):
    return [one.queued.order for one in blockers(mine, line)]


@pytest.mark.parametrize(
    ("ours", "theirs", "conflict"),
    [
        (SHARED, SHARED, False),
        (SHARED, whole(), True),
        (SHARED, part("p=1"), True),
        (whole(), whole(), True),
        (whole(), part("p=1"), True),
        (whole(), whole(B), False),
        (SHARED, whole(B, Mode.SHARED), False),
        (part("p=1"), part("p=1"), True),
        (part("p=1"), part("p=2"), False),
        (part("p=1"), part("p=10"), False),
        (part("p=1"), part("p=1/q=2"), True),
        (part("p=1/q=1"), part("p=1/q=2"), False),
        (part("p=1/q=1/r=1"), part("p=1"), True),
        (part("p=1", "p=2"), part("p=2", "p=3"), True),
        (part("p=1", table=B), part("p=1"), False),
        (part(), part("p=1"), False),
    ],
)
def test_which_scopes_conflict(ours, theirs, conflict):
    assert ours.conflicts_with(theirs) is theirs.conflicts_with(ours) is conflict


@pytest.mark.parametrize(
    ("has", "wanted", "covered"),
    [
        (whole(), part("p=1"), True),
        (whole(), SHARED, True),
        (SHARED, SHARED, True),
        (SHARED, whole(), False),
        (SHARED, part("p=1"), False),
        (part("p=1"), part("p=1/q=1"), True),
        (part("p=1/q=1"), part("p=1"), False),
        (part("p=1"), part("p=1", "p=2"), False),
        (part("p=1", "p=2"), part("p=1/q=1", "p=2"), True),
        (part("p=1"), whole(), False),
        (part("p=1"), SHARED, False),
        (whole(B), part("p=1"), False),
    ],
)
def test_which_scopes_cover_others(has, wanted, covered):
    assert has.covers(wanted) is covered


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["p=2", "p=1"], ("p=1", "p=2")),
        (["/p=1/", "p=1"], ("p=1",)),
        (["p=1/q=1", "p=1", "p=1/q=2/r=3"], ("p=1",)),
        (["p=1", "p=10"], ("p=1", "p=10")),
        ([""], None),
        (["p=1", "/"], None),
        (None, None),
    ],
)
def test_partitions_are_sorted_and_lie_in_no_other(given, kept):
    assert Scope.of(A, given).partitions == kept


def test_a_shared_scope_is_the_whole_table():
    assert Scope.of(A, ["p=1"], Mode.SHARED) == SHARED


def test_only_earlier_conflicting_requests_block_earliest_first():
    mine = queued(TASK, 5, part("p=1"))
    line = [
        queued(OTHER, 6, whole()),
        queued(OTHER, 4, SHARED),
        queued(OTHER, 3, part("p=2")),
        queued(OTHER, 2, part("p=1/q=1")),
        mine,
    ]
    found = blockers(mine, line)
    assert [one.queued.order for one in found] == [(2,), (4,)]
    assert (found[0].theirs, found[0].ours) == (part("p=1/q=1"), part("p=1"))


def test_a_waiter_is_not_overtaken_though_it_does_not_hold():
    holds, waits = queued(OTHER, 1, SHARED), queued(("d", "u"), 2, whole())
    assert waits_for(queued(TASK, 3, SHARED), holds, waits) == [(2,)]


def test_several_tables_are_one_request():
    mine = queued(TASK, 3, whole(A), whole(B))
    assert waits_for(mine, queued(OTHER, 1, whole(B)), queued(OTHER, 2, part("p=1"))) == [(1,), (2,)]
    assert asked(TASK, whole(A), part("p=1"), whole(B)).tables == (A, B)


def test_a_task_passes_under_the_lease_of_its_run():
    lease, rival = queued(RUN, 1, whole()), queued(OTHER, 2, whole())
    task = queued(TASK, (1, 3), part("p=1"))
    assert waits_for(task, lease, rival) == []
    assert waits_for(rival, lease, task) == [(1,), (1, 3)]


def test_when_the_runs_lease_has_gone_its_task_still_comes_first():
    task, rival = queued(TASK, (1, 3), part("p=1")), queued(OTHER, 2, whole())
    assert waits_for(task, rival) == []
    assert waits_for(rival, task) == [(1, 3)]


def test_tasks_of_one_run_wait_for_each_other():
    first, second = queued(TASK, (1, 3), whole()), queued(("d", "r", "u"), (1, 4), whole())
    assert waits_for(second, first) == [(1, 3)]
    assert waits_for(first, second) == []


def test_a_task_under_a_waiting_lease_waits_with_it():
    holder, lease = queued(OTHER, 1, whole()), queued(RUN, 2, whole())
    assert waits_for(queued(TASK, (2, 3), whole()), holder, lease) == [(1,)]


def test_the_lease_that_covers_is_found():
    large, small = queued(RUN, 1, whole()), queued(RUN, (1, 2), part("p=1"))
    assert covering_lease(asked(TASK, part("p=1/q=1")), [large, small]) is small
    assert covering_lease(asked(TASK, part("p=2")), [large, small]) is large
    assert covering_lease(asked(TASK, whole()), [queued(OTHER, 3, whole())]) is None
    assert covering_lease(asked(RUN, whole()), [queued(TASK, 3, whole())]) is None


def test_a_request_that_would_wait_for_its_own_runs_lease_is_refused():
    large, small = queued(RUN, 1, whole()), queued(RUN, (1, 2), part("p=1"))
    with pytest.raises(LeaseRefusedError):
        covering_lease(asked(TASK, part("p=1", "p=2")), [large, small])


def test_a_request_queued_beside_a_lease_of_its_run_waits_for_it():
    lease, beside = queued(RUN, 1, whole()), queued(TASK, 2, whole())
    assert waits_for(beside, lease) == [(1,)]


def test_a_lease_over_several_tables_covers_them_together():
    both = queued(RUN, 1, whole(A), part("p=1", table=B))
    assert covering_lease(asked(TASK, part("p=9"), part("p=1", table=B)), [both]) is both
    with pytest.raises(LeaseRefusedError):
        covering_lease(asked(TASK, part("p=9"), part("p=2", table=B)), [both])


@pytest.mark.parametrize("wanted", [whole(), part("p=1", "p=2"), SHARED, whole(B)])
def test_a_second_lease_beside_the_first_is_refused(wanted):
    with pytest.raises(
        LeaseRefusedError, match=r"d / r / t requests .* d / r already has a lease.*Remedy"
    ):
        covering_lease(asked(TASK, wanted), [queued(RUN, 1, part("p=1"))])


def test_a_name_of_a_run_is_no_prefix_of_another():
    assert not Owner(("d", "r", "t")).is_within(Owner(("d", "r", "t1")))
    assert not Owner(("d", "r1", "t")).is_within(Owner(("d", "r")))
    assert Owner(("d", "r", "t", "0")).is_within(Owner(("d", "r")))


def test_a_ticket_as_json():
    ticket = Ticket("q", "name", 7, 2)
    kept = json.loads(json.dumps(ticket.to_json()))
    assert kept["format"] == 1
    assert Ticket.from_json(kept) == ticket


@pytest.mark.parametrize("known", [None, 0, 2, "1"])
def test_a_ticket_of_another_format_is_refused(known):
    with pytest.raises(ConfigurationError, match=r"^ticket: its format .* is unknown"):
        Ticket.from_json({**Ticket("q", "name", 7, 2).to_json(), "format": known})


def test_a_request_without_blockers_holds():
    assert Status().held
    assert not Status(blockers(queued(TASK, 2, whole()), [queued(OTHER, 1, whole())])).held


REQUEST = asked(TASK, SHARED, part("p=ä/q=1", "p=2", table=B), name="q1", label="ask", ttl_ms=4000)


def test_a_nodes_content_as_bytes():
    content = Content(REQUEST, 3, 9000, "mark")
    assert Content.decode(content.encode(), "n") == content


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"{}",
        b"\xff",
        Content(REQUEST, 1, 1).encode().replace(b'"format":1', b'"format":2'),
    ],
)
def test_a_foreign_node_is_refused(data):
    with pytest.raises(LeaseRefusedError, match=r"in the queue cannot be read.*Remedy"):
        Content.decode(data, "n")


def test_too_many_partitions_are_refused():
    many = asked(TASK, part(*(f"p={'x' * 40}{number}" for number in range(6000))))
    with pytest.raises(ConfigurationError, match=r"6000 partitions are too many.*Remedy"):
        Content(many, 1, 1).encode()


def test_a_nodes_name_shows_which_tables_it_concerns():
    name = request_node.name_of(REQUEST, "n", (0x1F, 0x2A))
    assert "/" not in name
    assert request_node.under(name) == (0x1F, 0x2A)
    assert request_node.under(request_node.name_of(REQUEST, "n")) == ()
    same_run = request_node.name_of(asked(RUN, whole("s3://lake/c")), "n")
    same_table = request_node.name_of(asked(OTHER, whole(B)), "n")
    neither = request_node.name_of(asked(OTHER, whole("s3://lake/c"), name="old"), "n")
    names = [name, same_run, same_table, neither, "foreign"]
    assert request_node.names_of_tables([B], names) == [name, same_table, "foreign"]
    assert request_node.related_names(REQUEST, names) == [name, same_run]
    assert request_node.related_names(replace(REQUEST, supersedes=("old",)), names) == [
        name,
        same_run,
        neither,
    ]


def test_a_node_is_identified_by_its_name_and_token():
    name = request_node.name_of(REQUEST, "n", (4,))
    found = request_node.queued(name, Node(Content(REQUEST, 1, 1).encode(), 0, 9, 123))
    assert found == QueuedRequest(REQUEST, name, (4, 9), 123)
    assert found.token == 9


def golden(site, incarnation):
    run = ("trips", "scheduled__2026-11-21")
    write = Request("6f2d", Owner((*run, "write"), "", site), WRITES, 60_000, incarnation)
    lease = Request("5d1c", Owner(run, "lease", site), TRIPS, 60_000, incarnation)
    return Content(write, 3, 600_000, "m1"), Content(lease, 1, 60_000, "m0")


@pytest.mark.parametrize(("nodes", "site", "incarnation"), [(FIRST, "", 0), (SECOND, "green", 2)])
def test_nodes_of_both_releases_are_read(nodes, site, incarnation):
    for name, data, content in zip(NAMES, nodes, golden(site, incarnation), strict=True):
        assert Content.decode(data, name) == content
        order = (0x1F, 40) if content.request.id == "6f2d" else (40,)
        assert request_node.queued(name, Node(data, 0, 40, 5)) == QueuedRequest(
            content.request, name, order, 5
        )


def test_nodes_are_written_as_ever():
    for name, data, content in zip(NAMES, SECOND, golden("green", 2), strict=True):
        nonce, under = name.split("~")[2].partition(".")[2], request_node.under(name)
        assert request_node.name_of(content.request, nonce, under) == name
        third = data.replace(b'"version":2', b'"version":3')
        announced = replace(content, instants=("20261122091720286",))
        assert content.encode() == third[:-1] + b',"instants":[]}'
        assert announced.encode() == third[:-1] + b',"instants":["20261122091720286"]}'
        assert Content.decode(announced.encode(), name) == announced
        told = request_node.announced(name, Node(announced.encode(), 0, 40, 5))
        assert told == {"20261122091720286": content.request.owner}


def test_what_a_later_release_wrote_beside_is_kept():
    later = json.dumps(
        {**json.loads(SECOND[0]), "version": 4, "instants": [], "priority": {"of": [1]}}
    ).encode()
    content = Content.decode(later, NAMES[0])
    assert content.request == golden("green", 2)[0].request
    rewritten = json.loads(replace(content, epoch=4).encode())
    assert rewritten == {**json.loads(later), "epoch": 4}


@pytest.mark.parametrize("change", [{"format": 2}, {"scopes": [["t", "half", None]]}, {"owner": 5}])
def test_a_node_that_is_not_understood_blocks_its_tables(change):
    data = json.dumps({**json.loads(SECOND[1]), **change}).encode()
    unknown = request_node.queued(NAMES[1], Node(data, 0, 40, 5))
    assert (unknown.unknown, unknown.order, unknown.since_ms) == (True, (40,), 5)
    on_trips, on_cities = (
        queued(OTHER, 41, Scope.of(table, None, Mode.SHARED))
        for table in ("s3a://lake/trips", "s3a://lake/cities")
    )
    assert [one.queued for one in blockers(on_trips, [unknown])] == [unknown]
    assert blockers(on_cities, [unknown]) == ()
    assert blockers(queued(OTHER, 39, *TRIPS), [unknown]) == ()


@pytest.mark.parametrize("name", ["lock-1", "a~b~c~d~e", "a~b~c~xyz", "a~~c~", ""])
def test_a_name_that_is_not_understood_blocks_every_table(name):
    unknown = request_node.queued(name, None)
    assert [one.queued for one in blockers(queued(OTHER, 1, *TRIPS), [unknown])] == [unknown]
    assert request_node.names_of_tables(["s3a://lake/trips"], [name]) == [name]
    assert request_node.related_names(REQUEST, [name]) == []


@pytest.mark.parametrize(
    ("line", "hold"),
    [
        ([], True),
        ([queued(OTHER, 1, part("p=1"))], True),
        ([queued(OTHER, 1, part("p=1")), queued(TASK, 2, part("p=2"))], True),
        ([queued(OTHER, 1, SHARED), queued(TASK, 2, SHARED)], True),
        ([queued(OTHER, 1, part("p=1")), queued(TASK, 2, whole())], False),
        ([queued(RUN, 1, whole()), queued(TASK, (1, 2), part("p=1"))], True),  # under the run's lease
        ([queued(TASK, 2, part("p=1", "p=2"))], True),  # whatever blocks that one
    ],
)
def test_a_request_is_next_if_all_before_it_hold(line, hold):
    assert all_hold(line) is hold
    mine = queued(("d", "z", "t"), 9, whole())
    assert Status(blockers(mine, line)).is_next is hold

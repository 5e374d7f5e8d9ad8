from __future__ import annotations

import re
import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.metastore import request_lock
from airflow_occ_provider.leases.metastore.locks import Part, Row
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope, blockers

TABLES = st.sampled_from(["s3://lake/a", "s3://lake/b"])
PATHS = st.lists(st.sampled_from(["p=1", "p=2", "q"]), min_size=1, max_size=3).map("/".join)
ANY_SCOPE = st.builds(
    Scope.of, TABLES, st.none() | st.lists(PATHS, min_size=1, max_size=3), st.sampled_from(Mode)
)
SCOPES = st.lists(ANY_SCOPE, min_size=1, max_size=3).map(tuple)
REQUESTS = st.builds(
    Request,
    st.text(max_size=40),
    st.builds(Owner, st.lists(st.text(max_size=300), min_size=1, max_size=4).map(tuple), st.text()),
    st.lists(
        st.builds(Scope.of, st.text(), st.none() | st.lists(st.text(min_size=1), max_size=20)),
        max_size=4,
    ).map(tuple),
    st.integers(min_value=1, max_value=10**9),
)
UNDER = st.lists(st.integers(min_value=1, max_value=2**63 - 1), max_size=3).map(tuple)


def asked(*scopes, name="r"):
    return Request(name, Owner(("dag", name)), scopes or (Scope.of("s3://lake/a", None),), 1000)


def shown(lock_id, parts, *, agent="m", case=str):
    return [
        Row(lock_id, Part(case(part.table), case(part.partition), part.exclusive), True, agent, "w@h", 7)
        for part in parts
    ]


def taken(lock_id, request_id, epoch, agent):
    return shown(lock_id, [request_lock.epoch_part(request_id, epoch)], agent=agent)


def lets_wait(mine, elders):
    """As Hive's ``TxnHandler.checkLock`` has it: no name of a part is any name."""
    return any(
        one.table == other.table
        and ("" in (one.partition, other.partition) or one.partition == other.partition)
        and (one.exclusive or other.exclusive)
        for one in mine
        for other in elders
    )


@given(REQUESTS, UNDER, st.integers(min_value=0, max_value=2**50))
def test_what_was_asked_is_read_back(request, under, since_ms):
    rows = shown(9, request_lock.parts(request, since_ms, under), case=str.lower)
    (lock,) = request_lock.read(reversed(rows)).locks.values()
    queued = lock.queued
    assert (queued.request, queued.order, queued.since_ms) == (request, (*under, 9), since_ms)
    assert queued.name == request_lock.name(9, under)
    assert (lock.epoch, lock.mark) == (1, "m")


@given(REQUESTS, UNDER)
def test_names_are_such_as_every_release_of_hive_takes(request, under):
    for part in [*request_lock.parts(request, 1, under), request_lock.epoch_part(2**63 - 1, 2**31)]:
        assert re.fullmatch(r"[a-z0-9_]{1,128}", part.table)
        assert not part.partition or re.fullmatch(r"[a-z0-9]+=[a-z0-9]{1,700}", part.partition)
        assert len(part.partition) <= 767
    who = request_lock.lock_user(request.owner)
    assert len(who) <= 128
    assert set(who) <= set(string.ascii_letters + string.digits + "_.:/+-")


@given(SCOPES, SCOPES)
def test_hive_blocks_the_requests_that_the_rules_block(mine, theirs):
    conflict = any(one.conflicts_with(other) for one in mine for other in theirs)
    parts = [request_lock.parts(asked(*scopes), 1) for scopes in (mine, theirs)]
    assert lets_wait(*parts) is conflict


def test_a_request_under_a_lease_waits_only_for_others_under_it():
    over, under, beside = (request_lock.parts(asked(), 1, order) for order in ((), (5,), (5,)))
    assert not lets_wait(under, over)
    assert lets_wait(under, beside)


def test_a_long_request_goes_in_pieces():
    paths = [f"dt=2026-{number}" for number in range(3000)]
    request = asked(Scope.of("s3://lake/a", paths))
    parts = request_lock.parts(request, 1)
    pieces = [part for part in parts if part.table == "request"]
    assert 10 < len(pieces) < 100
    assert parts == pieces, "a metastore takes seconds over a thousand names"
    (lock,) = request_lock.read(shown(1, sorted(parts))).locks.values()
    assert lock.queued.request == request


def test_what_is_too_long_is_refused():
    paths = [str(hash((number, "x"))) * 3 for number in range(4000)]
    with pytest.raises(ConfigurationError, match="name parent partitions, or the whole table"):
        request_lock.parts(asked(Scope.of("s3://lake/a", paths)), 1)


def test_the_last_epoch_counts_and_of_two_in_one_the_earlier():
    request = shown(3, request_lock.parts(asked(), 1))
    rows = [*request, *taken(8, 3, 2, "late"), *taken(5, 3, 2, "first"), *taken(6, 4, 9, "other's")]
    lock = request_lock.read(rows).locks[3]
    assert (lock.epoch, lock.mark, lock.epochs[-1].lock_id) == (2, "first", 5)
    lock = request_lock.read([*taken(7, 3, 3, "next"), *rows]).locks[3]
    assert (lock.epoch, lock.mark) == (3, "next")


@pytest.mark.parametrize(
    "part",
    [
        Part("request", "p000=junk", exclusive=False),
        Part("request", "p000=" + "a" * 64, exclusive=False),
        Part("request", "of another release", exclusive=False),
    ],
)
def test_a_request_of_an_unknown_release_blocks_every_table(part):
    line = request_lock.read([*shown(3, request_lock.parts(asked(), 1)), *shown(4, [part])]).requests
    mine = request_lock.read(shown(3, request_lock.parts(asked(), 1))).locks[3].queued
    assert [one.queued.name for one in blockers(mine, line)] == ["lock 4"]
    assert [one.unknown for one in line] == [True, False]


def test_a_later_format_blocks(monkeypatch):
    monkeypatch.setattr("airflow_occ_provider.leases.request_node._FORMAT", 99)
    rows = shown(3, request_lock.parts(asked(), 1))
    monkeypatch.undo()
    assert [one.unknown for one in request_lock.read(rows).requests] == [True]


def test_a_request_of_the_first_release_is_read():
    """As release 0.1 asked for it, and took it over."""
    piece = (
        "p000=pdne3dwrbkbtadcfp5c7fldioxj5cxyrsgxm2ucmnvu2wg4m7x52emcyd2jxg3toe25ln2jo2wwtujt3ypbqlkysj"
        "ci4g3caylkqqdjzxdtyualeb4u4ypxselvattkgnddldlxkwyikfkafbq4zbordwfekqiu6udzrqwpnee3evfrfvec4wxy"
        "mxy2g24o6tfodpiubanjkfuns2api3ghqjzhwph4eyh7f7lakbm7yftyxf25dvna"
    )
    parts = [Part("t_810422e5a4f03930", "", exclusive=True), Part("request", piece, exclusive=False)]
    (lock,) = request_lock.read([*shown(3, parts), *taken(5, 3, 2, "m1")]).locks.values()
    owner, scope = Owner(("trips", "scheduled__2026-11-21"), "lease"), Scope.of("s3a://lake/trips", None)
    assert lock.queued.request == Request("5d1c", owner, (scope,), 60_000)
    assert (lock.epoch, lock.mark, lock.queued.order) == (2, "m1", (3,))


def test_the_youngest_incarnation_counts():
    rows = shown(3, request_lock.parts(replace(asked(), incarnation=1), 1), agent="m0.1")
    (lock,) = request_lock.read([*rows, *taken(5, 3, 2, request_lock.agent("m1", 4))]).locks.values()
    assert (lock.mark, lock.queued.request.incarnation) == ("m1", 4)


@pytest.mark.parametrize("table", ["e_commerce", "e_", "trips", ""])
def test_locks_of_others_are_let_be(table):
    rows = shown(3, [Part(table, "", exclusive=True)])
    snapshot = request_lock.read([*rows, *shown(4, request_lock.parts(asked(), 1))])
    assert [one.token for one in snapshot.requests] == [4]


@pytest.mark.parametrize(
    ("table", "lock_id", "is_told"),
    [
        (request_lock.table_name("s3://lake/a"), 3, True),
        (request_lock.table_name("s3://lake/a"), 9, False),
        (request_lock.table_name("s3://lake/b"), 3, False),
        (request_lock.table_name("s3://lake/a", (2,)), 3, False),
        ("request", 3, True),
        ("", 3, True),
    ],
)
def test_the_owner_of_a_blocking_lock_is_named(table, lock_id, is_told):
    rows = shown(lock_id, [Part(table, "", exclusive=True)], agent="spark")
    snapshot = request_lock.read([*rows, *shown(4, request_lock.parts(asked(), 1))])
    found = snapshot.foreign_blockers(snapshot.locks[4].queued)
    assert [str(one.queued.request.owner) for one in found] == ["w@h / spark"] * is_told

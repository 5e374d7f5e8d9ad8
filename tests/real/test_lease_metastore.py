"""Leases in a real metastore: it drops dead requests by its own clock, and may be down or frozen."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from contextlib import ExitStack, closing, suppress

import psutil
import pytest

from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.metastore.client import Access, MetastoreClient
from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from tests.real.lease_holder import asked
from tests.real.queues import asks
from tests.real.test_kazoo_control import holder
from tests.suspended import suspended

pytestmark = pytest.mark.real

LOCK_S, REAPER_S, POLL_S = 3, 1, 0.5
SPARED_S = 12
TIMEOUT_S, SLACK_S = 1.0, 60.0  # slack of a busy machine: without an end a call hangs longer


@pytest.fixture(scope="module")
def metastore(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metastore")
    with EmbeddedMetastore(folder, lock_timeout_s=LOCK_S, reaper_interval_s=REAPER_S) as metastore:
        yield metastore


def leases(stack, metastore, database, timeout_s=TIMEOUT_S):
    locks = MetastoreLocks(MetastoreClient(Access(metastore.uris, timeout_s)), database)
    return stack.enter_context(closing(MetastoreLeases(locks, LOCK_S * 1000, poll_s=POLL_S)))


@pytest.fixture
def database():
    return f"leases_{uuid.uuid4().hex}"


@pytest.fixture
def process(metastore, database):
    with ExitStack() as stack:
        yield lambda: leases(stack, metastore, database)


@pytest.fixture(scope="module")
def renewed(metastore):
    """A lease and a waiting rival, both renewed while the first tests run."""
    with ExitStack() as stack:
        owner, rival = (leases(stack, metastore, "renewed", 10.0) for _ in range(2))
        pairs = (owner, owner.adopt(owner.request(asks()))), (rival, rival.request(asks()))
        keepers = [stack.enter_context(Keeper(*pair, LOCK_S * 1000)) for pair in pairs]
        yield pairs, keepers, time.monotonic()


def wait_until_held(queue, ticket, timeout_s=30.0):
    """Wait as a trigger does, with heartbeats; return the clock time of the grant."""
    deadline, woken = time.monotonic() + timeout_s, threading.Event()
    while time.monotonic() < deadline:
        with suppress(LockUnreachableError):
            if queue.status(ticket, woken.set).held:
                return time.monotonic()
        woken.wait(LOCK_S / 3)
        woken.clear()
    return pytest.fail("not granted in time")


def java_of(metastore):
    (java,) = (
        one
        for one in psutil.process_iter(["cmdline"])
        if (command := one.info["cmdline"] or [""])[0].endswith("java")
        and any(part.startswith(f"{metastore.folder}:") for part in command)
    )
    return java


def test_a_killed_holder_is_followed_when_the_metastore_drops_its_lock_and_not_before(
    metastore, process, database, renewed
):
    with holder("metastore", metastore.uris, database) as killed:
        rival = process()
        ticket = rival.request(asked("rival"))
        assert not rival.status(ticket).held
        killed.process.kill()
        killed_s = time.monotonic()
        granted_s = wait_until_held(rival, ticket)
    print(f"granted {granted_s - killed_s:.2f} s after the kill")
    renewed_s = max(said["at_s"] for said in killed.said if said["held"])
    assert granted_s - renewed_s >= LOCK_S * 0.95
    assert granted_s - killed_s < LOCK_S + REAPER_S + POLL_S + SLACK_S
    assert [one.request.id for one in rival.requests()] == ["rival"]


def test_a_process_that_was_paused_beyond_the_timeout_loses_its_lease_at_its_next_call(process):
    stopped, rival = process(), process()
    ticket, waiting = stopped.request(asks()), rival.request(asks())
    adopted = stopped.adopt(ticket)
    wait_until_held(rival, waiting)
    for call in (stopped.renew, stopped.status, stopped.ensure_held, stopped.adopt):
        with pytest.raises(LeaseLostError, match="removed"):
            call(adopted)
    assert stopped.release(adopted) is False
    rival.ensure_held(waiting)


def test_a_holder_that_renews_keeps_its_lease_for_ten_timeouts_beside_a_rival(renewed):
    ((owner, ticket), (rival, waiting)), keepers, since_s = renewed
    polls = 0
    while time.monotonic() < since_s + 10 * LOCK_S or not polls:
        polls += 1
        assert not rival.status(waiting).held
        time.sleep(0.2)
    for keeper in keepers:
        keeper.refuse_if_lost()
    owner.ensure_held(ticket)
    assert owner.release(ticket)
    wait_until_held(rival, waiting)
    assert rival.release(waiting)


def unreachable_in_time(calls):
    for name, call in calls.items():
        started = time.monotonic()
        with pytest.raises(LockUnreachableError, match=r"the Hive metastore at thrift://127\.0\.0\.1:"):
            call()
        assert time.monotonic() - started < TIMEOUT_S + SLACK_S, name


def found_again(call):
    """Call until it answers, as triggers and keepers do."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with suppress(LockUnreachableError):
            return call()
        time.sleep(0.1)
    return pytest.fail("it is back, and the client does not reconnect")


def all_calls(queue, held, waiting):
    return {
        "request": lambda: queue.request(asks()),
        "status": lambda: queue.status(waiting, lambda: None),
        "renew": lambda: queue.renew(held),
        "ensure_held": lambda: queue.ensure_held(held),
        "adopt": lambda: queue.adopt(waiting),
        "release": lambda: queue.release(held),
        "requests": queue.requests,
    }


def test_every_call_to_a_frozen_metastore_ends_in_time(metastore, process):
    queue = process()
    held, waiting = queue.request(asks()), queue.request(asks())
    with suspended(java_of(metastore).pid):
        unreachable_in_time(all_calls(queue, held, waiting))
    # What was sent meanwhile is carried out late: it stays for one timeout, and no longer.
    late = found_again(lambda: process().request(asks()))
    wait_until_held(process(), late)
    assert [one.request.id for one in queue.requests()] == [late.id]


def test_leases_survive_a_metastore_that_is_killed_and_started_again(metastore, process):
    first, second = process(), process()
    held, waiting, woken = first.request(asks()), second.request(asks()), threading.Event()
    process().request(asks())  # abandoned
    assert not second.status(waiting, woken.set).held
    java = java_of(metastore)
    java.send_signal(signal.SIGKILL)
    java.wait(10)
    unreachable_in_time(all_calls(first, held, waiting))
    with pytest.raises(LockUnreachableError):
        process()
    metastore.stop()
    # The outage is longer than their timeout: only a late first run of the reaper spares them.
    metastore._settings = {"hive.timedout.txn.reaper.start": f"{SPARED_S}s"}
    metastore.start()
    found_again(lambda: first.ensure_held(held))
    found_again(lambda: second.renew(waiting))
    with Keeper(first, held, LOCK_S * 1000) as one, Keeper(second, waiting, LOCK_S * 1000) as other:
        deadline = time.monotonic() + SPARED_S + SLACK_S
        while len(first.requests()) > 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert [row.token for row in first.requests()] == [held.token, waiting.token]
        assert not woken.is_set()
        one.refuse_if_lost()
        assert first.release(held)
        assert woken.wait(POLL_S + SLACK_S), "the waiter no longer polls"
        wait_until_held(second, waiting)
        other.refuse_if_lost()

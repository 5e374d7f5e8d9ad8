"""Leases in a real metastore: they outlive its locks, and it may be down, frozen or forgetful."""

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
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks, MetastoreStore
from airflow_occ_provider.leases.queue import Queue
from tests.real.lease_holder import TTL_MS, asked
from tests.real.queues import asks
from tests.support.kazoo_holder import holder
from tests.support.suspended import suspended

pytestmark = pytest.mark.real

LOCK_S, REAPER_S, POLL_S = 6, 1, 0.5
HELD_MS = round(LOCK_S * 900)
SPARED_S = 15
TIMEOUT_S, SLACK_S = 2.0, 60.0  # slack of a busy machine: without an end a call hangs longer


@pytest.fixture(scope="module")
def metastore(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metastore")
    with EmbeddedMetastore(folder, lock_timeout_s=LOCK_S, reaper_interval_s=REAPER_S) as metastore:
        yield metastore


def leases(stack, metastore, database, timeout_s=TIMEOUT_S):
    locks = MetastoreLocks(MetastoreClient(MetastoreAccess(metastore.uris, timeout_s)), database)
    return stack.enter_context(closing(Queue(MetastoreStore(locks, LOCK_S, POLL_S))))


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
        first = owner.adopt(owner.request(asks(ttl_ms=HELD_MS)))
        pairs = (owner, first), (rival, rival.request(asks(ttl_ms=HELD_MS)))
        keepers = [stack.enter_context(Keeper(*pair, HELD_MS)) for pair in pairs]
        yield pairs, keepers, time.monotonic()


def wait_until_held(queue, ticket, timeout_s=60.0):
    """Wait as a trigger does, with renewals; return the clock time of the grant."""
    deadline, woken = time.monotonic() + timeout_s, threading.Event()
    while time.monotonic() < deadline:
        with suppress(LockUnreachableError):
            queue.renew(ticket)
            if queue.status(ticket, woken.set).held:
                return time.monotonic()
        woken.wait(TTL_MS / 3000)
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


def test_a_killed_holder_is_followed_after_its_term_and_not_before(
    metastore, process, database, renewed
):
    with holder("metastore", metastore.uris, database) as killed:
        rival = process()
        ticket = rival.request(asked("rival"))
        assert not rival.status(ticket).held
        killed.process.kill()
        granted_s = wait_until_held(rival, ticket)
    renewed_s = max(said["at_s"] for said in killed.said if said["held"])
    assert granted_s - renewed_s >= TTL_MS / 1000 * 0.95
    assert [one.request.id for one in rival.requests()] == ["rival"]


def test_a_process_that_was_paused_beyond_its_term_loses_its_lease_at_its_next_call(process):
    stopped, rival = process(), process()
    ticket, waiting = stopped.request(asks(ttl_ms=TTL_MS)), rival.request(asks(ttl_ms=TTL_MS))
    adopted = stopped.adopt(ticket)
    wait_until_held(rival, waiting)
    for call in (stopped.renew, stopped.status, stopped.ensure_held, stopped.adopt):
        with pytest.raises(LeaseLostError, match="removed"):
            call(adopted)
    assert stopped.release(adopted) is False
    rival.ensure_held(waiting)


def test_a_holder_that_renews_keeps_its_lease_for_five_timeouts_beside_a_rival(renewed):
    ((owner, ticket), (rival, waiting)), keepers, since_s = renewed
    polls = 0
    while time.monotonic() < since_s + 5 * LOCK_S or not polls:
        polls += 1
        assert not rival.status(waiting).held
        time.sleep(0.2)
    for keeper in keepers:
        keeper.refuse_if_lost()
    owner.ensure_held(ticket)
    assert owner.release(ticket)
    wait_until_held(rival, waiting)
    assert rival.release(waiting)


def test_a_queue_that_nothing_changes_for_the_metastores_timeout_ends(process):
    left, later = process(), process()
    ticket = left.request(asks(ttl_ms=HELD_MS))
    deadline = time.monotonic() + LOCK_S + SLACK_S
    while later.requests() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    assert later.requests() == ()
    following = later.request(asks(ttl_ms=HELD_MS))
    assert later.status(following).held
    assert following.token > ticket.token
    with pytest.raises(LeaseLostError, match="removed"):
        left.renew(ticket)


def unreachable_in_time(calls):
    for name, call in calls.items():
        started = time.monotonic()
        with pytest.raises(LockUnreachableError, match=r"the Hive metastore at thrift://127\.0\.0\.1:"):
            call()
        assert time.monotonic() - started < TIMEOUT_S + SLACK_S, name


def found_again(call):
    """Call until it answers, as triggers and keepers do."""
    deadline = time.monotonic() + SLACK_S
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
    held, waiting = queue.request(asks(ttl_ms=TTL_MS)), queue.request(asks(ttl_ms=TTL_MS))
    with suspended(java_of(metastore).pid):
        unreachable_in_time(all_calls(queue, held, waiting))
    # What was sent meanwhile may be carried out late: it stays for one term, and no longer.
    late = found_again(lambda: process().request(asks(ttl_ms=TTL_MS)))
    patient = process()
    wait_until_held(patient, found_again(lambda: patient.adopt(late)))


def test_leases_survive_a_metastore_that_is_killed_and_started_again(metastore, process):
    first, second = process(), process()
    held, waiting = first.request(asks(ttl_ms=60_000)), second.request(asks(ttl_ms=60_000))
    woken = threading.Event()
    assert not second.status(waiting, woken.set).held
    java = java_of(metastore)
    java.send_signal(signal.SIGKILL)
    java.wait(10)
    unreachable_in_time(all_calls(first, held, waiting))
    with pytest.raises(LockUnreachableError):
        process()
    metastore.stop()
    # The outage is longer than the lifetime of locks: only a late first run of the reaper spares them.
    metastore._settings = {"hive.timedout.txn.reaper.start": f"{SPARED_S}s"}
    metastore.start()
    found_again(lambda: first.ensure_held(held))
    found_again(lambda: second.renew(waiting))
    with Keeper(first, held, HELD_MS) as one, Keeper(second, waiting, HELD_MS) as other:
        time.sleep(SPARED_S + LOCK_S)
        assert [row.token for row in first.requests()] == [held.token, waiting.token]
        assert not woken.is_set()
        one.refuse_if_lost()
        assert first.release(held)
        assert woken.wait(POLL_S + SLACK_S), "the waiter no longer polls"
        wait_until_held(second, waiting)
        other.refuse_if_lost()

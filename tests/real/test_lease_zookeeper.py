"""A queue over a ZooKeeper that stops, freezes, loses sessions, or loses one of its servers."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager, suppress

import psutil
import pytest
from kazoo.client import KazooClient

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.errors import ConfigurationError, LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.real.queues import Queues, asks, bare_client, wait_until_held
from tests.services.ensemble import EmbeddedZookeeperEnsemble
from tests.support.suspended import suspended

pytestmark = pytest.mark.real

TIMEOUT_S, SLACK_S = 1.5, 60.0  # slack of a busy machine: without an end a call hangs longer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedZookeeper(tmp_path_factory.mktemp("zk"), free_port()) as server:
        yield server


@pytest.fixture
def zookeeper(server):
    yield server
    if not server.mode:
        server.stop()
        server.start()


@pytest.fixture
def root():
    return f"/{uuid.uuid4().hex}"


@pytest.fixture
def queues():
    with Queues() as queues:
        yield queues


@contextmanager
def stopped(zookeeper):
    zookeeper.stop()
    yield
    zookeeper.start()


@contextmanager
def frozen(zookeeper):
    """Freeze ZooKeeper: it accepts connections and messages, and does not answer until resumed."""
    (java,) = (
        process
        for process in psutil.process_iter(["cmdline"])
        if "QuorumPeerMain" in " ".join(command := process.info["cmdline"] or ())
        and command[0].endswith("java")
        and str(zookeeper.folder / "zoo.cfg") in command
    )
    with suspended(java.pid):
        yield


def unreachable_in_time(name, call):
    started = time.monotonic()
    with pytest.raises(LockUnreachableError, match=r"ZooKeeper at 127\.0\.0\.1:\d+ did not answer in"):
        call()
    assert time.monotonic() - started < TIMEOUT_S + SLACK_S, name


def found_again(call):
    """Call until the client has found ZooKeeper, which is back."""
    back_s = time.monotonic()
    while time.monotonic() < back_s + 20:
        with suppress(LockUnreachableError):
            return call()
    return pytest.fail("it is back, and the client does not reconnect")


@pytest.mark.parametrize("away", [stopped, frozen])
def test_every_call_ends_in_time_and_the_queue_works_again_after(zookeeper, queues, root, away):
    first, second, third = (queues.at(zookeeper.hosts, root, TIMEOUT_S) for _ in range(3))
    held, waiting, late = first.request(asks()), second.request(asks()), asks()
    woken = threading.Event()
    assert not second.status(waiting, woken.set).held
    leaving = third.request(asks())
    with away(zookeeper):
        for name, call in {
            "request": lambda: third.request(late),
            "status": lambda: second.status(waiting, woken.set),
            "renew": lambda: first.renew(held),
            "ensure_held": lambda: first.ensure_held(held),
            "adopt": lambda: third.adopt(waiting),
            "release": lambda: third.release(leaving),
            "requests": first.requests,
            "connect": lambda: queues.at(zookeeper.hosts, root, TIMEOUT_S),
        }.items():
            unreachable_in_time(name, call)
    found_again(lambda: first.ensure_held(held))
    assert woken.is_set(), "a waiter with a watch has to ask again after the connection was lost"
    asked_again = found_again(lambda: third.request(late))
    third.release(leaving)
    # It may have been adopted although the answer was lost; then it has to be adopted again.
    with suppress(LeaseLostError):
        waiting = third.adopt(waiting)
    queued = [one.name for one in first.requests()]
    assert queued == [held.name, waiting.name, asked_again.name]
    assert first.release(held)
    wait_until_held(third, third.adopt(waiting) if away is stopped else waiting)


def test_closing_ends_in_time_too(zookeeper, root):
    nodes = ZookeeperStore(ZookeeperAccess(zookeeper.hosts, TIMEOUT_S), root)
    with frozen(zookeeper):
        started = time.monotonic()
        nodes.close()
        assert time.monotonic() - started < SLACK_S


def test_an_outage_while_several_clients_work_leaves_no_lasting_requests(zookeeper, queues, root):
    """Requests that clients abandon in an outage are removed after their time to live."""
    ttl_ms, ended, slow, others = 3_000, threading.Event(), [], []

    def request_and_release():
        queue = queues.at(zookeeper.hosts, root, TIMEOUT_S)
        while not ended.is_set():
            started = time.monotonic()
            try:
                ticket = queue.request(asks(ttl_ms=ttl_ms))
                queue.status(ticket)
                queue.renew(ticket)
                queue.release(ticket)
            except (LockUnreachableError, LeaseLostError):
                pass  # and its request is abandoned
            except Exception as error:  # noqa: BLE001
                others.append(error)
            if (took_s := time.monotonic() - started) > 4 * (TIMEOUT_S + SLACK_S):
                slow.append(took_s)

    clients = [threading.Thread(target=request_and_release) for _ in range(4)]
    for one in clients:
        one.start()
    for away in (stopped, frozen, stopped):
        time.sleep(1)
        with away(zookeeper):
            time.sleep(TIMEOUT_S + 1)
    time.sleep(2)
    ended.set()
    for one in clients:
        one.join(20)
    assert (slow, others, [one for one in clients if one.is_alive()]) == ([], [], [])

    queue = queues.at(zookeeper.hosts, root)
    ticket = queue.request(asks(ttl_ms=ttl_ms))
    assert len(queue.requests()) > 1, "nothing was abandoned: the test shows nothing"
    wait_until_held(queue, ticket, timeout_s=3 * ttl_ms / 1000)
    assert [one.name for one in queue.requests()] == [ticket.name]


def expire(queue):
    """Expire a queue's session, as ZooKeeper does, without its client's doing."""
    client = queue._store.store._client
    before = client.client_id
    twin = KazooClient(f"{client.hosts[0][0]}:{client.hosts[0][1]}", client_id=before)
    twin.start(timeout=15)
    twin.stop()
    twin.close()
    deadline = time.monotonic() + 15
    while client.client_id in (None, before) or not client.connected:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_requests_keep_their_places_when_sessions_expire(zookeeper, queues, root):
    first, second = (queues.at(zookeeper.hosts, root) for _ in range(2))
    held, waiting = first.request(asks()), second.request(asks())
    woken = threading.Event()
    assert not second.status(waiting, woken.set).held
    expire(first)
    first.ensure_held(held)
    expire(second)
    assert woken.wait(5), "its watch died with its session"
    woken.clear()
    assert not second.status(waiting, woken.set).held
    assert first.release(held)
    assert woken.wait(5)
    assert second.status(waiting).held
    assert [one.name for one in first.requests()] == [waiting.name]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with EmbeddedZookeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


@pytest.fixture
def ensemble(servers):
    yield servers
    for server in servers.servers:
        if not server.mode:
            server.stop()
            server.start()


@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_one_server_of_three_dies_and_the_order_is_kept(ensemble, queues, root, victim):
    holder = queues.at(ensemble.hosts, root)
    held = holder.request(asks())
    granted = []

    def hold_and_release(queue, ticket):
        wait_until_held(queue, ticket)
        granted.append(ticket.token)
        queue.ensure_held(ticket)
        queue.release(ticket)

    waiting = [
        (queue, queue.request(asks())) for queue in (queues.at(ensemble.hosts, root) for _ in range(4))
    ]
    threads = [threading.Thread(target=hold_and_release, args=pair) for pair in waiting]
    for thread in threads:
        thread.start()
    next(server for server in ensemble.servers if server.mode == victim).stop()
    holder.ensure_held(held)
    assert granted == []
    newcomer = queues.at(ensemble.hosts, root)
    last = newcomer.request(asks())
    assert holder.release(held)
    for thread in threads:
        thread.join(30)
    assert granted == [ticket.token for _, ticket in waiting]
    assert held.token < granted[0]
    assert granted == sorted(granted)
    assert granted[-1] < last.token
    wait_until_held(newcomer, last)
    assert [one.name for one in newcomer.requests()] == [last.name]


def test_without_a_majority_no_lease_is_confirmed_as_held(ensemble, queues, root):
    queue = queues.at(ensemble.hosts, root, TIMEOUT_S)
    held = queue.request(asks())
    for server in ensemble.servers[:2]:
        server.stop()
    started = time.monotonic()
    with pytest.raises(LockUnreachableError):
        queue.ensure_held(held)
    assert time.monotonic() - started < TIMEOUT_S + SLACK_S
    for server in ensemble.servers[:2]:
        server.launch()
    for server in ensemble.servers:
        server.wait()
    queue.ensure_held(held)


def test_the_ensemble_is_one_zookeeper(ensemble, root):
    assert sorted(server.mode for server in ensemble.servers) == ["follower", "follower", "leader"]
    with bare_client(ensemble.servers[0].hosts) as one, bare_client(ensemble.servers[1].hosts) as other:
        one.create(root, b"seen")
        other.sync(root)
        assert other.get(root)[0] == b"seen"


def test_a_node_with_children_is_refused_by_name(zookeeper, queues, root):
    queue = queues.at(zookeeper.hosts, root)
    with bare_client(zookeeper.hosts) as client:
        client.ensure_path(f"{root}/requests/stray/child")
    (stray,) = queue.requests()
    with pytest.raises(ConfigurationError, match=f"{root}/requests/stray is not a request"):
        queue.evict(stray)

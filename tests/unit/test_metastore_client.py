from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from pymetastore.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient

PATIENCE_S = 60


class Named:
    """Answers every question for a setting by its own name."""

    def __init__(self, name):
        self.name = name

    def get_config_value(self, name, default):
        return self.name


@contextmanager
def metastore(name="", *, answers=True, connections=None):
    """A server on loopback; without answers it takes connections and says nothing."""
    listening = socket.create_server(("127.0.0.1", 0))
    taken = [] if connections is None else connections
    processor = ThriftHiveMetastore.Processor(Named(name))

    def serve(connection):
        transport = TSocket()
        transport.setHandle(connection)
        protocol = TBinaryProtocol(TBufferedTransport(transport))
        with suppress(TTransportException, OSError):
            while True:
                processor.process(protocol, protocol)

    def accept():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            taken.append(connection)
            if answers:
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"thrift://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for connection in taken:
            connection.close()


def ask(client):
    return client.call("get_config_value", "x", "")


@pytest.mark.parametrize(
    ("uris", "addresses"),
    [
        ("thrift://one:9084", [("one", 9084)]),
        ("one", [("one", 9083)]),
        (" thrift://one:1 , thrift://two/ ,", [("one", 1), ("two", 9083)]),
        ("thrift://[::1]:9083", [("::1", 9083)]),
    ],
)
def test_addresses(uris, addresses):
    assert MetastoreAccess(uris).addresses == addresses


@pytest.mark.parametrize(
    "uris", ["", " , ", "http://one", "thrift://one:port", "thrift://one/db", "a,,b"]
)
def test_what_is_no_address(uris):
    with pytest.raises(ConfigurationError, match="Remedy: enter thrift://host:9083"):
        MetastoreClient(MetastoreAccess(uris))


def test_the_first_of_several_is_dead():
    with metastore("second") as uri:
        client = MetastoreClient(MetastoreAccess(f"thrift://127.0.0.1:1,{uri}", 5))
        assert ask(client) == "second"
        client.close()


def test_one_that_answers_nothing_is_left_for_the_next():
    with metastore(answers=False) as silent, metastore("second") as uri:
        client = MetastoreClient(MetastoreAccess(f"{silent},{uri}", 0.3))
        started = time.monotonic()
        with pytest.raises(LockUnreachableError, match=r"did not answer in 0\.3 s .*Remedy"):
            ask(client)
        assert time.monotonic() - started < PATIENCE_S
        assert ask(client) == "second"
        client.close()


def test_an_unreachable_metastore():
    with pytest.raises(LockUnreachableError, match=r"127\.0\.0\.1:1: .*Remedy"):
        MetastoreClient(MetastoreAccess("thrift://127.0.0.1:1", 5))


def test_a_connection_that_broke_is_made_again():
    connections = []
    with metastore("one", connections=connections) as uri:
        client = MetastoreClient(MetastoreAccess(uri, 5))
        assert ask(client) == "one"
        connections[0].shutdown(socket.SHUT_RDWR)
        assert ask(client) == "one"
        connections[1].shutdown(socket.SHUT_RDWR)
        with pytest.raises(LockUnreachableError):
            client.call("get_config_value", "x", "", repeat=False)
        assert ask(client) == "one"
        client.close()


def test_a_closed_one_connects_no_more():
    connections = []
    with metastore("one", connections=connections) as uri:
        client = MetastoreClient(MetastoreAccess(uri, 5))
        assert ask(client) == "one"
        client.close()
        client.close()
        with pytest.raises(LockUnreachableError, match="closed"):
            ask(client)
    assert len(connections) == 1


def test_a_call_behind_hanging_calls_waits_for_a_bounded_time():
    with metastore(answers=False) as silent:
        client, took_s = MetastoreClient(MetastoreAccess(silent, 0.5)), []

        def call():
            started = time.monotonic()
            with pytest.raises(LockUnreachableError):
                ask(client)
            took_s.append(time.monotonic() - started)

        crowd = [threading.Thread(target=call) for _ in range(12)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join(10)
        assert len(took_s) == 12
        assert max(took_s) < 3
        client.close()

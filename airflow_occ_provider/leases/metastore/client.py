"""A client of a Hive metastore, whose every call ends in time."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pymetastore.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError

_PORT = 9083
# What a connection breaks with, as against what the metastore answers with.
_BROKEN = (TTransport.TTransportException, OSError, EOFError)


@dataclass(frozen=True, slots=True)
class Kerberos:
    """How the connection is authenticated.

    :param service: first part of the metastore's principal, such as ``hive`` in ``hive/host@REALM``.
    """

    service: str = "hive"


@dataclass(frozen=True, slots=True)
class Access:
    """Where the metastore is, and how to speak to it.

    :param uris: ``thrift://host:port`` addresses separated by commas, tried one after the other.
    :param timeout_s: seconds to wait for a connection, and for each answer.
    :param kerberos: ``None`` for a metastore that asks nobody who he is.
    """

    uris: str
    timeout_s: float = 10.0
    kerberos: Kerberos | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each server.

        :raises ConfigurationError: if one is no address, or there is none.
        """
        return [_address(one.strip()) for one in self.uris.strip(" ,").split(",")]


class MetastoreClient:
    """A connection that is made again where it broke. Threads may share it, one call at a time.

    :param access: where, and how.
    :raises LockUnreachableError: if no server takes the connection in time.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._addresses = deque(access.addresses)
        self._turn = threading.Lock()
        self._transport: Any = None
        self._client: Any = None
        with self._turn:
            self._connect()

    def call(
        self,
        name: str,
        *arguments: Any,
        repeat: bool = True,
        answers: tuple[type[TException], ...] = (),
    ) -> Any:
        """Return what a call of the metastore's answers.

        :param name: of the call in Hive's ``ThriftHiveMetastore``.
        :param repeat: whether it may be sent again where the connection turns out to be broken.
        :param answers: exceptions that are answers too, and are raised as they are.
        :raises LockUnreachableError: if there is no answer in time: it may have been carried out.
        """
        if not self._turn.acquire(timeout=self.access.timeout_s):
            raise self._unreachable(f"{name!r}: calls of other threads hang")
        try:
            may_repeat = repeat and self._client is not None
            while True:
                if self._client is None:
                    self._connect()
                try:
                    return getattr(self._client, name)(*arguments)
                except answers:
                    raise
                except (*_BROKEN, TException) as error:
                    self._disconnect()  # a metastore that failed closes its end too
                    self._addresses.rotate(-1)
                    if not (may_repeat and _is_broken(error)):
                        raise self._failed(name, error) from error
                may_repeat = False
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the connection for good."""
        has_turn = self._turn.acquire(timeout=self.access.timeout_s)
        self._addresses.clear()
        self._disconnect()
        if has_turn:
            self._turn.release()

    def _connect(self) -> None:
        failed = []
        for host, port in tuple(self._addresses):
            connection = TSocket.TSocket(host, port)
            connection.setTimeout(round(self.access.timeout_s * 1000))
            transport = self._framed(connection, host)
            try:
                transport.open()
            except (*_BROKEN, TException) as error:
                transport.close()
                self._addresses.rotate(-1)
                failed.append(f"{host}:{port}: {error}")
                continue
            self._transport = transport
            self._client = ThriftHiveMetastore.Client(TBinaryProtocolAccelerated(transport))
            return
        raise self._unreachable("; ".join(failed) or "the connection was closed")

    def _framed(self, connection: Any, host: str) -> Any:
        if self.access.kerberos is None:
            return TTransport.TBufferedTransport(connection)
        return _authenticated(connection, host, self.access.kerberos)

    def _disconnect(self) -> None:
        if self._transport:
            with suppress(*_BROKEN):
                self._transport.close()
        self._transport = self._client = None

    def _failed(self, name: str, error: Exception) -> LockUnreachableError:
        if isinstance(error, _BROKEN):
            return self._unreachable(f"{name!r}: {error}")
        return LockUnreachableError(
            f"the Hive metastore at {self.access.uris} answered {name!r} with an error: {error}",
            remedy="read on in its own log; its lock tables may be missing, or its release unknown here",
        )

    def _unreachable(self, why: str) -> LockUnreachableError:
        return LockUnreachableError(
            f"the Hive metastore at {self.access.uris} did not answer in {self.access.timeout_s:g} s "
            f"({why})",
            remedy="look whether it runs, whether its address is right and whether this machine "
            "reaches it; its own log says more",
        )


def _is_broken(error: Exception) -> bool:
    """Whether the connection was lost, as against an answer that is late or bad."""
    late = TTransport.TTransportException.TIMED_OUT
    return isinstance(error, _BROKEN) and getattr(error, "type", None) != late


def _address(uri: str) -> tuple[str, int]:
    parts = urlsplit(uri if "://" in uri else f"thrift://{uri}")
    with suppress(ValueError):
        if parts.scheme == "thrift" and parts.hostname and not parts.path.strip("/"):
            return parts.hostname, parts.port or _PORT
    raise ConfigurationError(
        "uris", f"{uri!r} is no address of a metastore", remedy=f"enter thrift://host:{_PORT}"
    )


def _authenticated(connection: Any, host: str, kerberos: Kerberos) -> Any:
    try:
        import kerberos as _  # noqa: F401 - what pure-sasl speaks GSSAPI with

        from airflow_occ_provider.leases.metastore.kerberos import authenticated
    except ImportError as error:
        raise ConfigurationError(
            "kerberos",
            f"the clients of Kerberos are not installed here ({error})",
            remedy="pip install 'airflow-occ-provider[kerberos]'",
        ) from error
    return authenticated(connection, host, kerberos.service)

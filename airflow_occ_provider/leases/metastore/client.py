"""The client of a Hive metastore, with a time-out for every call."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any

from pymetastore.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TException
from thrift.transport import TSocket, TTransport

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError, install_extra
from airflow_occ_provider.leases.metastore.access import Kerberos, MetastoreAccess

# Errors of the connection, not answers of the metastore.
_BROKEN = (TTransport.TTransportException, OSError, EOFError)


class MetastoreClient:
    """A connection that is restored after it broke.

    Threads may share it; their calls run one after the other.

    :raises LockUnreachableError: if no server accepts the connection in time.
    """

    def __init__(self, access: MetastoreAccess) -> None:
        self.access = access
        self._addresses = deque(access.addresses)
        self._call_lock = threading.Lock()
        self._transport: Any = None
        self._client: Any = None
        with self._call_lock:
            self._connect()

    def call(
        self,
        name: str,
        *arguments: Any,
        repeat: bool = True,
        answers: tuple[type[TException], ...] = (),
    ) -> Any:
        """Call the metastore and return its answer.

        :param name: of the call in Hive's ``ThriftHiveMetastore``.
        :param repeat: whether the call may be repeated if the connection is broken.
        :param answers: exceptions that are answers, and are raised unchanged.
        :raises LockUnreachableError: if there is no answer in time; it may have been carried out.
        """
        if not self._call_lock.acquire(timeout=self.access.timeout_s):
            raise self._unreachable(f"{name!r}: a call of another thread hangs")
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
                    self._disconnect()  # after an error the metastore closes its end too
                    self._addresses.rotate(-1)
                    if not (may_repeat and _is_broken(error)):
                        raise self._failed(name, error) from error
                may_repeat = False
        finally:
            self._call_lock.release()

    def close(self) -> None:
        """Close the connection permanently."""
        is_acquired = self._call_lock.acquire(timeout=self.access.timeout_s)
        self._addresses.clear()
        self._disconnect()
        if is_acquired:
            self._call_lock.release()

    def _connect(self) -> None:
        failed = []
        for host, port in tuple(self._addresses):
            connection = TSocket.TSocket(host, port)
            connection.setTimeout(round(self.access.timeout_s * 1000))
            transport = (
                _authenticated(connection, host, self.access.kerberos)
                if self.access.kerberos
                else TTransport.TBufferedTransport(connection)
            )
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
            remedy="read its log; its lock tables may be missing, or its release not supported",
        )

    def _unreachable(self, why: str) -> LockUnreachableError:
        return LockUnreachableError(
            f"the Hive metastore at {self.access.uris} did not answer in {self.access.timeout_s:g} s "
            f"({why})",
            remedy="check that it runs, that its address is correct and that this machine reaches it; "
            "read its log",
        )


def _is_broken(error: Exception) -> bool:
    """Return whether the connection was lost, not only an answer late or invalid."""
    late = TTransport.TTransportException.TIMED_OUT
    return isinstance(error, _BROKEN) and getattr(error, "type", None) != late


def _authenticated(connection: Any, host: str, kerberos: Kerberos) -> Any:
    try:
        import kerberos as _  # noqa: F401 - needed by pure-sasl for GSSAPI

        from airflow_occ_provider.leases.metastore.kerberos import authenticated
    except ImportError as error:
        raise ConfigurationError(
            "kerberos",
            f"the Kerberos client is not installed ({error})",
            remedy=install_extra("kerberos"),
        ) from error
    return authenticated(connection, host, kerberos.service)

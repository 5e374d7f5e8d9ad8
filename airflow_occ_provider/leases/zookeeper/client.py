"""The client of ZooKeeper, with time-outs, TLS and access rights."""

from __future__ import annotations

import logging
import posixpath
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import Auth
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess, error_name

LOG = logging.getLogger(__name__)
LOG.setLevel(logging.WARNING)  # no task log line for every connection
# At level DEBUG kazoo logs every message that it sends, also the password.
LOG.addFilter(lambda record: not any(isinstance(arg, Auth) for arg in record.args or ()))


_PAUSE_S = 0.05
_MAX_RETRY_PAUSE_S = 1.0
_RETRIABLE = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, ConnectionClosedError)
# What a caller of ``call`` handles: nodes that are missing, there already, or were changed.
_OF_NODES = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, RolledBackError)
_REFUSED = (NoAuthError, AuthFailedError, InvalidACLError)


class Wire(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A kazoo handler that opens connections and keeps the last failure.

    :param context: for TLS, including the check of the server's name; ``None`` for no encryption.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context
        self.failure: OSError | None = None

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> socket.socket:
        """Connect to one server within the time-out."""
        try:
            connection: socket.socket = super().create_connection(address, timeout=timeout)
            if self._context:
                connection = self._context.wrap_socket(
                    connection, server_hostname=hostname or address[0]
                )
        except OSError as error:
            self.failure = error
            raise
        self.failure = None
        return connection


class Session:
    """A connection that is restored automatically, with a time-out for every call.

    Each of its users closes it once; the last one ends the connection.

    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it rejects the credentials.
    """

    def __init__(self, access: ZookeeperAccess) -> None:
        self.access = access
        self._users, self._counting = 1, threading.Lock()
        self._wire = Wire(access.tls.context() if access.tls else None)
        self.client = _client(access, self._wire)
        try:
            with self.translated("/"):
                # As start() does, which only warns of a missing chroot.
                self.client.start_async().wait(access.timeout_s)
                if not self.client.connected:
                    raise KazooTimeoutError("Connection time-out")
            self._refuse_missing_chroot()
        except BaseException:
            self.close()
            raise

    def call(self, start: Callable[[], Any], path: str = "/") -> Any:
        """Return the answer of an asynchronous kazoo call.

        The call is started again while the connection is lost. Messages name the path.

        :raises LockUnreachableError: if there is no answer in time; it may have been carried out.
        :raises ConfigurationError: if ZooKeeper denies access.
        """
        timeout_s = self.access.timeout_s
        deadline = time.monotonic() + timeout_s

        def answer() -> Any:
            return start().get(timeout=max(deadline - time.monotonic(), _PAUSE_S))

        with self.translated(path):
            return bounded(answer, _RETRIABLE, within_s=timeout_s, pause_s=_PAUSE_S)

    @contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """Translate kazoo's errors, except those about missing or changed nodes."""
        access = self.access
        try:
            yield
        except _REFUSED as error:
            user = f"login {access.login}" if access.login else "clients without a login"
            raise ConfigurationError(
                "lock connection",
                f"ZooKeeper at {access.hosts} does not let {user} use {path}: {error_name(error)}",
                remedy="check the connection's login and password, and the rights (ACL) of the path; "
                "only the login that created a node can use it",
            ) from error
        except (KazooTimeoutError, *_RETRIABLE, OSError) as error:
            raise self._unreachable(error) from error
        except _OF_NODES:
            raise
        except KazooException as error:
            raise LockUnreachableError(
                f"ZooKeeper at {access.hosts} did not carry out a call on {path}: {error_name(error)}",
                remedy="look in ZooKeeper's log",
            ) from error

    def _refuse_missing_chroot(self) -> None:
        """Refuse a chroot that does not exist: it is not made, since a misspelt one is another lock."""
        chroot = self.client.chroot
        if chroot and self.call(lambda: self.client.exists_async("/")) is None:
            levels = [chroot[:end] for end in (*_slashes(chroot), len(chroot))]
            raise ConfigurationError(
                "lock connection",
                f"the chroot {chroot} does not exist in ZooKeeper at {self.access.hosts}",
                remedy=f"correct the hosts, or create it in zkCli.sh: "
                f"{'; '.join(f'create {level}' for level in levels)}",
            )

    def share(self) -> bool:
        """Add a user; return whether the connection was still open."""
        with self._counting:
            if self._users:
                self._users += 1
            return self._users > 0

    def close(self) -> None:
        """Close the session for one user."""
        with self._counting:
            self._users -= 1
            if self._users > 0:
                return
        with suppress(KazooException):
            self.client.stop()
            self.client.close()

    def _unreachable(self, error: Exception) -> LockUnreachableError | ConfigurationError:
        why, hosts = self._wire.failure or error, self.access.hosts
        if isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError):
            return ConfigurationError(
                "lock connection",
                f"no TLS connection to ZooKeeper at {hosts}: {error_name(why)}",
                remedy="check that the hosts name the TLS port, that tls_ca is the CA of the server's "
                "certificate, and that the server trusts tls_certificate",
            )
        return LockUnreachableError(
            f"ZooKeeper at {hosts} did not answer in {self.access.timeout_s:g} s: {error_name(why)}",
            remedy="check the connection's hosts, that this machine reaches them, that these ports are "
            f"{'for TLS' if self.access.tls else 'without TLS'}, and that maxClientCnxns allows this "
            "address one more connection",
        )


def check_lock_service(access: ZookeeperAccess, base_path: str | None, lease_root: str) -> str:
    """Check that locks and leases can be created in ZooKeeper; return a summary.

    Under each path that exists, an ephemeral node is created and removed, so that a missing
    permission is found now and not at the end of a job. Locks and leases are not touched. Hudi's locks
    use no login; their path is ``None`` if they are in another service.

    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it denies access.
    """
    as_hudi = replace(access, login="", password="")
    probes = [(as_hudi, base_path, "Hudi's locks")] if base_path else []
    probes.append((access, lease_root, "leases"))
    with ExitStack() as stack:
        session = cache(lambda client: stack.enter_context(closing(Session(client))))
        results = [_probe(session(client), path, what) for client, path, what in probes]
    return f"ZooKeeper answers; {', and '.join(results)}."


def _probe(session: Session, path: str, what: str) -> str:
    probe, client = posixpath.join(path, "airflow_occ_provider-check-"), session.client
    try:
        created = session.call(lambda: client.create_async(probe, ephemeral=True, sequence=True), path)
        session.call(lambda: client.delete_async(created), path)
    except NoNodeError:
        return f"{path} will be created with the first of {what}"
    return f"{what} can be created under {path}"


def _client(access: ZookeeperAccess, wire: Wire) -> KazooClient:
    digest = [("digest", f"{access.login}:{access.password}")] if access.login else None
    try:
        return KazooClient(
            access.hosts,
            access.timeout_s,
            handler=wire,
            logger=LOG,
            auth_data=digest,
            connection_retry={"max_tries": -1, "max_delay": _MAX_RETRY_PAUSE_S},
        )
    except ValueError as error:
        raise ConfigurationError(
            "lock connection",
            f"{access.hosts!r} is not a list of ZooKeeper hosts: {error}",
            remedy="enter host:port pairs separated by commas, with an optional chroot at the end",
        ) from error


def acl_of(access: ZookeeperAccess) -> list[Any]:
    """Return the ACL of the nodes that a client creates."""
    return [make_acl("auth", "", all=True)] if access.login else OPEN_ACL_UNSAFE


def _slashes(path: str) -> list[int]:
    """Return where a path's slashes are, but for the first one."""
    return [place for place, letter in enumerate(path) if letter == "/" and place]


def shared_session(access: ZookeeperAccess) -> Session:
    """Open a session, which the caller closes.

    What uses one value of access at the same time shares one: a server limits them for each address.

    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it rejects the credentials.
    """
    sessions: list[Session] = access.sessions
    for session in sessions:
        if session.share():
            return session
    sessions[:] = [Session(access)]
    return sessions[0]

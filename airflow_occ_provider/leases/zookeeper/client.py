"""A client of ZooKeeper, with the time-outs and the access rights of a connection."""

from __future__ import annotations

import posixpath
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.zookeeper.wire import LOG, Wire

_PAUSE_S = 0.05
_MOST_BETWEEN_TRIES_S = 1.0
_AGAIN = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, ConnectionClosedError)
_REFUSED = (NoAuthError, AuthFailedError, InvalidACLError)


@dataclass(frozen=True, slots=True)
class Tls:
    """How the connection is encrypted.

    :param ca: path of the authorities' certificates; empty for those of the system.
    :param certificate: path of the client's certificate, where the server wants one.
    :param key: path of its key; empty where the certificate's file holds it.
    :param verify: whether the server's certificate is verified, and its name.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return what a connection is encrypted by.

        :raises ConfigurationError: if a file is none of its kind.
        """
        with _usable("tls_ca", self.ca):
            context = ssl.create_default_context(cafile=self.ca or None)
        if self.certificate:
            key = self.key or self.certificate
            with _usable("tls_certificate, tls_key", f"{self.certificate} with {key}"):
                # Without a password here, an encrypted key would ask for one at the terminal.
                context.load_cert_chain(self.certificate, key, password="")
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Access:
    """Where ZooKeeper is, and as whom to speak to it.

    :param hosts: ``host:port`` pairs separated by commas, with an optional chroot.
    :param timeout_s: seconds to wait for the connection, and for each answer.
    :param login: of the digest scheme; nodes made with it are its own.
    :param password: of the login.
    :param tls: ``None`` for a connection in clear.
    """

    hosts: str
    timeout_s: float = 10.0
    login: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None

    @property
    def acl(self) -> list[Any]:
        """Who may touch the nodes that are made."""
        return [make_acl("auth", "", all=True)] if self.login else OPEN_ACL_UNSAFE


class Session:
    """A connection that is made again by itself; every call ends within the time-out.

    :param access: where, and as whom.
    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it refuses the credentials.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._wire = Wire(access.tls.context() if access.tls else None)
        self.client = _client(access, self._wire)
        try:
            with self.told("/"):
                self.client.start(timeout=access.timeout_s)
        except BaseException:
            self.close()
            raise

    def call(self, start: Callable[[], Any], path: str = "/") -> Any:
        """Return what an asynchronous call of kazoo's answers; a lost connection is waited out.

        :param start: starts it, perhaps again after an answer that was lost.
        :param path: the node in question, for messages.
        :raises LockUnreachableError: if there is no answer in time: it may have been carried out.
        :raises ConfigurationError: if ZooKeeper does not let us.
        """
        deadline = time.monotonic() + self.access.timeout_s
        with self.told(path):
            while True:
                try:
                    return start().get(timeout=max(deadline - time.monotonic(), _PAUSE_S))
                except _AGAIN:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(_PAUSE_S)

    @contextmanager
    def told(self, path: str) -> Iterator[None]:
        """Have what kazoo raises told in our words; a missing or moved node is the caller's to judge.

        :param path: the node in question.
        """
        access = self.access
        try:
            yield
        except _REFUSED as error:
            who = f"the login {access.login}" if access.login else "anybody without a login"
            raise ConfigurationError(
                "lock connection",
                f"ZooKeeper at {access.hosts} does not let {who} use {path}: {_name(error)}",
                remedy="check the connection's login and password, and the rights (ACL) of the path; "
                "what was made with a login is that login's alone",
            ) from error
        except (KazooTimeoutError, *_AGAIN, OSError) as error:
            raise self._unreachable(error) from error

    def close(self) -> None:
        """End the session."""
        with suppress(KazooException):
            self.client.stop()
            self.client.close()

    def _unreachable(self, error: Exception) -> LockUnreachableError | ConfigurationError:
        why, hosts = self._wire.failure or error, self.access.hosts
        if isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError):
            return ConfigurationError(
                "lock connection",
                f"no connection by TLS to ZooKeeper at {hosts}: {_name(why)}",
                remedy="check that the hosts name the port for TLS, that tls_ca is the authority of the "
                "server's certificate, and tls_certificate one that the server trusts",
            )
        return LockUnreachableError(
            f"ZooKeeper at {hosts} does not answer in {self.access.timeout_s:g} s: {_name(why)}",
            remedy="check the connection's hosts, that this machine reaches them, that they speak "
            f"{'TLS' if self.access.tls else 'without TLS'} at these ports, and that maxClientCnxns "
            "allows this address one more connection",
        )


def check_lock_service(access: Access, base_path: str | None, lease_root: str) -> str:
    """Talk to ZooKeeper as lock holders would, and say what was found.

    Where a path exists, an ephemeral node is made under it and removed again, so that a missing
    permission shows now and not at the end of a job. Locks and leases are not touched.

    :param access: where, and as whom.
    :param base_path: the node under which Hudi makes its locks, without a login; ``None`` where they
        are elsewhere.
    :param lease_root: the node under which our writers stand in line.
    :raises LockUnreachableError: if ZooKeeper does not answer in time.
    :raises ConfigurationError: if it refuses.
    """
    as_hudi = replace(access, login="", password="")
    found = [_probe(as_hudi, base_path, "Hudi's locks")] if base_path else []
    found.append(_probe(access, lease_root, "leases"))
    return f"ZooKeeper answers; {', and '.join(found)}."


def _probe(access: Access, path: str, what: str) -> str:
    probe, session = posixpath.join(path, "airflow_occ_provider-check-"), Session(access)
    client = session.client
    try:
        made = session.call(lambda: client.create_async(probe, ephemeral=True, sequence=True), path)
        session.call(lambda: client.delete_async(made), path)
    except NoNodeError:
        return f"{path} will be created with the first of {what}"
    finally:
        session.close()
    return f"{what} can be made under {path}"


@contextmanager
def _usable(field_name: str, files: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            field_name,
            f"{files} cannot be used for TLS: {_name(error)}",
            remedy="name files in PEM format that this process can read, the key unencrypted",
        ) from error


def _client(access: Access, wire: Wire) -> KazooClient:
    digest = [("digest", f"{access.login}:{access.password}")] if access.login else None
    try:
        return KazooClient(
            access.hosts,
            access.timeout_s,
            handler=wire,
            logger=LOG,
            auth_data=digest,
            connection_retry={"max_tries": -1, "max_delay": _MOST_BETWEEN_TRIES_S},
        )
    except ValueError as error:
        raise ConfigurationError(
            "lock connection",
            f"{access.hosts!r} are no hosts of ZooKeeper: {error}",
            remedy="give host:port pairs separated by commas, with an optional chroot at the end",
        ) from error


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

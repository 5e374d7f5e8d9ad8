"""The ZooKeeper client: the only room that imports kazoo."""

from __future__ import annotations

import posixpath

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from airflow_occ_provider.errors import LockUnreachableError


def check_lock_service(hosts: str, base_path: str, *, timeout_s: float) -> str:
    """Talk to ZooKeeper as a lock holder would, and say what was found.

    Where the base path exists, an ephemeral node is made under it and removed again, so that a
    missing permission shows now and not at the end of a job. Hudi's own locks are not touched.

    :param hosts: ``host:port`` pairs separated by commas, with an optional chroot.
    :param base_path: the node under which Hudi makes its locks.
    :param timeout_s: seconds to wait for the connection, and for each answer.
    :raises LockUnreachableError: if ZooKeeper does not answer in time, or refuses.
    """
    client = KazooClient(hosts=hosts, timeout=timeout_s)
    try:
        client.start(timeout=timeout_s)
        return _try_lock_path(client, base_path, timeout_s)
    except (KazooTimeoutError, KazooException, OSError, ValueError) as error:
        raise LockUnreachableError(
            f"ZooKeeper at {hosts} does not serve locks under {base_path}: {_name(error)}",
            remedy="check the connection's hosts and base path, and that the worker reaches them",
        ) from error
    finally:
        client.stop()
        client.close()


def _try_lock_path(client: KazooClient, base_path: str, timeout_s: float) -> str:
    try:
        probe = posixpath.join(base_path, "airflow_occ_provider-check-")
        made = client.create_async(probe, ephemeral=True, sequence=True).get(timeout=timeout_s)
    except NoNodeError:
        client.exists_async("/").get(timeout=timeout_s)
        return f"ZooKeeper answers; Hudi will create {base_path} with the first lock."
    client.delete_async(made).get(timeout=timeout_s)
    return f"ZooKeeper answers, and locks can be made under {base_path}."


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

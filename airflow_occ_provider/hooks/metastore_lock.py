"""The connection ``hudi_metastore_lock``: lock and leases in a metastore."""

from __future__ import annotations

import re
from functools import cached_property

from airflow_occ_provider.attempts.locks import MetastoreLock
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.leases.metastore.access import Kerberos, MetastoreAccess
from airflow_occ_provider.leases.metastore.backend import LEASE_DATABASE, MetastoreLeases

_NAME = re.compile(r"[a-z0-9_]{1,128}")


class HudiMetastoreLockHook(HudiLockHook):
    """The hook of a ``hudi_metastore_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_metastore_lock"
    hook_name = "Hudi lock (Hive metastore)"

    @cached_property
    def access(self) -> MetastoreAccess:
        """The way to the metastore that the connection names."""
        service = self.fields.text("kerberos_service", "hive")
        kerberos = Kerberos(service) if self.fields.flag("kerberos") else None
        return MetastoreAccess(self._uris, answer_timeout_s(self.fields), kerberos)

    def service_lock(self) -> MetastoreLock:
        """Return Hudi's lock in the metastore."""
        fields = self.fields
        return MetastoreLock(
            self.access,
            self._name("database", "default"),
            self._name("table", ""),
            wait_time_ms=fields.number("wait_time_ms", 60_000, at_least=1),
            heartbeat_ms=fields.number("heartbeat_interval_ms", 60_000, at_least=1),
            num_retries=fields.number("num_retries", 50),
        )

    def service_leases(self) -> MetastoreLeases:
        """Return the leases in the metastore."""
        return MetastoreLeases(
            self.access,
            self._name("lease_database", LEASE_DATABASE),
            timeout_s=ttl_s(self.fields, "lock_timeout_s", 0),
            poll_s=self.fields.number("lease_poll_s", 1, at_least=1),
        )

    @property
    def _uris(self) -> str:
        """The Thrift addresses, separated by commas."""
        host, port = (self.connection.host or "").strip(), self.connection.port
        if not host:
            raise self.fields.error(
                "uris", "is empty", "enter thrift://host:port addresses, separated by commas"
            )
        uris = [uri.strip() for uri in host.split(",") if uri.strip()]
        if port and len(uris) == 1 and not re.search(r":\d+$", uris[0]):
            uris = [f"{uris[0]}:{port}"]
        return ",".join(uri if "://" in uri else f"thrift://{uri}" for uri in uris)

    def _name(self, field: str, default: str) -> str:
        """Return a field as a name in Hive.

        :raises ConfigurationError: if it is not a valid one.
        """
        name = self.fields.text(field, default)
        if name != default and not _NAME.fullmatch(name):
            raise self.fields.error(
                field,
                f"{name!r} is not a valid name in Hive",
                "enter at most 128 lower-case letters, digits and underscores",
            )
        return name

"""The connections: their types, hooks and forms in Airflow's UI.

A new lock backend is a module with its hook and a form: here, listed in ``LOCK_FORMS``, or in another
package, named by an entry point of the group ``GROUP``. Airflow imports this at every start, and what
the entry points name: keep it light.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "airflow_occ_provider.locks"
"""The group of the entry points. Each names a function that returns the form of a lock connection."""

_log = logging.getLogger(__name__)
_Field = dict[str, Any]


def _path(label: str, description: str, default: str) -> _Field:
    return _field(label, description, type="string", default=default, pattern="^/.*[^/]$")


def _name(label: str, description: str, default: str | None = None) -> _Field:
    schema = {"type": ["string", "null"], "pattern": "^[a-z0-9_]{0,128}$"}
    return _field(label, description, **schema, **({"default": default} if default else {}))


def _number(label: str, description: str, default: int, *, at_least: int = 1) -> _Field:
    return _field(label, description, type=["integer", "null"], default=default, minimum=at_least)


def _optional(label: str, description: str, *, at_least: int = 1) -> _Field:
    return _field(label, description, type=["integer", "null"], minimum=at_least)


def _flag(label: str, description: str, *, default: bool) -> _Field:
    return _field(label, description, type=["boolean", "null"], default=default)


def _text(label: str, description: str, **schema: str) -> _Field:
    return _field(label, description, type=["string", "null"], **schema)


def _field(label: str, description: str, **schema: Any) -> _Field:
    return {"label": label, "description": description, "schema": schema}


def other_lock(service: str, leases: str = "") -> dict[str, dict[str, Any]]:
    """Return the field ``hudi_lock_options``, which the base of all lock hooks reads.

    :param service: where Hudi's lock is without it, for its description.
    :param leases: where the leases are, if that is not the service.
    """
    return {
        "hudi_lock_options": _text(
            "Other Hudi lock",
            "Options of another lock provider of Hudi, one key=value per line, including "
            f"hoodie.write.lock.provider. They replace Hudi's lock in {service}; the leases stay in "
            f"{leases or service}. Do not put secrets here.",
            format="multiline",
        )
    }


_LOCK_WAIT = {
    "wait_time_ms": _number("Lock wait (ms)", "How long one attempt to get the lock may wait.", 60_000),
    "num_retries": _number(
        "Lock retries", "Further attempts before a writer gives up, 5 seconds apart.", 50, at_least=0
    ),
}
_ZOOKEEPER_LOCK = {
    "base_path": _path(
        "Base path",
        "The node under which Hudi creates its locks; the same for all writers. It must be "
        "accessible without a login: Hudi's own ZooKeeper client has no credentials.",
        "/hudi/locks",
    ),
    "connection_timeout_ms": _number(
        "Connection time-out (ms)", "How long a writer waits for a connection.", 15_000
    ),
    "session_timeout_ms": _number(
        "Session time-out (ms)",
        "ZooKeeper releases the lock of a dead writer after this time.",
        60_000,
    ),
    **_LOCK_WAIT,
}
_ZOOKEEPER_LEASES = {
    "lease_root": _path(
        "Lease root",
        "The node under which writers queue; neither inside the base path nor above it.",
        "/airflow_occ/leases",
    ),
    "lease_ttl_s": _number(
        "Lease time to live (s)",
        "A lease expires after this time without a renewal. Writers with isolation='serializable' "
        "need at least 42, since their driver is stopped before another writer may hold the lease.",
        60,
        at_least=3,
    ),
    "claim_ttl_s": _number(
        "Claim time to live (s)",
        "How long a lease is kept while its task waits for a worker slot; at least the lease's time "
        "to live.",
        600,
        at_least=3,
    ),
}
_TLS = {
    "tls": _flag(
        "TLS",
        "Encrypt the connection for leases. Hudi's own client follows its JVM's "
        "zookeeper.client.secure and zookeeper.ssl.* properties instead.",
        default=False,
    ),
    "tls_ca": _text(
        "TLS authorities", "File with their certificates (PEM). Default: those of the system."
    ),
    "tls_certificate": _text(
        "TLS certificate", "File with the client's certificate (PEM), if the server requires one."
    ),
    "tls_key": _text(
        "TLS key",
        "File of its key (PEM, not encrypted); empty if the certificate's file contains it.",
    ),
    "tls_verify": _flag("TLS verify", "Refuse a server without a valid certificate.", default=True),
}
_METASTORE_LOCK = {
    "database": _name(
        "Database",
        "Database in the name that Hudi locks; the same for all writers. It need not exist.",
        "default",
    ),
    "table": _name(
        "Table",
        "Table in the name that Hudi locks; by default the name of the Hudi table's folder. It need "
        "not exist. All tables that are written with this connection share it.",
    ),
    "connection_timeout_ms": _number(
        "Connection time-out (ms)",
        "How long a lease request waits for a connection and for each answer; at most 10 seconds.",
        10_000,
    ),
    "heartbeat_interval_ms": _number(
        "Lock heartbeat (ms)",
        "How often the holder of Hudi's lock renews it; less than the metastore's time-out.",
        60_000,
    ),
    **_LOCK_WAIT,
}
_METASTORE_LEASES = {
    "lease_database": _name(
        "Lease database",
        "Database in the names under which writers queue; not that of Hudi's lock. It need not exist.",
        "airflow_occ_leases",
    ),
    "lease_poll_s": _number(
        "Lease poll (s)", "How often a process checks if the leases of its waiters are held.", 1
    ),
    "lock_timeout_s": _optional(
        "Lock time-out (s)",
        "A lease without a heartbeat for this long counts as lost. Default and maximum: the "
        "metastore's own hive.txn.timeout.",
    ),
}
_KERBEROS = {
    "kerberos": _flag(
        "Kerberos",
        "Lease requests present this machine's ticket to the metastore. Hudi's client follows its "
        "driver's hive.metastore.sasl.enabled and hive.metastore.kerberos.principal.",
        default=False,
    ),
    "kerberos_service": _text(
        "Kerberos service", "First part of the metastore's principal.", default="hive"
    ),
}
_STORAGE_LOCK = {
    "lock_expire_min": _number(
        "Lock expiry (min)",
        "Local disk and HDFS only: the lock of a killed writer is taken over after this time, and so is "
        "that of a commit which takes longer.",
        10,
    ),
    "wait_time_ms": _LOCK_WAIT["wait_time_ms"],
    "num_retries": _optional(
        "Lock retries",
        "Further attempts before a writer gives up, 5 seconds apart. Default: 50, and on a local disk "
        "or HDFS twice what outlasts the lock's expiry.",
        at_least=0,
    ),
}
_STORAGE_LEASES = {
    "storage_conn_id": _text(
        "Storage connection",
        "Airflow connection with the credentials for the lease root: of the type aws, "
        "google_cloud_platform or wasb. Default: the credentials of each Airflow process.",
    ),
    "connection_timeout_ms": _number(
        "Connection time-out (ms)",
        "How long a lease request waits for the storage; at most 10 seconds.",
        10_000,
    ),
    "lease_ttl_s": _optional(
        "Lease time to live (s)",
        "A lease expires after this time without a renewal. Default: 180 in a bucket, 60 in a local "
        "folder.",
        at_least=3,
    ),
    "claim_ttl_s": _ZOOKEEPER_LEASES["claim_ttl_s"],
    "lease_poll_s": _optional(
        "Lease poll (s)",
        "How often a process checks if the leases of its waiters are held. Default: 15 in a bucket, 1 "
        "in a local folder.",
    ),
}


_DYNAMODB = {
    "region": _text(
        "Region", "Of both tables. Empty only with another Hudi lock: then that of each process."
    ),
    "storage_conn_id": _text(
        "AWS connection",
        "Airflow connection of the type aws with the credentials for the leases. Default: the "
        "credentials of each Airflow process. Drivers have their own.",
    ),
    "endpoint_url": _text("Endpoint", "URL of a server other than Amazon's."),
    "lease_queue": _text(
        "Lease queue", "Value of the table's partition key under which writers queue.", default="leases"
    ),
    "connection_timeout_ms": _number(
        "Connection time-out (ms)",
        "How long a lease request waits for DynamoDB; at most 10 seconds.",
        10_000,
    ),
    "lease_ttl_s": _number(
        "Lease time to live (s)",
        "A lease expires after this time without a renewal.",
        180,
        at_least=3,
    ),
    "claim_ttl_s": _ZOOKEEPER_LEASES["claim_ttl_s"],
    "lease_poll_s": _number(
        "Lease poll (s)", "How often a process checks if the leases of its waiters are held.", 15
    ),
    "lock_table": _text(
        "Lock table",
        "Table in which Hudi locks, the same for all writers; not that of the leases. Hudi creates it.",
        default="hudi_locks",
    ),
    **_LOCK_WAIT,
}


def zookeeper_lock() -> dict[str, Any]:
    """Return the connection type ``hudi_zookeeper_lock``."""
    return {
        "connection-type": "hudi_zookeeper_lock",
        "hook-class-name": "airflow_occ_provider.hooks.zookeeper_lock.HudiZookeeperLockHook",
        "hook-name": "Hudi lock (ZooKeeper)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "extra"],
            "relabeling": {
                "host": "Hosts",
                "login": "Lease login (digest)",
                "password": "Lease password (digest)",
            },
            "placeholders": {
                "host": "zk1:2181,zk2:2181,zk3:2181",
                "login": "only for the lease root: Hudi's own client has no login",
                "password": "the base path must be accessible without it",
            },
        },
        "conn-fields": {**_ZOOKEEPER_LOCK, **_ZOOKEEPER_LEASES, **_TLS, **other_lock("ZooKeeper")},
    }


def metastore_lock() -> dict[str, Any]:
    """Return the connection type ``hudi_metastore_lock``."""
    return {
        "connection-type": "hudi_metastore_lock",
        "hook-class-name": "airflow_occ_provider.hooks.metastore_lock.HudiMetastoreLockHook",
        "hook-name": "Hudi lock (Hive metastore)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "login", "password", "extra"],
            "relabeling": {"host": "URIs"},
            "placeholders": {"host": "thrift://hms1:9083,thrift://hms2:9083"},
        },
        "conn-fields": {
            **_METASTORE_LOCK,
            **_METASTORE_LEASES,
            **_KERBEROS,
            **other_lock("the metastore"),
        },
    }


def storage_lock() -> dict[str, Any]:
    """Return the connection type ``hudi_storage_lock``."""
    return {
        "connection-type": "hudi_storage_lock",
        "hook-class-name": "airflow_occ_provider.hooks.storage_lock.HudiStorageLockHook",
        "hook-name": "Hudi lock (storage)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "login", "password", "extra"],
            "relabeling": {"host": "Lease root"},
            "placeholders": {"host": "s3://lake/airflow_occ, or a folder of this machine"},
        },
        "conn-fields": {
            **_STORAGE_LEASES,
            **_STORAGE_LOCK,
            **other_lock("the table's storage", "the lease root"),
        },
    }


def dynamodb_lock() -> dict[str, Any]:
    """Return the connection type ``hudi_dynamodb_lock``."""
    return {
        "connection-type": "hudi_dynamodb_lock",
        "hook-class-name": "airflow_occ_provider.hooks.dynamodb_lock.HudiDynamoLockHook",
        "hook-name": "Hudi lock (DynamoDB)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "login", "password", "extra"],
            "relabeling": {"host": "Lease table"},
            "placeholders": {"host": "airflow_occ"},
        },
        "conn-fields": {**_DYNAMODB, **other_lock("DynamoDB", "the lease table")},
    }


def hudi_table() -> dict[str, Any]:
    """Return the connection type ``hudi_table``."""
    return {
        "connection-type": "hudi_table",
        "hook-class-name": "airflow_occ_provider.hooks.hudi_table.HudiTableHook",
        "hook-name": "Hudi table",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "login", "password", "extra"],
            "relabeling": {"host": "Base path"},
            "placeholders": {"host": "s3a://lake/trips"},
        },
        "conn-fields": {
            "storage_conn_id": _text(
                "Storage connection",
                "Airflow connection with the credentials for the table's storage. Default: the "
                "credentials of each Airflow process.",
            )
        },
    }


LOCK_FORMS = (zookeeper_lock, metastore_lock, storage_lock, dynamodb_lock)
"""The functions that return the lock connections of this package."""


def lock_forms() -> Iterator[dict[str, Any]]:
    """Yield the lock connections of this package, and then those of others."""
    for lock_form in LOCK_FORMS:
        yield lock_form()
    for entry_point in entry_points(group=GROUP):
        try:
            form = _form_of(entry_point)
        except Exception as error:  # noqa: BLE001 - a package that is broken takes no other with it
            _log.warning("The lock connection %s is left out: %s", entry_point.value, error)
        else:
            yield form


def _form_of(entry_point: EntryPoint) -> dict[str, Any]:
    form: dict[str, Any] = entry_point.load()()
    texts = {name for name, value in form.items() if value and isinstance(value, str)}
    if missing := {"connection-type", "hook-class-name", "hook-name"} - texts:
        raise ValueError(f"its form has no {' and no '.join(sorted(missing))}")
    return form

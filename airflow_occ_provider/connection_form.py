"""The form of the lock connection in Airflow's UI. Imported at every start of Airflow: keep it light."""

from __future__ import annotations

from typing import Any

_Field = dict[str, Any]
_PATH = "^/.*[^/]$"


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
                "login": "for the lease root alone: Hudi's own client has no login",
                "password": "the base path must be open without it",
            },
        },
        "conn-fields": {**_commit_lock(), **_leases(), **_tls(), **_other_lock()},
    }


def _commit_lock() -> dict[str, _Field]:
    return {
        "base_path": _path(
            "Base path",
            "The node under which Hudi makes its locks; the same for all writers. It must be open to "
            "everybody: Hudi's own ZooKeeper client takes no credentials.",
            "/hudi/locks",
        ),
        "connection_timeout_ms": _number(
            "Connection time-out (ms)", "How long a writer waits for a connection.", 15_000
        ),
        "session_timeout_ms": _number(
            "Session time-out (ms)", "After this long a dead writer's lock is freed.", 60_000
        ),
        "wait_time_ms": _number(
            "Lock wait (ms)", "How long one attempt to get the lock may wait.", 60_000
        ),
        "num_retries": _number(
            "Lock retries",
            "Further attempts before a writer gives up; it pauses 5 seconds between.",
            50,
            at_least=0,
        ),
    }


def _leases() -> dict[str, _Field]:
    return {
        "lease_root": _path(
            "Lease root",
            "The node under which writers stand in line; neither in the base path nor above it.",
            "/airflow_occ/leases",
        ),
        "lease_ttl_s": _number(
            "Lease time to live (s)",
            "After this long without a renewal others take a writer for dead.",
            60,
            at_least=3,
        ),
        "claim_ttl_s": _number(
            "Claim time to live (s)",
            "How long a lease waits for the next process of its task, such as a free worker slot; no "
            "shorter than the lease's.",
            600,
            at_least=3,
        ),
    }


def _tls() -> dict[str, _Field]:
    return {
        "tls": _flag(
            "TLS",
            "Encrypt the connection of the leases. Hudi's own client follows its JVM's "
            "zookeeper.client.secure and zookeeper.ssl.* properties instead.",
            default=False,
        ),
        "tls_ca": _text("TLS authorities", "File of their certificates (PEM); else the system's."),
        "tls_certificate": _text("TLS certificate", "File of the client's own (PEM), if it needs one."),
        "tls_key": _text(
            "TLS key",
            "File of its key (PEM, not encrypted); empty where the certificate's file holds it.",
        ),
        "tls_verify": _flag("TLS verify", "Refuse a server without a valid certificate.", default=True),
    }


def _other_lock() -> dict[str, _Field]:
    return {
        "hudi_lock_options": _text(
            "Other Hudi lock",
            "Options of another lock provider of Hudi, one key=value a line, among them "
            "hoodie.write.lock.provider: used in place of Hudi's ZooKeeper lock. The leases stay in "
            "ZooKeeper. No place for secrets.",
            format="multiline",
        )
    }


def _path(label: str, description: str, default: str) -> _Field:
    return _field(label, description, type="string", default=default, pattern=_PATH)


def _number(label: str, description: str, default: int, *, at_least: int = 1) -> _Field:
    return _field(label, description, type=["integer", "null"], default=default, minimum=at_least)


def _flag(label: str, description: str, *, default: bool) -> _Field:
    return _field(label, description, type=["boolean", "null"], default=default)


def _text(label: str, description: str, **schema: str) -> _Field:
    return _field(label, description, type=["string", "null"], **schema)


def _field(label: str, description: str, **schema: Any) -> _Field:
    return {"label": label, "description": description, "schema": schema}

"""The form of a lock connection as another package adds it. Airflow imports this at every start."""

from __future__ import annotations

from airflow_occ_provider.connection_form import other_lock


def bucket_lock():
    """Return the connection type ``bucket_lock``."""
    return {
        "connection-type": "bucket_lock",
        "hook-class-name": "tests.unit.bucket_lock.BucketLockHook",
        "hook-name": "Hudi lock (bucket)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port", "login", "password", "extra"],
            "relabeling": {"host": "Bucket"},
        },
        "conn-fields": {
            "connection_timeout_ms": _number("Connection time-out (ms)", 15_000, 1),
            "lease_ttl_s": _number("Lease time to live (s)", 60, 3),
            **other_lock("each table's storage", "the bucket"),
        },
    }


def _number(label, default, minimum):
    schema = {"type": ["integer", "null"], "default": default, "minimum": minimum}
    return {"label": label, "schema": schema}

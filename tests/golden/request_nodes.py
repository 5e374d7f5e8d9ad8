"""Nodes of a queue as each release writes them: they outlive the release that wrote them.

The first is of a task that passes under a lease, the second of a run's lease.
"""

from __future__ import annotations

from airflow_occ_provider.leases.rules import Mode, Scope

NAMES = ("5a1a477f~49f0b53c.810422e5~6f2d.9a8b7c6d~1f", "5a1a477f~810422e5~5d1c.01020304~")
TRIPS = (Scope.of("s3a://lake/trips", None),)
WRITES = (
    Scope.of("s3a://lake/trips", ["dt=2026-11-21"]),
    Scope.of("s3a://lake/cities", None, Mode.SHARED),
)

# Release 0.1 at a6a24a2: no version, no site, no incarnation.
FIRST = (
    (
        b'{"format":1,"id":"6f2d","owner":["trips","scheduled__2026-11-21","write"],"label":"",'
        b'"scopes":[["s3a://lake/trips","exclusive",["dt=2026-11-21"]],'
        b'["s3a://lake/cities","shared",null]],"ttl_ms":60000,"epoch":3,"term_ms":600000,"mark":"m1"}'
    ),
    (
        b'{"format":1,"id":"5d1c","owner":["trips","scheduled__2026-11-21"],"label":"lease",'
        b'"scopes":[["s3a://lake/trips","exclusive",null]],"ttl_ms":60000,"epoch":1,"term_ms":60000,'
        b'"mark":"m0"}'
    ),
)
SECOND = (
    (
        b'{"format":1,"version":2,"id":"6f2d",'
        b'"owner":["green","trips","scheduled__2026-11-21","write"],"label":"","site":"green",'
        b'"scopes":[["s3a://lake/trips","exclusive",["dt=2026-11-21"]],'
        b'["s3a://lake/cities","shared",null]],"ttl_ms":60000,"incarnation":2,"epoch":3,'
        b'"term_ms":600000,"mark":"m1"}'
    ),
    (
        b'{"format":1,"version":2,"id":"5d1c","owner":["green","trips","scheduled__2026-11-21"],'
        b'"label":"lease","site":"green","scopes":[["s3a://lake/trips","exclusive",null]],'
        b'"ttl_ms":60000,"incarnation":2,"epoch":1,"term_ms":60000,"mark":"m0"}'
    ),
)

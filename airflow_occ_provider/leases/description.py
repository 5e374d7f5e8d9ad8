"""Pure: the status of a request as text for logs and errors."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_occ_provider.leases.lease import Status
from airflow_occ_provider.leases.rules import Blocker

_MAX_NAMED = 3


def describe_status(status: Status) -> str:
    """Describe a request's status and what it is blocked by, earliest first."""
    if status.held:
        return "The lease is held."
    named = "; ".join(map(describe_blocker, status.blockers[:_MAX_NAMED]))
    more = len(status.blockers) - _MAX_NAMED
    count = f"{len(status.blockers)} earlier request{'s' if len(status.blockers) > 1 else ''}"
    return f"Blocked by {count}: {named}{f'; and {more} more' if more > 0 else ''}."


def describe_blocker(blocker: Blocker) -> str:
    """Describe a blocker: owner, scope, and since when by the lock service's clock."""
    request, since_ms = blocker.queued.request, blocker.queued.since_ms
    if blocker.queued.unknown:
        return (
            f"{request.owner}, which this release cannot read (wait until the other release's writers "
            "end; remove a foreign node with `airflow hudi leases release`)"
        )
    since = datetime.fromtimestamp(since_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{request.owner} ({blocker.theirs.mode}, {blocker.theirs.extent}, since {since})"

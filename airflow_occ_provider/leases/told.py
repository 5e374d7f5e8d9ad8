"""Pure: a place in line, in words for people."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_occ_provider.leases.lease import Status
from airflow_occ_provider.leases.rules import Blocker

_NAMED = 3


def told(status: Status) -> str:
    """Tell for people whom a request waits for, the eldest first."""
    if status.held:
        return "Its turn has come."
    named = "; ".join(map(whom, status.blockers[:_NAMED]))
    more = len(status.blockers) - _NAMED
    return f"{len(status.blockers)} before it: {named}{f', and {more} more' if more > 0 else ''}."


def whom(blocker: Blocker) -> str:
    """Tell for people who is in the way, with what, and since when by the lock service's clock."""
    request, since_ms = blocker.standing.request, blocker.standing.since_ms
    if blocker.standing.unknown:
        return (
            f"{request.owner}, which this release cannot read (let the other release's writers end; a "
            "foreign node is removed by `airflow hudi leases release`)"
        )
    since = datetime.fromtimestamp(since_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{request.owner} ({blocker.theirs.mode}, {blocker.theirs.extent}, since {since})"

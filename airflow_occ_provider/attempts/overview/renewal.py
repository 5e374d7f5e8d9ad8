"""The renewals of requests: they show whether the owner's process lives."""

from __future__ import annotations

from typing import Any

from airflow_occ_provider.leases.rules import QueuedRequest


def describe_renewal(queued: QueuedRequest) -> dict[str, Any]:
    """Return the renewal as JSON values; ``None`` for what is not known."""
    return {
        "renewed_ms": queued.renewed_ms or None,
        "expires_ms": queued.expires_ms or None,
        "claimed": queued.is_claimed,
    }


def renewal(queued: QueuedRequest, now_ms: int) -> tuple[str, ...]:
    """Return the renewal in words; none if the lock service does not tell.

    :param now_ms: epoch milliseconds; a clock that differs from the lock service's shifts the spans.
    """
    if not queued.renewed_ms:
        return ()
    words = [f"renewed {_span(now_ms - queued.renewed_ms)} ago"]
    if queued.expires_ms:
        rest_ms = queued.expires_ms - now_ms
        words.append(f"expires in {_span(rest_ms)}" if rest_ms > 0 else f"expired {_span(-rest_ms)} ago")
    if queued.is_claimed:
        words.append("kept for its next process")
    return tuple(words)


def _span(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"

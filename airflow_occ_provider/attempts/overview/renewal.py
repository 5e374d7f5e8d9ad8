"""The renewals of requests: they show whether the owner's process lives."""

from __future__ import annotations

from typing import Any

from airflow_occ_provider.leases.rules import QueuedRequest
from airflow_occ_provider.spelling import spell_expiry, spell_span


def describe_renewal(queued: QueuedRequest, now_ms: int) -> dict[str, Any]:
    """Return the renewal as JSON values; ``None`` for what is not known.

    :param now_ms: epoch milliseconds.
    """
    return {
        "renewed_ms": queued.renewed_ms or None,
        "expires_ms": queued.expires_ms or None,
        "claimed": queued.is_claimed,
        "renewal": list(renewal(queued, now_ms)),
    }


def renewal(queued: QueuedRequest, now_ms: int) -> tuple[str, ...]:
    """Return the renewal in words; none if the lock service does not tell.

    :param now_ms: epoch milliseconds; a clock that differs from the lock service's shifts the spans.
    """
    if not queued.renewed_ms:
        return ()
    words = [f"renewed {spell_span(now_ms - queued.renewed_ms)} ago"]
    if queued.expires_ms:
        words.append(spell_expiry(queued.expires_ms - now_ms))
    if queued.is_claimed:
        words.append("kept for its next process")
    return tuple(words)

"""Pure: the short form of a table or a run in the names of requests."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """Return what stands for a text in a name; two texts may have the same."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]

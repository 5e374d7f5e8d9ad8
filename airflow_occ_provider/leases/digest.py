"""Pure: the short form of a table or run in request names."""

from __future__ import annotations

import hashlib


def digest(text: str) -> str:
    """Return a short hash of a text; two texts may have the same."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]

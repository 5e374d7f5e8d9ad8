"""Talks to the lock services. The only rooms that may import their clients."""

from __future__ import annotations

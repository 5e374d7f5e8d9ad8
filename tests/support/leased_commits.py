"""Commits of a table, for the audit of the lease under which they came."""

from __future__ import annotations

from types import SimpleNamespace


def commit(*partitions):
    return SimpleNamespace(
        instant=SimpleNamespace(time="T"),
        metadata=SimpleNamespace(partitions=partitions),
    )

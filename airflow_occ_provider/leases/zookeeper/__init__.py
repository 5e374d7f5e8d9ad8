"""ZooKeeper as lock service: the only room that imports kazoo."""

from __future__ import annotations

"""ZooKeeper as lock service; kazoo is imported nowhere else."""

from __future__ import annotations

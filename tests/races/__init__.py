"""Concurrent writers under leases, on real Hudi and ZooKeeper, beside controls without them."""

from __future__ import annotations

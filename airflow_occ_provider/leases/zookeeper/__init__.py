"""Leases in ZooKeeper; kazoo is imported only here."""

from __future__ import annotations

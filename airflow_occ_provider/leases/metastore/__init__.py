"""Leases in a Hive metastore: its lock calls, and the line over them."""

from __future__ import annotations

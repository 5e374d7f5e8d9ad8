"""Leases in a Hive metastore: its lock calls, and the queue over them."""

from __future__ import annotations

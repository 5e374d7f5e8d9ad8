"""A concurrent writer: its options, its heartbeat, and what it leaves if it dies."""

from __future__ import annotations

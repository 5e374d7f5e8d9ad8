"""Predictions compared with real Hudi's decisions: seeded pairs of concurrent writers in one Spark."""

from __future__ import annotations

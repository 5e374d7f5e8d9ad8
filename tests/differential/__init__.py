"""Real Hudi decides, we predict: seeded pairs of concurrent writers in one Spark."""

from __future__ import annotations

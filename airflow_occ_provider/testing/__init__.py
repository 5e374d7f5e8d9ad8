"""Test suites for the authors of backends, as pytest plugins."""

from __future__ import annotations

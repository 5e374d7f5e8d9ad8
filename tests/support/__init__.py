"""Modules that several tests and rigs use."""

from __future__ import annotations

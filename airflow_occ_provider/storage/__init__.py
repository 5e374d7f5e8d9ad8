"""Reads a table's metadata through fsspec into the pure values of `hudi`."""

from __future__ import annotations

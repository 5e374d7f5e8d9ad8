"""Reads a table's metadata folder through fsspec into the pure values of `hudi`."""

from __future__ import annotations

"""The formats of a table's metadata files, by table version and layout."""

from __future__ import annotations

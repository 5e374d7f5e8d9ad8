"""What the files of a table's metadata folder hold, for each table version and layout."""

from __future__ import annotations

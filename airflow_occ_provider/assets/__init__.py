"""Assets of tables, and what their consumers have read."""

from __future__ import annotations

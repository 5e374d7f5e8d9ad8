"""File groups: the unit in which Hudi writes and detects conflicts."""

from __future__ import annotations

from typing import TypeAlias

FileGroupId: TypeAlias = tuple[str, str]
"""(partition path, file id); the partition path of an unpartitioned table is empty."""

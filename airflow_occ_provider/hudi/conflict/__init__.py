"""Whether Hudi will refuse a commit: the rules of its conflict resolution, by release."""

from __future__ import annotations

"""The rules by which Hudi refuses a commit, by release."""

from __future__ import annotations

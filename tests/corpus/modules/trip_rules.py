"""A module that ``py_files.py`` gets by ``--py-files``."""

from __future__ import annotations


def part_of(key):
    return f"p{int(key[1:]) % 3}"

"""What ``py_files.py`` imports, in the driver and in Python workers."""

from __future__ import annotations


def part_of(key):
    return f"p{int(key[1:]) % 3}"

"""A storage that does not answer for a while."""

from __future__ import annotations


def break_down(folder):
    """Let each listing of the timeline fail."""
    (folder / "timeline").rename(folder / "real")
    (folder / "timeline").touch()


def repair(folder):
    (folder / "timeline").unlink()
    (folder / "real").rename(folder / "timeline")

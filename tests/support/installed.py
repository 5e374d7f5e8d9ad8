"""Packages that a test installs: a folder on the path with their metadata."""

from __future__ import annotations

from pathlib import Path


def install(site: Path, name: str, group: str, entry_point: str) -> None:
    """Write the metadata of a package with one entry point, as an installer does.

    :param site: a folder on ``sys.path``.
    :param group: of the entry point.
    :param entry_point: its name and what it names, such as ``spool = spool_place``.
    """
    metadata = site / f"{name}-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry_point}\n")

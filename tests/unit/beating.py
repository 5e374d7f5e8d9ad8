"""A table whose timeline and heartbeats a test lays down itself, as Hudi 1.2.0 lays them out."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.table_properties import table_properties


def instant(number: int) -> str:
    return f"202611210000{number:05d}"


class BeatingTable:
    """A table without data: ``begin``, ``beat``, ``commit`` and ``roll_back`` are a writer's steps."""

    def __init__(self, path: Path, layout: int = 2) -> None:
        self.path = path
        self._timeline = path / ".hoodie" / ("timeline" if layout == 2 else "")
        self._heartbeats = path / ".hoodie" / ".heartbeat"
        self._timeline.mkdir(parents=True)
        self.write_properties(layout)

    def write_properties(self, layout: int) -> None:
        text = table_properties(version=9 if layout == 2 else 6, layout=layout)
        (self.path / ".hoodie" / "hoodie.properties").write_text(text)

    def move_timeline(self) -> None:
        """Move the instants as an upgrade from layout 1 does, before it writes the new version."""
        old, self._timeline = self._timeline, self.path / ".hoodie" / "timeline"
        self._timeline.mkdir()
        for path in old.glob("[0-9]*"):
            path.rename(self._timeline / path.name)

    def begin(self, number: int, at_ms: int) -> str:
        time = instant(number)
        self.beat(time, at_ms)
        self.request(time)
        return time

    def request(self, time: str) -> None:
        (self._timeline / f"{time}.commit.requested").touch()
        (self._timeline / f"{time}.inflight").touch()

    def beat(self, time: str, at_ms: int) -> None:
        self._heartbeats.mkdir(exist_ok=True)
        path = self._heartbeats / time
        path.touch()
        os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def commit(self, time: str) -> None:
        (self._timeline / f"{time}_{int(time) + 1}.commit").touch()

    def stop_beating(self, time: str) -> None:
        (self._heartbeats / time).unlink()

    def vanish(self, time: str) -> None:
        for path in self._timeline.glob(f"{time}*"):
            path.unlink()

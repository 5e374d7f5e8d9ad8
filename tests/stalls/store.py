"""A store that answers no call while it stalls: for the driver through Hadoop, for us by fsspec."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from tests.differential.session import compile_scala

_SOURCE = Path(__file__).with_name("stalling.scala")


class StallingStore:
    """Local files behind one switch.

    :param stall: the file that stalls the store while it is there.
    """

    def __init__(self, stall: Path) -> None:
        self.stall = stall
        self.ours = StallingFileSystem(stall=stall, skip_instance_cache=True)

    def conf(self, hudi: str) -> dict[str, str]:
        """Return Spark's settings for a driver on the store."""
        return {
            "spark.driver.extraClassPath": str(compile_scala(_SOURCE, hudi)),
            "spark.hadoop.fs.file.impl": "stalls.StallingFileSystem",
            "spark.hadoop.stalls.file": str(self.stall),
        }

    def answer_us(self) -> None:
        """Answer us again, while the driver still waits."""
        self.ours.answers = True

    @contextmanager
    def stalled(self) -> Iterator[None]:
        self.stall.touch()
        try:
            yield
        finally:
            self.stall.unlink()


class StallingFileSystem(LocalFileSystem):
    protocol = "stalling"

    def __init__(self, *, stall: Path, **options: Any) -> None:
        super().__init__(**options)
        self._stall = stall
        self.answers = False

    def _answered(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        while self._stall.exists() and not self.answers:
            time.sleep(0.02)
        return call(*arguments, **options)

    def ls(self, *arguments: Any, **options: Any) -> Any:
        return self._answered(super().ls, *arguments, **options)

    def cat_file(self, *arguments: Any, **options: Any) -> Any:
        return self._answered(super().cat_file, *arguments, **options)

    def exists(self, *arguments: Any, **options: Any) -> Any:
        return self._answered(super().exists, *arguments, **options)

    def rm_file(self, *arguments: Any, **options: Any) -> Any:
        return self._answered(super().rm_file, *arguments, **options)

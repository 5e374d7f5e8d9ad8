"""A server that Go builds once, from a module of its proxy."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.process import EmbeddedError
from tests.services.installer import run_installer

_BUILD_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program in the cache, or still to be built.

    :param module: the path of its main package; its last part is the program's name.
    :param version: the release.
    """

    module: str
    version: str

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.module.rpartition("/")[2]

    def is_available(self) -> bool:
        """Whether it is built, or can be: Go is on the PATH."""
        return self._path.exists() or shutil.which("go") is not None

    def build(self) -> Path:
        """Return the program, built at the first time.

        :raises EmbeddedError: if there is no Go, or the build fails.
        """
        if self._path.exists():
            return self._path
        if shutil.which("go") is None:
            raise EmbeddedError(
                f"{self.name} is built by Go, which is not on the PATH. Install Go 1.24 or later"
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._path.parent, prefix="build-") as scratch:
            self._install(scratch)
            Path(scratch, self.name).replace(self._path)
        return self._path

    @property
    def _path(self) -> Path:
        return cache_folder() / f"{self.name}-{self.version}"

    def _install(self, folder: str) -> None:
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{self.module}@v{self.version}"]
        own = {"GOBIN": folder, "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
        run_installer(self.name, command, _BUILD_TIMEOUT_S, own)

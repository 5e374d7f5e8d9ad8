"""Debian's packages, unpacked into the cache and not installed."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.process import EmbeddedError

_TIMEOUT_S = 900


def unpacked(name: str, *packages: str) -> Path:
    """Return the folder with packages, and with those that they need and this machine does not have.

    :param name: of the folder in the cache.
    """
    root = cache_folder() / name
    if root.exists():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="unpack-") as scratch:
        simulated = _run(
            scratch, "apt-get", "install", "--simulate", "--no-install-recommends", *packages
        )
        names = [line.split()[1] for line in simulated.splitlines() if line.startswith("Inst ")]
        _run(scratch, "apt-get", "download", "-qq", *names)
        for package in Path(scratch).glob("*.deb"):
            _run(scratch, "dpkg-deb", "-x", str(package), "root")
        Path(scratch, "root").rename(root)
    return root


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    if done.returncode:
        raise EmbeddedError(f"{' '.join(command[:2])}: {done.stderr[-1000:]}")
    return done.stdout

"""Runs one of the test programs in its own process, as its make target does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_TIMEOUT_S = 1750


def run_module(
    name: str, *arguments: object, timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m tests.NAME``, and return its exit code and output."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.{name}", *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )

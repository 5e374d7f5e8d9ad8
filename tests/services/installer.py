"""A program that another one installs, once, into the cache of downloads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from airflow_occ_provider.embedded.process import EmbeddedError


def run_installer(
    name: str, command: Sequence[str], timeout_s: float, variables: Mapping[str, str] | None = None
) -> None:
    """Run the command that installs a program.

    :param name: of the program, for errors.
    :param timeout_s: seconds after which the command is ended.
    :param variables: added to the environment of this process.
    :raises EmbeddedError: if the command fails or takes longer; with the end of what it said.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise EmbeddedError(f"{name} was not installed in {timeout_s} s") from error
    if done.returncode:
        raise EmbeddedError(f"{name} could not be installed:\n{done.stderr[-2000:]}")

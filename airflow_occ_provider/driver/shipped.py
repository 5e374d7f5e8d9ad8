"""The runner as the one file that a driver needs.

A driver has neither this package nor, often, a Python that could import it. So the runner is submitted
together with the modules that it imports, under a name of their own: the job may import another version
of this package.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

PACKAGE = "airflow_occ_provider"
SHIPPED = "airflow_occ_shipped"
MODULES = (
    "driver.contract",
    "in_driver.folder",
    "in_driver.report",
    "in_driver.granted",
    "in_driver.standby",
    "in_driver.run_job",
)
"""Each one after those that it imports; the last is run."""

_PROGRAM = '''"""Runs a job whose commits one Airflow task run answers for; made of several modules."""

from __future__ import annotations

import sys
import types

PACKAGE = {package!r}
SOURCES = {sources!r}


def load(name):
    """Make a module known by its name, and to its package, before it is run: dataclasses need that."""
    module = types.ModuleType(name)
    parent, _, last = name.rpartition(".")
    sys.modules[name] = module
    if parent:
        setattr(sys.modules[parent], last, module)
    if name in SOURCES:
        exec(compile(SOURCES[name], f"<{{name}}>", "exec", dont_inherit=True), vars(module))
    else:
        module.__path__ = []
    return module


for package in (PACKAGE, *sorted({{name.rpartition(".")[0] for name in SOURCES}})):
    load(package)
modules = [load(name) for name in SOURCES]

if __name__ == "__main__":
    sys.exit(modules[-1].start(sys.argv[1:]))
'''


@cache
def runner_source() -> bytes:
    """Return the program that is submitted to a driver, for Python 3.7 and later.

    It is started as ``in_driver/run_job.py`` is.
    """
    root = Path(__file__).parents[1]
    sources = {
        f"{SHIPPED}.{name}": _renamed(
            (root / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
        )
        for name in MODULES
    }
    return _PROGRAM.format(package=SHIPPED, sources=sources).encode()


def _renamed(source: str) -> str:
    """Return a source that imports the shipped modules instead of the package's."""
    for folder in ("driver", "in_driver"):
        source = source.replace(f"from {PACKAGE}.{folder}", f"from {SHIPPED}.{folder}")
    return source

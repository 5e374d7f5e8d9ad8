"""A folder with the packages that a program without Airflow installs, and no others."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "without-airflow.md").read_text()
PROGRAM = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
INSTALLED = re.search(r"^pip install (?!-)(.*)$", PAGE, re.MULTILINE)[1].split()


def link_packages(folder: Path) -> None:
    """Link the package, and what the page installs beside it, into a new folder."""
    folder.mkdir()
    for name in ("airflow_occ_provider", *INSTALLED):
        (folder / name).symlink_to(Path(find_spec(name).origin).parent)

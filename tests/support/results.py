"""Results of rigs on a release of Hudi, from which ``docs/reference/versions.md`` has its table.

A rig adds a line of JSON to the file that the variable ``RESULTS`` names; without it, it adds nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "golden" / "versions.jsonl"


@dataclass(frozen=True)
class Result:
    """What one run of a rig came to.

    :param rig: its name, with what was chosen of it, such as ``races keys``.
    :param hudi: the release of the writers; of several, joined by ``+``.
    :param runs: its unit, such as faults or races.
    :param wrong: how many of these were not as promised.
    :param date: of the run, by UTC.
    :param counts: what else was counted.
    """

    rig: str
    hudi: str
    seed: int
    runs: int
    wrong: int
    counts: dict[str, int] = field(default_factory=dict)
    date: str = ""


def add_result(result: Result) -> None:
    """Add a result, with today's date, to the file that ``RESULTS`` names."""
    if path := os.environ.get("RESULTS"):
        content = asdict(result) | {"date": datetime.now(UTC).date().isoformat()}
        with Path(path).open("a") as file:
            file.write(json.dumps(content) + "\n")


def results(path: Path = RESULTS) -> Iterable[Result]:
    """Yield the results of a file, the oldest first."""
    for line in path.read_text().splitlines():
        yield Result(**json.loads(line))

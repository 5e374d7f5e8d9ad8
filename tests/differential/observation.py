"""What the rig observed of one pair."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.differential.pairs import Pair, Template, Write

Result = Literal["committed", "planned", "conflict", "early", "rejected", "error"]
FILE_NAME = "observation.json"


@dataclass(frozen=True, slots=True)
class Fate:
    """The end of one writer.

    :param result: one word; ``planned`` is a table service that was only scheduled, ``error`` is
        any other failure.
    :param evidence: the chain of exceptions, one per line; empty if it committed.
    :param instants: its instants in the order of their requests, as ``time.action``.
    """

    result: Result
    evidence: str
    instants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """One pair, the table's metadata as copied before either commit check, and what Hudi did.

    :param snapshot: folder in place of the table's base path; only ``.hoodie`` is in it.
    :param snapshot_at: where our writer was stopped: ``requested``, ``inflight`` or ``commit``.
    :param snapshot_ms: when it was taken, epoch milliseconds.
    :param table: the base path that the table had.
    :param instant: our instant's requested time.
    :param ours: our writer's fate.
    :param rival: its rival's fate.
    :param seconds: how long the pair took.
    """

    pair: Pair
    snapshot: Path
    snapshot_at: str
    snapshot_ms: int
    table: str
    instant: str
    ours: Fate
    rival: Fate
    seconds: float

    def save(self) -> None:
        """Write it beside its snapshot."""
        content = dataclasses.asdict(self)
        content["snapshot"] = self.snapshot.name
        (self.snapshot.parent / FILE_NAME).write_text(json.dumps(content, indent=1))


def load(path: Path) -> Observation:
    """Read what ``save`` wrote.

    :param path: the observation's file.
    """
    content: dict[str, Any] = json.loads(path.read_text())
    pair = content.pop("pair")
    for name in ("ours", "rival"):
        content[name] = Fate(**{**content[name], "instants": tuple(content[name]["instants"])})
        write = pair[name]
        groups = tuple((partition, batch) for partition, batch in write["groups"])
        pair[name] = Write(write["operation"], groups, tuple(write["inserts"]))
    pair["template"] = Template(**pair["template"])
    content["snapshot"] = path.parent / content["snapshot"]
    return Observation(pair=Pair(**pair), **content)

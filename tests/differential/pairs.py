"""Pairs of concurrent writers, and how a seed draws one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tests.differential.predictable import is_predictable

PARTITIONS = ("p0", "p1", "p2")
BATCHES = ("b0", "b1")
NEW_PARTITION = "n0"
SERVICES = ("clustering", "clustering_plan", "compaction", "compaction_plan")
PLANS = ("clustering_plan", "compaction_plan")

Window = Literal["before_request", "before_comparison", "before_inflight", "before_commit"]
WINDOWS: tuple[Window, ...] = (
    "before_request",
    "before_comparison",
    "before_inflight",
    "before_commit",
)
Elder = Literal["no", "requested", "commit"]
Early = Literal["off", "markers", "commits"]


@dataclass(frozen=True, slots=True)
class Template:
    """A table that pairs start from.

    :param kind: ``COPY_ON_WRITE`` or ``MERGE_ON_READ``.
    :param bucket: whether it has a simple bucket index.
    :param history: ``plain``, ``clustered``, ``compacted`` or ``replaced``.
    :param metadata_table: whether Hudi's metadata table is on.
    :param version: table version to write; ``None`` for the release's own.
    """

    kind: str
    bucket: bool
    history: str
    metadata_table: bool
    version: int | None


@dataclass(frozen=True, slots=True)
class Write:
    """One writer's work.

    :param operation: Hudi's name of the write operation, or one of ``SERVICES``.
    :param groups: (partition, batch) whose existing keys it writes.
    :param inserts: partitions into which it writes new keys.
    """

    operation: str
    groups: tuple[tuple[str, str], ...]
    inserts: tuple[str, ...]

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it names."""
        return tuple(sorted({partition for partition, _ in self.groups} | set(self.inserts)))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two concurrent writers of one table; the fate of ``ours`` is predicted.

    :param window: the part of our writer's course in which the rival completes.
    :param elder: where the rival is stopped while ours is requested; ``no`` if it starts in the window.
    :param small_files: whether inserts are routed to small files.
    :param early: early conflict detection: by ``markers``, or by completed ``commits`` too.
    """

    seed: int
    index: int
    hudi: str
    template: Template
    index_type: str
    strategy: str
    window: Window
    elder: Elder
    small_files: bool
    markers: str
    early: Early
    ours: Write
    rival: Write


def draw(seed: int, index: int, hudi: str) -> Pair:
    """Return the pair of this seed and index, always the same one.

    :param hudi: the release; not all of them can do everything.
    """
    return _attempts(seed, index, hudi)[-1]


def passed_over(seed: int, index: int, hudi: str) -> int:
    """Return how many unpredictable pairs were drawn before it and passed over."""
    return len(_attempts(seed, index, hudi)) - 1


def _attempts(seed: int, index: int, hudi: str) -> list[Pair]:
    dice = random.Random(f"{seed}/{index}")
    drawn = [_draw(dice, seed, index, hudi)]
    while not is_predictable(drawn[-1]) and dice.random() > _UNPREDICTABLE:
        drawn.append(_draw(dice, seed, index, hudi))
    return drawn


def _draw(dice: random.Random, seed: int, index: int, hudi: str) -> Pair:
    template = _template(dice, hudi)
    window = dice.choices(WINDOWS, (10, 20, 35, 35))[0]
    strategy = _strategy(dice, bucket=template.bucket)
    ours, rival = _operations(dice, hudi, template, strategy, window)
    one, other = _scopes(dice)
    early = dice.choices(_EARLY, (86, 7, 7))[0]
    if _breaks_rivals(strategy, ours, window):
        early = "off"
    return Pair(
        seed=seed,
        index=index,
        hudi=hudi,
        template=template,
        index_type="BUCKET" if template.bucket else _weighted(dice, _INDEXES),
        strategy=strategy,
        window=window,
        elder=_elder(dice, window, strategy, ours, early),
        small_files=dice.random() < 0.4,
        markers="DIRECT" if early != "off" or dice.random() < 0.92 else "TIMELINE_SERVER_BASED",
        early=early,
        ours=_write(dice, ours, one),
        rival=_write(dice, rival, other),
    )


# The share of unpredictable pairs that is kept: their verdict must be undecided.
_UNPREDICTABLE = 0.01
_EARLY: tuple[Early, ...] = ("off", "markers", "commits")
_INDEXES = {"SIMPLE": 55, "BLOOM": 38, "GLOBAL_SIMPLE": 7}
_OURS = {
    "upsert": 40,
    "delete": 14,
    "insert": 20,
    "bulk_insert": 6,
    "insert_overwrite": 12,
    "insert_overwrite_table": 8,
}
_RIVALS = {
    **_OURS,
    "delete_partition": 8,
    "clustering": 10,
    "clustering_plan": 5,
    "compaction": 6,
    "compaction_plan": 4,
}


def _weighted(dice: random.Random, weights: dict[str, int]) -> str:
    return dice.choices(list(weights), list(weights.values()))[0]


def _template(dice: random.Random, hudi: str) -> Template:
    kind = dice.choice(("COPY_ON_WRITE", "MERGE_ON_READ"))
    bucket = dice.random() < 0.25
    history = dice.choice(("plain", "plain", "replaced", "serviced"))
    if history == "serviced":
        history = "compacted" if kind == "MERGE_ON_READ" else "plain" if bucket else "clustered"
    metadata_table = dice.random() < 0.1
    return Template(kind, bucket, history, metadata_table, _table_version(dice, hudi))


def _table_version(dice: random.Random, hudi: str) -> int | None:
    if hudi.startswith("0."):
        return None
    return dice.choices((None, 6, 8), (84, 9, 7))[0]


def _operations(
    dice: random.Random, hudi: str, template: Template, strategy: str, window: Window
) -> tuple[str, str]:
    rivals = dict(_RIVALS)
    if template.kind == "COPY_ON_WRITE":
        del rivals["compaction"], rivals["compaction_plan"]
    if template.bucket:
        del rivals["clustering"]  # a simple bucket layout refuses to run one
        del rivals["bulk_insert"]  # its second file of a bucket breaks every later upsert
    if template.history == "clustered" and hudi.startswith("0."):
        del rivals["delete"]  # after a clustering it leaves a schema of nulls, which no upsert passes
    ours = dict(_OURS)
    # With the other strategies a table service checks nothing when it commits; and what was
    # overwritten before leaves nothing to plan.
    if strategy == "prefer_writer" and not template.bucket and window != "before_request":
        ours["clustering"] = 15
    operation = _weighted(dice, ours)
    if operation == "clustering":  # a pending one refuses upserts, and leaves nothing to other services
        for service in ("delete_partition", "clustering", "clustering_plan"):
            rivals.pop(service, None)
    return operation, _weighted(dice, rivals)


def _elder(dice: random.Random, window: Window, strategy: str, ours: str, early: Early) -> Elder:
    """Draw where the rival is stopped while ours is requested.

    Not drawn before the commit lock: with early detection a later rival, which would end without
    a commit at our markers; with the bucket strategy an earlier one against our pending overwrite.
    """
    if window == "before_request":
        return "no"
    if window == "before_commit":
        if early != "off":
            return dice.choice(("requested", "commit", "commit"))
        if _breaks_rivals(strategy, ours, window):
            return "no"
    return dice.choice(("no", "no", "requested", "commit"))


def _breaks_rivals(strategy: str, ours: str, window: Window) -> bool:
    """Whether an earlier rival breaks on the empty file ids of our pending overwrite.

    It ends by a StringIndexOutOfBoundsException (issue 11516 of Hudi), so that it is no rival.
    """
    return strategy == "bucket" and ours.startswith("insert_overwrite") and window == "before_commit"


def _strategy(dice: random.Random, *, bucket: bool) -> str:
    if bucket:
        return dice.choices(("bucket", "simple", "prefer_writer"), (70, 15, 15))[0]
    return dice.choices(("simple", "prefer_writer"), (75, 25))[0]


_Scope = tuple[str, str]


def _scopes(dice: random.Random) -> tuple[_Scope, _Scope]:
    """Draw where the two write: the same file group, its partition, another one, a new one."""
    first, second = dice.sample(PARTITIONS, 2)
    batch, other = dice.sample(BATCHES, 2)
    relation = dice.choices(("same", "partition", "elsewhere", "new"), (55, 17, 20, 8))[0]
    return {
        "same": ((first, batch), (first, batch)),
        "partition": ((first, batch), (first, other)),
        "elsewhere": ((first, batch), (second, batch)),
        "new": ((NEW_PARTITION, batch), (NEW_PARTITION, batch)),
    }[relation]


def _write(dice: random.Random, operation: str, scope: _Scope) -> Write:
    partition, _ = scope
    changes = operation in ("upsert", "delete")
    groups = [scope] if changes and partition != NEW_PARTITION else []
    if changes and dice.random() < 0.25:
        groups.append((dice.choice(PARTITIONS), dice.choice(BATCHES)))
    inserts = [partition] if not groups or (operation == "upsert" and dice.random() < 0.3) else []
    return Write(operation, tuple(sorted(set(groups))), tuple(inserts))

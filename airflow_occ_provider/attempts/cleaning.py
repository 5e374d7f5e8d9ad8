"""A lazy clean of a table: what it should remove, and its result."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.attempts.audit import Loss, audit_table
from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.residue import Kind, Residue
from airflow_occ_provider.storage.residue import residues
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import Observation, WriterWatch

_COLLISION = re.compile(r"\d{17}(?:_\d{17})?\.(?:clean|rollback)\b")


@dataclass(frozen=True, slots=True)
class Cleaning:
    """The result of a lazy clean, real or foreseen, by the table.

    :param dead: requested times of the pending writes that Hudi counts as dead before it.
    :param rolled_back: requested times of those that were pending before and that a rollback names now.
    :param residues: what still exists, and what no procedure of Hudi removes.
    :param cleaned_files: how many files the cleans that completed meanwhile deleted; ``None`` if none
        completed.
    :param losses: completed writes with missing files that no clean accounts for.
    """

    dead: tuple[str, ...]
    rolled_back: tuple[str, ...] = ()
    residues: tuple[Residue, ...] = ()
    cleaned_files: int | None = None
    losses: tuple[Loss, ...] = ()

    def to_json(self, *, dry_run: bool) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "dead": list(self.dead),
            "rolled_back": list(self.rolled_back),
            "left": [residue.to_json() for residue in self.residues],
            "cleaned_files": self.cleaned_files,
            "dry_run": dry_run,
        }


def foresee(table: HudiTable, rule: HeartbeatRule) -> tuple[Cleaning, Observation]:
    """Return what a lazy clean would find now, and the writers of the table."""
    observation = WriterWatch(table, rule).observe()
    return Cleaning(dead_writes(observation), residues=residues(table, rule)), observation


def verify(table: HudiTable, rule: HeartbeatRule, before: Observation) -> Cleaning:
    """Return the result of a lazy clean that has ended."""
    after = WriterWatch(table, rule).observe()
    dead = dead_writes(before)
    fates = {time: after.writer(time).fate for time in before.pending}
    rolled_back = tuple(time for time, fate in fates.items() if fate is Fate.ROLLED_BACK)
    remains = (*_writes_left(after, dead), *residues(table, rule, given_up=rolled_back))
    old_files = {instant.file_name for instant in before.snapshot.timeline}
    cleans = [
        after.snapshot.reader.deleted_names(instant)
        for instant in after.snapshot.timeline
        if instant.action == "clean" and instant.completed and instant.file_name not in old_files
    ]
    return Cleaning(
        dead,
        rolled_back,
        tuple(sorted(remains, key=lambda residue: (residue.instant, residue.path))),
        sum(map(len, cleans)) if cleans else None,
        audit_table(table, after.snapshot),
    )


def dead_writes(observation: Observation) -> tuple[str, ...]:
    """Return the requested times of the writes that a lazy clean would roll back."""
    return tuple(time for time, writer in observation.pending.items() if writer.fate is Fate.DEAD)


def has_collided(lines: Iterable[str]) -> bool:
    """Whether a clean failed because it collided with another one.

    Both create the same files of a clean or a rollback, and the second one fails (Hudi 1.2.0).
    """
    return any(_COLLISION.search(line) for line in lines)


def describe_writer(writer: Writer) -> str:
    """Return the state of a pending write as a sentence."""
    what = f"{writer.action} {writer.instant} is {writer.fate}"
    if writer.margin_ms is None:
        return f"{what}: it has no heartbeat, nor has a writer with single-writer settings"
    if writer.margin_ms < 0:
        return f"{what}: its heartbeat expired {-writer.margin_ms / 1000:.1f} s ago"
    return f"{what}: its heartbeat expires in {writer.margin_ms / 1000:.1f} s, unless it beats again"


def _writes_left(after: Observation, dead: Collection[str]) -> list[Residue]:
    remains = []
    for time in dead:
        writer = after.writer(time)
        if writer.fate is Fate.GONE:
            proof = f"instant {time} has left the timeline, and no rollback there names it"
            remains.append(
                Residue(Kind.WRITE, time, after.snapshot.config.timeline_folder, proof, _ASK_HUDI)
            )
        elif not writer.fate.over:
            remains.append(pending_residue(after, writer))
    return remains


def pending_residue(observation: Observation, writer: Writer) -> Residue:
    """Return a pending write as a residue of the table."""
    instant = observation.snapshot.timeline.find(writer.instant)
    path = f"{observation.snapshot.config.timeline_folder}/{instant.file_name if instant else ''}"
    remedy = _WAIT if writer.fate.beating else _CLEAN
    return Residue(Kind.WRITE, writer.instant, path, describe_writer(writer), remedy)


_WAIT = "nothing while it lives; once it is dead, HudiCleanOperator"
_CLEAN = (
    "HudiCleanOperator, or any protected writer's next clean; in Spark SQL, CALL run_clean with "
    "OPTIMISTIC_CONCURRENCY_CONTROL, the writers' lock and LAZY set for the session"
)
_ASK_HUDI = "look in airflow hudi timeline --archived what became of it"

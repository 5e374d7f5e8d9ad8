"""Which pending writes can still commit, and how many of them must lose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Verdict
from airflow_occ_provider.hudi.format.file_group import FileGroupId

_DEAD_AFTER_MS = 6 * 3_600_000  # of a write without a heartbeat; an expired one is dead at once


class Outlook(StrEnum):
    """What a pending write can still become."""

    DEAD = "dead"
    """No process continues it: it commits nothing, and no write loses to it."""
    LOSES = "loses"
    """Hudi refuses its commit, whatever the other pending writes do."""
    CONTESTED = "contested"
    """It commits only if it does so before the other pending writes of its contest."""
    OPEN = "open"
    """Nothing certain keeps it from committing."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A pending write with its outlook.

    :param verdict: without dead rivals; a dead write has none.
    :param contest: the requested times of the writes of which at most one commits, itself among them;
        empty unless it is contested.
    """

    write: ConcurrentOperation
    outlook: Outlook
    verdict: Verdict
    contest: frozenset[str] = frozenset()


def prospects(judged: Iterable[tuple[ConcurrentOperation, Verdict]], now_ms: int) -> list[Prospect]:
    """Return the prospects of all pending writes, in the same order.

    :param judged: each pending write with the verdict on it.
    """
    all_prospects = [_prospect(write, verdict, now_ms) for write, verdict in judged]
    contests = _contests(
        [prospect for prospect in all_prospects if prospect.outlook is Outlook.CONTESTED]
    )
    return [
        replace(prospect, contest=contests.get(prospect.write.instant.time, frozenset()))
        for prospect in all_prospects
    ]


def must_lose(judged: Sequence[Prospect]) -> int:
    """Return how many of the living writes Hudi refuses at least."""
    lost = sum(prospect.outlook is Outlook.LOSES for prospect in judged)
    return lost + sum(
        len(contest) - 1 for contest in {prospect.contest for prospect in judged if prospect.contest}
    )


def is_dead(write: ConcurrentOperation, now_ms: int) -> bool:
    """Whether no process continues a pending write.

    Without a heartbeat it may be a single writer that commits without a check, if its files are young.
    """
    if write.live or write.instant.completed:
        return False
    reached_ms = max(write.requested_ms or 0, write.inflight_ms or 0)
    return write.has_heartbeat or now_ms - reached_ms >= _DEAD_AFTER_MS


def _prospect(write: ConcurrentOperation, verdict: Verdict, now_ms: int) -> Prospect:
    if is_dead(write, now_ms):
        nothing = Verdict(Certainty.NONE, rolled_back_by=verdict.rolled_back_by)
        return Prospect(write, Outlook.DEAD, nothing)
    among = verdict.among(lambda rival: not is_dead(rival, now_ms))
    rivals = [conflict.rival for conflict in among.conflicts if conflict.certainty is Certainty.CERTAIN]
    if among.rolled_back_by or any(
        rival.instant.completed or rival.is_table_service for rival in rivals
    ):
        outlook = Outlook.LOSES
    else:
        outlook = Outlook.CONTESTED if rivals else Outlook.OPEN
    return Prospect(write, outlook, among)


def _contests(contested: Sequence[Prospect]) -> dict[str, frozenset[str]]:
    """Return for each contested write the largest set of writes that share one file group with it."""
    touching = defaultdict[FileGroupId, set[str]](set)
    for prospect in contested:
        for conflict in prospect.verdict.conflicts:
            if conflict.certainty is Certainty.CERTAIN:
                for group in conflict.file_groups:
                    touching[group].add(prospect.write.instant.time)
    contests: dict[str, frozenset[str]] = {}
    for times in sorted(touching.values(), key=len, reverse=True):
        rest = frozenset(times - contests.keys())
        if len(rest) > 1:
            contests.update(dict.fromkeys(rest, rest))
    return contests

"""How ``airflow hudi conflicts`` shows the prospects of pending writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from airflow_occ_provider.cli.output import format_groups
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.prospects import Outlook, Prospect, must_lose
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Conflict

_MOST_RIVALS = 400
_UNCHECKED = "unchecked"
_WORDS = {
    Outlook.DEAD: "dead: no process continues it, and it is no rival",
    Outlook.LOSES: "will be refused",
    Outlook.OPEN: "can commit",
}


def describe_prospect(prospect: Prospect, writes: int) -> dict[str, Any]:
    """Return a prospect as JSON values.

    :param writes: how many writes are described: of more, fewer rivals are named each.
    """
    verdict, most = prospect.verdict, max(1, min(5, _MOST_RIVALS // max(1, writes)))
    counts = Counter(one.certainty for one in verdict.conflicts)
    return {
        "time": prospect.write.instant.time,
        "outlook": prospect.outlook.value,
        "writer": _liveness(prospect.write),
        "verdict": _verdict(prospect),
        "rolled_back_by": verdict.rolled_back_by.time if verdict.rolled_back_by else None,
        "contest": {"writes": len(prospect.contest), "can_commit": 1} if prospect.contest else None,
        "rivals": {one.value: counts[one] for one in (Certainty.CERTAIN, Certainty.POSSIBLE)},
        "conflicts": [_conflict(one) for one in verdict.conflicts[:most]],
        "duplicates": [
            {**_rival(one.rival), "partitions": list(one.partitions), "reason": _allowed(one.reason)}
            for one in verdict.duplications[:most]
        ],
    }


def summary(prospects: Sequence[Prospect]) -> str:
    """Return how many writes can still commit, and how many must lose, in a sentence."""
    if not prospects:
        return "No pending writes."
    dead = sum(one.outlook is Outlook.DEAD for one in prospects)
    lost, living = must_lose(prospects), len(prospects) - dead
    parts = [f"{living} pending writes: {living - lost} can still commit, {lost} must lose"]
    if dead:
        parts.append(f"{dead} more are dead")
    return "; ".join(parts) + "."


def prospect_rows(described: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the rows of a prospect: its outlook, then the rivals that are named."""
    outlook, contest = Outlook(described["outlook"]), described["contest"]
    word = f"one of {contest['writes']} can commit" if contest else _WORDS.get(outlook, "contested")
    if described["rolled_back_by"]:
        word = f"rolled back by {described['rolled_back_by']}"
    yield _row(described["time"], described["verdict"], "-", word, "-")
    for one in described["conflicts"]:
        groups = format_groups(one["file_groups"])
        yield _row(described["time"], one["certainty"], _named(one), one["reason"], groups)
    for one in described["duplicates"]:
        where = "\n".join(one["partitions"]) or "-"
        yield _row(described["time"], _UNCHECKED, _named(one), one["reason"], where)
    more = sum(described["rivals"].values()) - len(described["conflicts"])
    if more > 0:
        yield _row(described["time"], "", f"and {more} more", "", "")


def _verdict(prospect: Prospect) -> str:
    verdict = prospect.verdict
    if prospect.outlook is Outlook.DEAD:
        return Outlook.DEAD.value
    if verdict.certainty is Certainty.NONE and verdict.duplications:
        return _UNCHECKED
    return verdict.certainty.value


def _allowed(reason: str) -> str:
    return f"Hudi allows it, and duplicates are possible: {reason}"


def _liveness(write: ConcurrentOperation) -> str:
    if write.live:
        return "alive"
    return "expired heartbeat" if write.has_heartbeat else "no heartbeat"


def _rival(rival: ConcurrentOperation) -> dict[str, Any]:
    return {
        "rival": rival.instant.time,
        "action": rival.instant.action,
        "state": rival.instant.state.value,
        "operation": rival.operation_type,
    }


def _conflict(conflict: Conflict) -> dict[str, Any]:
    return {
        **_rival(conflict.rival),
        "certainty": conflict.certainty.value,
        "file_groups": sorted(map(list, conflict.file_groups)),
        "reason": conflict.reason,
    }


def _named(described: dict[str, Any]) -> str:
    return f"{described['rival']} {described['operation']} {described['state']}"


def _row(time: str, verdict: str, rival: str, reason: str, groups: str) -> dict[str, str]:
    return {
        "write": time,
        "conflict": verdict,
        "rival": rival,
        "reason": reason,
        "shared file groups": groups,
    }

"""How ``airflow hudi conflicts`` shows the prospects of pending writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.cli.output import format_groups, task_text
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Conflict, Outlook, Prospect, must_lose
from airflow_occ_provider.reading.described import describe_task

_MOST_RIVALS = 400
_UNCHECKED = "unchecked"
_WORDS = {
    Outlook.DEAD: "dead: no process continues it, and it is no rival",
    Outlook.LOSES: "will be refused",
    Outlook.OPEN: "can commit",
}


def describe_prospect(prospect: Prospect, writes: int, tasks: Mapping[str, Signature]) -> dict[str, Any]:
    """Return a prospect as JSON values.

    :param writes: how many writes are described: of more, fewer rivals are named each.
    :param tasks: of writes and rivals, by requested time.
    """
    verdict, most = prospect.verdict, _most_rivals(writes)
    counts = Counter(conflict.certainty for conflict in verdict.conflicts)
    return {
        "time": prospect.write.instant.time,
        "task": describe_task(tasks.get(prospect.write.instant.time)),
        "outlook": prospect.outlook.value,
        "writer": _liveness(prospect.write),
        "verdict": _verdict(prospect),
        "rolled_back_by": verdict.rolled_back_by.time if verdict.rolled_back_by else None,
        "contest": {"writes": len(prospect.contest), "can_commit": 1} if prospect.contest else None,
        "rivals": {
            certainty.value: counts[certainty] for certainty in (Certainty.CERTAIN, Certainty.POSSIBLE)
        },
        "conflicts": [_conflict(conflict, tasks) for conflict in verdict.conflicts[:most]],
        "duplicates": [
            {
                **_rival(duplication.rival, tasks),
                "partitions": list(duplication.partitions),
                "reason": _allowed(duplication.reason),
            }
            for duplication in verdict.duplications[:most]
        ],
    }


def instants_of(prospects: Sequence[Prospect]) -> set[str]:
    """Return the requested times of the writes and of the rivals that are named."""
    most = _most_rivals(len(prospects))
    return {
        operation.instant.time
        for prospect in prospects
        for operation in (
            prospect.write,
            *(conflict.rival for conflict in prospect.verdict.conflicts[:most]),
            *(duplication.rival for duplication in prospect.verdict.duplications[:most]),
        )
    }


def _most_rivals(writes: int) -> int:
    return max(1, min(5, _MOST_RIVALS // max(1, writes)))


def summary(prospects: Sequence[Prospect]) -> str:
    """Return how many writes can still commit, and how many must lose, in a sentence."""
    if not prospects:
        return "No pending writes."
    dead = sum(prospect.outlook is Outlook.DEAD for prospect in prospects)
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
    yield _row(described, described["verdict"], "-", word, "-")
    for conflict in described["conflicts"]:
        groups = format_groups(conflict["file_groups"])
        yield _row(described, conflict["certainty"], _named(conflict), conflict["reason"], groups)
    for duplicate in described["duplicates"]:
        where = "\n".join(duplicate["partitions"]) or "-"
        yield _row(described, _UNCHECKED, _named(duplicate), duplicate["reason"], where)
    more = sum(described["rivals"].values()) - len(described["conflicts"])
    if more > 0:
        yield _row(described, "", f"and {more} more", "", "")


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


def _rival(rival: ConcurrentOperation, tasks: Mapping[str, Signature]) -> dict[str, Any]:
    return {
        "rival": rival.instant.time,
        "action": rival.instant.action,
        "state": rival.instant.state.value,
        "operation": rival.operation_type,
        "task": describe_task(tasks.get(rival.instant.time)),
    }


def _conflict(conflict: Conflict, tasks: Mapping[str, Signature]) -> dict[str, Any]:
    return {
        **_rival(conflict.rival, tasks),
        "certainty": conflict.certainty.value,
        "file_groups": sorted(map(list, conflict.file_groups)),
        "reason": conflict.reason,
    }


def _named(described: dict[str, Any]) -> str:
    name = f"{described['rival']} {described['operation']} {described['state']}"
    return f"{name}\n{task_text(described)}" if described["task"] else name


def _row(
    described: dict[str, Any], verdict: str, rival: str, reason: str, groups: str
) -> dict[str, str]:
    return {
        "write": described["time"],
        "task": task_text(described),
        "conflict": verdict,
        "rival": rival,
        "reason": reason,
        "shared file groups": groups,
    }

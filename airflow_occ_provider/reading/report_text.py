"""A report as JSON values and as text, the same for commands, pages and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.report.losses import Cause, Loss
from airflow_occ_provider.hudi.report.summary import Sum
from airflow_occ_provider.reading.described import MOST_PARTITIONS
from airflow_occ_provider.reading.report import TableReport
from airflow_occ_provider.spelling import spell_span, spell_time

_MOST_ROWS = 20
_HOURS = {"h": 1, "d": 24, "w": 168}
REASONS = {
    Cause.CONFLICT: "lost a conflict",
    Cause.TAKEN_BACK: "rolled back by a writer that does not wait for heartbeats",
    Cause.ENDED: "ended without a sign of a conflict: a failure, a kill, or a stop",
}


def span_ms(text: str) -> int:
    """Return the milliseconds of a text such as ``12h``, ``30d`` or ``4w``.

    :raises ConfigurationError: if it is none.
    """
    number, hours = text[:-1], _HOURS.get(text[-1:], 0)
    if not (hours and number.isascii() and number.isdecimal() and int(number)):
        raise ConfigurationError(
            "since",
            f"{text!r} is no length of time",
            remedy="give hours (12h), days (30d) or weeks (4w)",
        )
    return int(number) * hours * 3_600_000


def describe_report(report: TableReport) -> dict[str, Any]:
    """Return a report as JSON values; times are epoch milliseconds.

    ``driver_ms`` is the time from a write's request to that of its rollback, or to the last sign of its
    writer: the most that its driver can have run.
    """
    summary = report.summary
    return {
        "table": report.table,
        "since_ms": report.since_ms,
        "at_ms": report.at_ms,
        "sentence": sentence(report),
        "commits": _sum(report.commits),
        "lost": _sum(summary.lost),
        "causes": _causes(summary.by_cause),
        "days": [{"day": _day(day), "causes": _causes(sums)} for day, sums in summary.by_day.items()],
        "partitions": [
            {"partition": partition, **_sum(sum_)}
            for partition, sum_ in list(summary.by_partition.items())[:_MOST_ROWS]
        ],
        "pairs": [
            {"loser": pair.loser, "winner": pair.winner, **_sum(sum_)}
            for pair, sum_ in list(summary.by_pair.items())[:_MOST_ROWS]
        ],
        "losses": [_loss(report, loss) for loss in report.losses],
        "findings": [finding.to_json() for finding in report.findings],
        "unread_rollbacks": report.unread,
    }


def sentence(report: TableReport) -> str:
    """Return in one sentence what was lost, and what a queue would have kept."""
    lost, conflicts = report.summary.lost, report.summary.conflicts
    span = f"since {spell_time(report.since_ms)}"
    if not lost.writes:
        return f"No write was lost {span}, beside {report.commits.writes} that completed."
    text = (
        f"{lost.writes} of {lost.writes + report.commits.writes} writes were lost {span}, at most "
        f"{spell_span(lost.driver_ms)} of their drivers"
    )
    if not conflicts.writes:
        return f"{text}; none shows a conflict."
    return (
        f"{text}; {conflicts.writes} lost a conflict, which a queue prevents: at most "
        f"{spell_span(conflicts.driver_ms)}."
    )


def report_lines(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield a report as lines for people."""
    yield described["table"]
    yield described["sentence"]
    for cause, sum_ in described["causes"].items():
        yield f"  {sum_['writes']} {REASONS[Cause(cause)]} ({spell_span(sum_['driver_ms'])} at most)"
    if described["pairs"]:
        yield "Losers and winners:"
    for pair in described["pairs"]:
        yield (
            f"  {pair['writes']} in {pair['loser']} to {pair['winner']} "
            f"({spell_span(pair['driver_ms'])} at most)"
        )
    if described["unread_rollbacks"]:
        yield f"{described['unread_rollbacks']} archived rollbacks cannot be read: their writes lack."
    for finding in described["findings"]:
        yield f"{finding['severity']}: {finding['evidence']}. Remedy: {finding['remedy']}."


def loss_row(described: Mapping[str, Any]) -> dict[str, str]:
    """Return a loss of a described report as a row of text."""
    return {
        "requested": spell_time(described["requested_ms"]) if described["requested_ms"] else "-",
        "instant": described["time"],
        "at most": spell_span(described["driver_ms"]),
        "cause": described["cause"],
        "lost to": " ".join(filter(None, (described["winner"], described["winner_name"]))) or "-",
        "sure": "yes" if described["certain"] else "",
        "partitions": "\n".join(described["partitions"]) or "-",
    }


def _loss(report: TableReport, loss: Loss) -> dict[str, Any]:
    write = loss.write
    return {
        "time": write.time,
        "requested_ms": report.epoch_ms(write.time),
        "action": write.action,
        "driver_ms": write.driver_ms,
        "cause": loss.cause.value,
        "winner": loss.winner or None,
        "winner_name": report.names.get(loss.winner),
        "certain": loss.is_certain,
        "rollback": write.rollback or None,
        "partitions": list(write.partitions[:MOST_PARTITIONS]),
        "partitions_left_out": max(len(write.partitions) - MOST_PARTITIONS, 0),
    }


def _causes(sums: Mapping[Cause, Sum]) -> dict[str, dict[str, int]]:
    return {cause.value: _sum(sum_) for cause, sum_ in sums.items()}


def _sum(sum_: Sum) -> dict[str, int]:
    return {"writes": sum_.writes, "driver_ms": sum_.driver_ms}


def _day(text: str) -> str:
    return date.fromisoformat(text).isoformat() if len(text) == len("yyyyMMdd") else text

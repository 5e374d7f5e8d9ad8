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
    Cause.CONFLICT: "lost a conflict with a write that ran at the same time",
    Cause.LIKELY_CONFLICT: "likely lost a conflict, with a write that began later or as an overwrite",
    Cause.ROLLED_BACK_EARLY: "rolled back before the heartbeat could expire, by a writer or by hand",
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
    writer if it was not rolled back yet.
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
        "gaps": list(report.gaps),
    }


def sentence(report: TableReport) -> str:
    """Return in short what was lost, and what a queue would have kept."""
    summary = report.summary
    lost, count = summary.lost, summary.lost.writes
    span = f"since {spell_time(report.since_ms)}, beside {report.commits.writes} commits"
    if not count:
        return f"No write was lost {span}."
    were_lost = "1 write was lost" if count == 1 else f"{count} writes were lost"
    text = f"{were_lost} {span}: {spell_span(lost.driver_ms)} of driver time."
    certain, likely = summary.of(Cause.CONFLICT), summary.of(Cause.LIKELY_CONFLICT)
    conflicts = (
        [f"{_spelled(certain)} lost a conflict, which a queue prevents"] if certain.writes else []
    )
    if likely.writes:
        conflicts.append(f"{_spelled(likely)} likely {'did' if certain.writes else 'lost a conflict'}")
    return (
        f"{text} Of these, {', and '.join(conflicts)}."
        if conflicts
        else f"{text} None shows a conflict."
    )


def _spelled(sum_: Sum) -> str:
    return f"{sum_.writes} ({spell_span(sum_.driver_ms)})"


def report_lines(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield a report as lines for people."""
    yield described["table"]
    yield described["sentence"]
    for cause, sum_ in described["causes"].items():
        yield f"  {sum_['writes']} {REASONS[Cause(cause)]} ({spell_span(sum_['driver_ms'])})"
    if described["pairs"]:
        yield "Losers, by their partitions, and winners:"
    for pair in described["pairs"]:
        text = f"{pair['writes']} in {pair['loser']} to {pair['winner']}"
        yield f"  {text} ({spell_span(pair['driver_ms'])})"
    if described["partitions"]:
        yield "Where writers collide:"
    for place in described["partitions"]:
        text = f"{place['writes']} in {place['partition'] or '/'}"
        yield f"  {text} ({spell_span(place['driver_ms'])})"
    for finding in described["findings"]:
        yield f"{finding['severity']}: {finding['evidence']}. Remedy: {finding['remedy']}."
    yield from described["gaps"]


def loss_row(described: Mapping[str, Any]) -> dict[str, str]:
    """Return a loss of a described report as a row of text."""
    return {
        "requested": spell_time(described["requested_ms"]) if described["requested_ms"] else "-",
        "instant": described["time"],
        "driver time": spell_span(described["driver_ms"]),
        "cause": described["cause"],
        "lost to": " ".join(filter(None, (described["winner"], described["winner_name"]))) or "-",
        "partitions": "\n".join(name or "/" for name in described["partitions"]) or "-",
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

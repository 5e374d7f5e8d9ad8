"""Pure: the facts of a driver's log for a process that cannot read it.

Of exceptions only the types are passed on, and the messages and frames that decide the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_occ_provider.attempts.log.causes import Cause, Chain
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.log.hudi_failures import deciding_causes, diagnose

_MOST = 50
_MOST_CAUSES = 10
_MOST_CONFLICTS = 5
_MOST_OF_A_TEXT = 1000


def kept_facts(log: DriverLog, redact: Callable[[str], str], *, is_whole: bool) -> dict[str, Any]:
    """Return what decides the outcome, as JSON values of limited size.

    :param redact: masks secrets in a text, before the text is cut.
    :param is_whole: whether the log was read to its end; if not, Hudi may have checked for conflicts.
    """
    times = log.own_instants
    causes = log.fatal.causes[-_MOST_CAUSES:] if log.fatal else []
    deciding = deciding_causes(causes, times)
    # A printed exception explains what one that ended the job does not.
    printed = () if diagnose(causes, times).by_row else log.handled_causes[-_MOST_CAUSES:]
    conflicts = list(log.instants.conflicts.values())[-_MOST_CONFLICTS:]
    return {
        "instants": [_write(log, time) for time in times[-_MOST:]],
        "requested": sorted(log.instants.requested.difference(times))[-_MOST:],
        "conflicts": [redact(line)[:_MOST_OF_A_TEXT] for line in conflicts],
        "other_checks": log.instants.has_other_checks or not is_whole,
        "protected": log.protected,
        "reports_end": log.reports_end,
        "end": log.end,
        "unprotected": redact(log.unprotected or "")[:_MOST_OF_A_TEXT],
        "printed": [_kept(cause, redact, decides=True) for cause in printed],
        "fatal": [_kept(cause, redact, decides=cause in deciding) for cause in causes],
    }


def recall(log: DriverLog, facts: Mapping[str, Any]) -> None:
    """Add the facts to a log that was read in part, or not at all."""
    if not facts:
        return
    log.instants.recall(facts["instants"], facts["conflicts"], has_other_checks=facts["other_checks"])
    log.instants.requested.update(facts["requested"])
    log.protected = log.protected or facts["protected"]
    log.reports_end = log.reports_end or facts["reports_end"]
    log.end = facts["end"] if log.end is None else log.end
    log.unprotected = log.unprotected or facts["unprotected"] or None
    if facts["fatal"] and log.fatal is None:
        log.fatal = _recalled(facts["fatal"])
    if facts["printed"] and log.handled is None:
        log.handled = _recalled(facts["printed"])


def _recalled(causes: Iterable[Mapping[str, Any]]) -> Chain:
    chain = Chain()
    for fields in causes:
        cause = Cause(**fields)
        chain.add(cause, f"{cause.type}: {cause.message}" if cause.message else cause.type)
    return chain


def _write(log: DriverLog, time: str) -> list[Any]:
    instants = log.instants
    table, is_completed = instants.tables.get(time, ""), instants.has_completed(time)
    return [time, instants.action_of(time), table, is_completed, time in instants.checked]


def _kept(cause: Cause, redact: Callable[[str], str], *, decides: bool) -> dict[str, Any]:
    message, frames = (redact(cause.message), cause.frames) if decides else ("", [])
    text = message[:_MOST_OF_A_TEXT]
    return {"type": cause.type, "message": text, "jvm": cause.jvm, "frames": frames}

"""Judges the rollbacks of an attempt's own writes: whose fault they are."""

from __future__ import annotations

from typing import NamedTuple

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.hudi.format.instant_time import naive_ms
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.snapshot import Snapshot


class TakenBack(NamedTuple):
    """The rollbacks of an attempt's writes by other processes.

    :param outcome: ``ROLLED_BACK`` if a heartbeat was fresh, so that only a writer without optimistic
        concurrency control can have done it; else ``HEARTBEAT_EXPIRED``.
    """

    outcome: Outcome
    lines: tuple[str, ...]


def taken_back(
    snapshot: Snapshot, log: DriverLog, stop: Stop | None, rule: HeartbeatRule
) -> TakenBack | None:
    """Return what other processes took back; ``None`` if nothing.

    Hudi 0.15 rolls a failed bulk insert back in the same driver: what the driver requested itself does
    not count. A lazy clean rolls a write back once its heartbeat has expired. That it had not is known
    if the guard of the heartbeat stopped the driver for it, or if it came sooner after the write's
    request than a heartbeat expires.

    :param stop: why a guard ended the driver, if one did.
    """
    pairs = ((time, snapshot.rollback_of(time)) for time in log.own_instants)
    foreign = [
        (time, rollback)
        for time, rollback in pairs
        if rollback and rollback.time not in log.instants.requested
    ]
    if not foreign:
        return None
    is_seen = stop is not None and stop.outcome is Outcome.ROLLED_BACK
    is_fresh = is_seen or any(
        _is_sooner(time, rollback.time, rule.tolerance_ms) for time, rollback in foreign
    )
    why = "" if is_fresh else ": its heartbeat had expired, as far as is known"
    lines = tuple(
        f"{rollback.action} {rollback.time} took back {time}{why}" for time, rollback in foreign
    )
    return TakenBack(Outcome.ROLLED_BACK if is_fresh else Outcome.HEARTBEAT_EXPIRED, lines)


def _is_sooner(begun: str, rolled_back: str, tolerance_ms: int) -> bool:
    first_ms, second_ms = naive_ms(begun), naive_ms(rolled_back)
    return None not in (first_ms, second_ms) and 0 <= (second_ms or 0) - (first_ms or 0) < tolerance_ms

"""Pure: what the heartbeat of a running driver's own write means.

A late heartbeat proves nothing: a later tick recovers it (Hudi 0.15.0 to 1.2.0,
``HoodieHeartbeatClient``). A driver is ended for two reasons only: another process rolls the write
back while its heartbeat ticks, or the heartbeat's timer has died and Hudi's tolerance has passed,
so that Hudi is certain to refuse the commit.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat, HeartbeatRule, Liveness


class HeartbeatState(NamedTuple):
    """One observation of the write that a driver is making.

    :param last_ms: epoch milliseconds of its heartbeat's last tick; ``None`` without a heartbeat.
    :param rollback: requested time of a rollback that names it and that is not the driver's own.
    :param timer_died: whether the driver's log shows that the heartbeat's timer died.
    :param is_committing: whether the driver has passed Hudi's own check of its heartbeat.
    """

    instant: str
    last_ms: int | None
    rollback: str | None = None
    timer_died: bool = False
    is_committing: bool = False


class LogLine(NamedTuple):
    """A line for the task's log."""

    level: int
    text: str


class Alarm:
    """Follows the heartbeat of a driver's current write.

    A monotonic clock of this host decides whether a heartbeat has stopped: the clocks of two hosts are
    never compared to end a driver. How Hudi's cleaners judge it depends on their own clocks; log lines
    about that use this host's clock instead.

    ``stop`` is the reason to end the driver, once there is one.
    """

    def __init__(self, rule: HeartbeatRule) -> None:
        self.stop: Stop | None = None
        self._rule = rule
        self._tolerance_s = rule.interval_ms * rule.tolerable_misses / 1000
        self._heartbeat = Heartbeat(Liveness.NONE)
        self._ticked_s: float | None = None
        self._had_expired = self._rolled_back = False
        self._begin("")

    @property
    def margin_ms(self) -> int | None:
        """Milliseconds until Hudi counts the current write as dead, at the last check."""
        return self._heartbeat.margin_ms

    def take(self, state: HeartbeatState | None, now_ms: int, now_s: float) -> list[LogLine]:
        """Take the next observation; return the lines to log.

        :param state: the observation; ``None`` if the driver is not writing.
        :param now_ms: epoch milliseconds just before the heartbeats were listed.
        :param now_s: seconds of a monotonic clock just after.
        """
        if state is None:
            self._begin("")
            return []
        if state.instant != self._instant:
            self._begin(state.instant)
        before_ms = self._heartbeat.last_ms
        if state.last_ms != before_ms or self._ticked_s is None:
            self._ticked_s = now_s
        # Of a host that stood still itself, only the next tick shows for how long.
        is_known = state.last_ms is not None and before_ms is not None
        paused_ms = (state.last_ms or 0) - (before_ms or 0) if is_known else 0
        self._heartbeat = self._rule.judge(state.last_ms, now_ms)
        still_s = now_s - self._ticked_s
        had_expired = max(still_s, paused_ms / 1000) > self._tolerance_s
        self._had_expired = self._had_expired or (had_expired and not self._rolled_back)
        self._rolled_back = self._rolled_back or state.rollback is not None
        self.stop = self._reason(state, still_s)
        if self.stop:
            return [LogLine(logging.ERROR, f"{self.stop.line}. The driver is ended.")]
        if state.timer_died:
            return self._timer_lines(state)
        return self._heartbeat_lines(state, now_ms, still_s)

    def _begin(self, instant: str) -> None:
        self._instant = instant
        self._heartbeat = Heartbeat(Liveness.NONE)
        self._ticked_s = None
        self._has_ticked = False
        self._had_expired = self._rolled_back = False
        self._logged = Liveness.ALIVE
        self._timer_logged = False

    def _reason(self, state: HeartbeatState, still_s: float) -> Stop | None:
        stands_still = still_s > self._tolerance_s
        is_taken = state.rollback and state.last_ms is not None and not stands_still
        if is_taken and self._had_expired:  # a lazy clean may do that, and the driver woke up later
            return Stop(
                Outcome.HEARTBEAT_EXPIRED,
                f"rollback {state.rollback} took back {state.instant}, whose heartbeat had stood still "
                f"for more than {self._tolerance_s:g} s",
            )
        if is_taken:
            return Stop(
                Outcome.ROLLED_BACK,
                f"rollback {state.rollback} takes back {state.instant}, which the driver was writing",
                instant=state.instant,
            )
        if state.timer_died and stands_still and not state.is_committing:
            return Stop(
                Outcome.HEARTBEAT_EXPIRED,
                f"Hudi's heartbeat timer of {state.instant} died and its last tick is more than "
                f"{self._tolerance_s:g} s ago, so that Hudi refuses its commit",
                instant=state.instant,
            )
        return None

    def _timer_lines(self, state: HeartbeatState) -> list[LogLine]:
        if self._timer_logged or state.is_committing:
            return []
        self._timer_logged = True
        return [
            LogLine(
                logging.WARNING,
                f"Hudi's heartbeat timer of instant {state.instant} died, as the driver's log shows: "
                "there will be no further tick. The driver is ended once the last one is "
                f"{self._tolerance_s:g} s old, unless it comes to its commit before.",
            )
        ]

    def _heartbeat_lines(self, state: HeartbeatState, now_ms: int, still_s: float) -> list[LogLine]:
        now = self._heartbeat.liveness
        if now is Liveness.NONE:  # a live writer would have created it again by its next tick
            is_gone = self._has_ticked and still_s * 1000 > self._rule.interval_ms
            now = now if is_gone else self._logged
        self._has_ticked = self._has_ticked or state.last_ms is not None
        before = self._logged
        if now is before or (before in (Liveness.DEAD, Liveness.NONE) and now is Liveness.LATE):
            return []
        self._logged = now
        if now is Liveness.ALIVE:
            return [LogLine(logging.INFO, f"The heartbeat of instant {state.instant} ticks again.")]
        age_s = (now_ms - (state.last_ms or now_ms)) / 1000
        return [LogLine(logging.WARNING, f"{self._trouble(now, age_s)} {self._prospect(state)}")]

    def _trouble(self, now: Liveness, age_s: float) -> str:
        if now is Liveness.NONE:
            return f"The heartbeat of instant {self._instant} is gone, so that Hudi counts it as dead."
        if now is Liveness.DEAD:
            return (
                f"Hudi counts instant {self._instant} as dead: its heartbeat's last tick was "
                f"{age_s:.0f} s ago, and {self._tolerance_s:g} s are tolerated."
            )
        return (
            f"The heartbeat of instant {self._instant} is late: its last tick was {age_s:.0f} s ago; "
            f"from {self._tolerance_s:g} s on Hudi counts it as dead."
        )

    def _prospect(self, state: HeartbeatState) -> str:
        refused = "" if state.is_committing else "Hudi refuses the commit, and "
        return (
            f"A late tick recovers it. If it stays so, {refused}the lazy clean of another writer may "
            "roll it back. The driver runs on."
        )

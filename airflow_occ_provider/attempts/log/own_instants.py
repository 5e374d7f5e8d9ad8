"""Pure: the instants that a driver requested, from its log."""

from __future__ import annotations

import re

from airflow_occ_provider.attempts.log.lines import follows_record_start

_TIME = r"\d{14,20}"
_REQUESTED = re.compile(
    rf"(?:Creating a new instant|Requesting Rollback with instant time) "
    rf"\[==>({_TIME})__(\w+)__REQUESTED\]"
)
_MENTIONED = re.compile(
    rf"\[(?:==>)?({_TIME})(?:__{_TIME})?__(\w+?)__(?:REQUESTED|INFLIGHT|COMPLETED)\]"
)
_FILE_MADE = re.compile(
    rf"Created? new file for toInstant\W+(\S*/)({_TIME})(?:_{_TIME})?\.(\w+(?:\.inflight)?)(?!\w|\.\w)"
)
_TRANSACTION = re.compile(
    rf"(?:Transaction|State change) starting for Option\{{val=\[==>({_TIME})__(\w+)__INFLIGHT\]\}}"
)
# The JVM prints two lines for a thread that died, so one line in a job's own message does not match.
_HEARTBEAT_DIED = re.compile(
    r'Exception in thread "Timer-\d+" org\.apache\.hudi\.exception\.HoodieHeartbeatException: '
    rf"Unable to generate heartbeat for instant ({_TIME})"
)
_HEARTBEAT_FRAME = re.compile(r"\s*at org\.apache\.hudi\.client\.heartbeat\.HoodieHeartbeatClient\W")
_WRITES = ("commit", "deltacommit", "replacecommit")


class OwnInstants:
    """Collects the instants of a driver, line by line.

    Decisions to end a driver, or to change an instant, use ``times`` and ``heartbeat_died``: lines of
    loggers and of the JVM, never a line that a job has printed.
    """

    def __init__(self) -> None:
        self._actions: dict[str, str] = {}
        self._requested: list[str] = []
        self._mentioned_requests: set[str] = set()
        self._completed: dict[str, str] = {}
        self._inflight: set[str] = set()
        self._committing: set[str] = set()
        self._unbeaten: set[str] = set()
        self._dying = ""

    def feed(self, line: str) -> None:
        """Take the next line of the log."""
        if "instant" in line.lower() or "]" in line:
            self._note_request(line)
            self._note_file(line)
        if "eartbeat" in line:
            self._note_heartbeat(line)

    def feed_printed(self, line: str) -> None:
        """Take the next printed line of a log whose Hudi records the runner reports."""
        requested = _REQUESTED.search(line) if "REQUESTED" in line else None
        if requested:
            self._mentioned_requests.add(requested[1])
        if "eartbeat" in line:
            self._note_heartbeat(line)

    @property
    def times(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has requested, oldest first."""
        return tuple(time for time in self._requested if self._actions.get(time) in _WRITES)

    @property
    def completed(self) -> str | None:
        """The line that shows the last of them completed, if it was."""
        own = self.times
        return self._completed.get(own[-1]) if own else None

    @property
    def unbeaten(self) -> str | None:
        """The instant whose heartbeat timer died, if one did."""
        return max(self._unbeaten, default=None)

    def has_requested(self, time: str) -> bool:
        """Whether the driver itself requested an instant, of any action."""
        return time in self._mentioned_requests

    def is_committing(self, instant: str) -> bool:
        """Whether a write has reached its commit.

        Hudi checks its heartbeat just before the commit, and not again (Hudi 0.15.0 to 1.2.0,
        ``BaseHoodieWriteClient.commitStats``).
        """
        return instant in self._committing

    def heartbeat_died(self, instant: str) -> bool:
        """Whether the timer of a write's heartbeat died; Hudi never restarts it.

        A storage error causes that until Hudi 1.2 (``HoodieHeartbeatClient.updateHeartbeat``).
        """
        return instant in self._unbeaten

    def _note_request(self, line: str) -> None:
        requested = _REQUESTED.search(line)
        if requested and not requested[1].startswith("0000"):
            self._mentioned_requests.add(requested[1])
            if requested[1] not in self._requested and follows_record_start(line, requested.start()):
                self._requested.append(requested[1])
        for time, action in _MENTIONED.findall(line):
            self._actions.setdefault(time, action)

    def _note_file(self, line: str) -> None:
        made = _FILE_MADE.search(line)
        if made and "/.hoodie/metadata/" not in made[1]:
            if made[3].endswith("inflight"):
                self._inflight.add(made[2])
            elif made[3] in _WRITES and follows_record_start(line, made.start()):
                self._completed[made[2]] = line.strip()
        opened = _TRANSACTION.search(line)
        # Hudi also opens one before the write.
        if opened and opened[1] in self._inflight and self._actions.get(opened[1]) == opened[2]:
            self._committing.add(opened[1])

    def _note_heartbeat(self, line: str) -> None:
        died = _HEARTBEAT_DIED.match(line)
        if died:
            self._dying = died[1]
        elif self._dying and _HEARTBEAT_FRAME.match(line):
            self._unbeaten.add(self._dying)
            self._dying = ""

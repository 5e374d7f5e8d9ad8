"""Pure: what a driver's log says of the instants that it asked for."""

from __future__ import annotations

import re

from airflow_occ_provider.jobs.log_lines import follows_record_start

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
# What the JVM prints for a thread that died: two lines, so that one in a job's own message is none.
_HEARTBEAT_DIED = re.compile(
    r'Exception in thread "Timer-\d+" org\.apache\.hudi\.exception\.HoodieHeartbeatException: '
    rf"Unable to generate heartbeat for instant ({_TIME})"
)
_HEARTBEAT_FRAME = re.compile(r"\s*at org\.apache\.hudi\.client\.heartbeat\.HoodieHeartbeatClient\W")
_WRITES = ("commit", "deltacommit", "replacecommit")


class OwnInstants:
    """Collects the instants of a driver, line by line.

    What ends a driver, or is done to an instant, rests on ``times`` and ``heartbeat_died``: on what
    loggers and the JVM write, never on a sentence that a job has printed.
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

    @property
    def times(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has asked for, oldest first."""
        return tuple(time for time in self._requested if self._actions.get(time) in _WRITES)

    @property
    def completed(self) -> str | None:
        """The line in which the last of them was completed, if it was."""
        own = self.times
        return self._completed.get(own[-1]) if own else None

    @property
    def unbeaten(self) -> str | None:
        """The instant whose heartbeat's timer died, if one did."""
        return max(self._unbeaten, default=None)

    def has_requested(self, time: str) -> bool:
        """Whether the driver itself asked for an instant, of whatever action."""
        return time in self._mentioned_requests

    def is_committing(self, instant: str) -> bool:
        """Whether a write has come to its commit: Hudi asks for its heartbeat just before, and no more.

        Hudi 0.15.0 to 1.2.0, ``BaseHoodieWriteClient.commitStats``.
        """
        return instant in self._committing

    def heartbeat_died(self, instant: str) -> bool:
        """Whether the timer that made a write's heartbeat died: Hudi never makes it again.

        An error of the storage does that until Hudi 1.2 (``HoodieHeartbeatClient.updateHeartbeat``).
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
        # Hudi opens one before the write, too.
        if opened and opened[1] in self._inflight and self._actions.get(opened[1]) == opened[2]:
            self._committing.add(opened[1])

    def _note_heartbeat(self, line: str) -> None:
        died = _HEARTBEAT_DIED.match(line)
        if died:
            self._dying = died[1]
        elif self._dying and _HEARTBEAT_FRAME.match(line):
            self._unbeaten.add(self._dying)
            self._dying = ""

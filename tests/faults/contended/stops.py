"""How long a driver ran on after its table showed that its write was in vain."""

from __future__ import annotations

import re
import statistics
from datetime import datetime

from airflow_occ_provider.hudi.conflict.operation import Times

MOST_S = 12.0  # a period of the guard, and two seconds
_FOUND = re.compile(r"^(\d{17}) (gives way to the earlier|can no longer commit:) (\d{17})")
_OF_DRIVER = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ ")


class Seen:
    """When profiles and commits of a table's writes were written, as far as the rig looked in time.

    :param reader: the table.
    """

    def __init__(self, reader):
        self._reader, self._times = reader, {}

    def look(self):
        snapshot = self._reader.snapshot(missing_ok=True)
        for one in snapshot.timeline:
            times = snapshot.times(one)
            if times.inflight_ms is not None:  # else it has none yet, or is being rolled back
                self._times[one.time] = times

    def delays_s(self, content):
        """Return the seconds from the evidence of each stop in a try's log to its driver's last line."""
        last_s = max((at_s for at_s, text in _timed(content) if _OF_DRIVER.search(text)), default=None)
        found = (_FOUND.match(text) for _, text in _timed(content))
        ends = [self._evident_ms(*match.groups()) for match in found if match]
        return [last_s - at_ms / 1000 for at_ms in ends if last_s and at_ms]

    def _evident_ms(self, own, verb, rival):
        ours, theirs = (self._times.get(one, Times()) for one in (own, rival))
        of_rival = theirs.inflight_ms if verb.startswith("gives") else theirs.completed_ms
        times = ours.inflight_ms, of_rival
        return max(times) if None not in times else None


def summary(delays_s):
    """Return the delays of a series in a line, and whether nineteen of twenty are short enough."""
    if len(delays_s) < 2:
        return f"{len(delays_s)} drivers were ended early"
    at = statistics.quantiles(delays_s, n=20, method="inclusive")
    more = f", more than {MOST_S:g} s" if at[18] > MOST_S else ""
    return (
        f"{len(delays_s)} drivers were ended early: "
        f"p50 {at[9]:.1f} s, p95 {at[18]:.1f} s after the evidence{more}"
    )


def _timed(content):
    for line in content:
        if isinstance(line, dict) and line.get("timestamp"):
            yield datetime.fromisoformat(line["timestamp"]).timestamp(), str(line["event"])

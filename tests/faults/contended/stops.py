"""How long a driver ran on after its table showed that its write was in vain, stopped or not."""

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
        found = (_FOUND.match(text) for _, text in _timed(content))
        return _until_the_end(content, [self._evident_ms(*match.groups()) for match in found if match])

    def delays_of_refused_s(self, content, own):
        """Return the seconds from the first evidence against a refused write to its driver's last line.

        Nothing stopped it. All writes conflict: one that has a profile is in vain once a rival has
        completed, and from the start if the rival's profile is older.
        """
        ours, ends = self._times.get(own, Times()), []
        for rival in (times for time, times in self._times.items() if time != own):
            if None in (ours.requested_ms, ours.inflight_ms, rival.inflight_ms, rival.completed_ms):
                continue
            if rival.completed_ms > ours.requested_ms:
                is_older = rival.inflight_ms < ours.inflight_ms
                ends.append(ours.inflight_ms if is_older else max(ours.inflight_ms, rival.completed_ms))
        return _until_the_end(content, [min(ends)] if ends else [])

    def _evident_ms(self, own, verb, rival):
        ours, theirs = (self._times.get(one, Times()) for one in (own, rival))
        of_rival = theirs.inflight_ms if verb.startswith("gives") else theirs.completed_ms
        times = ours.inflight_ms, of_rival
        return max(times) if None not in times else None


def summary(delays_s):
    """Return the delays of a series in a line, and whether nineteen of twenty are short enough."""
    if len(delays_s) < 2:
        return f"{len(delays_s)} drivers wrote in vain"
    at = statistics.quantiles(delays_s, n=20, method="inclusive")
    more = f", more than {MOST_S:g} s" if at[18] > MOST_S else ""
    return (
        f"{len(delays_s)} drivers wrote in vain: "
        f"p50 {at[9]:.1f} s, p95 {at[18]:.1f} s after the evidence{more}"
    )


def _until_the_end(content, since_ms):
    last_s = max((at_s for at_s, text in _timed(content) if _OF_DRIVER.search(text)), default=None)
    return [last_s - at_ms / 1000 for at_ms in since_ms if last_s and at_ms]


def _timed(content):
    for line in content:
        if isinstance(line, dict) and line.get("timestamp"):
            yield datetime.fromisoformat(line["timestamp"]).timestamp(), str(line["event"])

"""A look at a driver elsewhere."""

from __future__ import annotations

import logging

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.remote_watch import RemoteWatch
from airflow_occ_provider.attempts.submitter import Handle, Running
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE

REQUESTED = "INFO ActiveTimelineV2: Creating a new instant [==>20260101000000000__commit__REQUESTED]"


class Writing:
    """A driver that has requested a write."""

    def __init__(self):
        self.lines = [REQUESTED]

    def poll(self, _):
        return Running()

    def read(self, *_):
        lines, self.lines = self.lines, []
        return lines


class CountedViews:
    """Views of a table that cannot be read."""

    count = 0

    def current(self):
        self.count += 1
        raise TableUnreadableError("away", remedy="none")


def test_a_look_at_the_table_comes_with_each_look_at_the_driver():
    views = CountedViews()
    watch = RemoteWatch(
        *(Writing(), Handle("there", "driver", {}), views, DEFAULT_RULE),
        *(logging.getLogger("watch"), lambda _: None, EarlyStop.ACT),
    )
    counts = []
    for _ in range(5):
        watch.look()
        counts.append(views.count)
    per_look = counts[0]
    assert per_look
    assert counts == [per_look * number for number in range(1, 6)]

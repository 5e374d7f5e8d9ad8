"""Pure: whether a driver writes a second table, where its lock has one name for all tables."""

from __future__ import annotations

import re

from airflow_occ_provider.errors import MisconfigurationError
from airflow_occ_provider.jobs.outcome import Outcome
from airflow_occ_provider.storage.address import canonical_table

# Hudi 0.15.0 to 1.2.0: HoodieActiveTimeline and ActiveTimelineV2, before any data is written.
_BEGUN = re.compile(
    r"Create new file for toInstant \?(?P<table>(?:(?!/\.hoodie/)\S)+)"
    r"/\.hoodie/(?!metadata/)\S+\.inflight"
)


class OneTable:
    """Reads a driver's log for writes to other tables than its own.

    Commits of another table would be made under the lock of this one: those of its neighbours, who
    lock by its own name, would not be kept apart from them.

    :param table: base path of the table that the driver is protected for.
    """

    def __init__(self, table: str) -> None:
        self._table = canonical_table(table)
        self._other = ""

    def feed(self, line: str) -> bool:
        """Take the next line; whether the driver must be ended."""
        begun = _BEGUN.search(line)
        if begun and canonical_table(begun["table"]) != self._table:
            self._other = self._other or begun["table"]
        return bool(self._other)

    def refuse(self, *, committed: bool) -> None:
        """Raise if there was a second table.

        :param committed: whether the write of the driver's own table has landed.
        :raises MisconfigurationError: then.
        """
        if self._other:
            raise MisconfigurationError(
                f"the job began to write {self._other} beside {self._table}, and was ended: Hudi's lock "
                "in the metastore has one name for all that a driver writes",
                outcome=Outcome.MISCONFIGURATION,
                remedy="write each table by a task of its own, or lock in ZooKeeper, where each table "
                "has its own lock",
                committed=committed,
            )

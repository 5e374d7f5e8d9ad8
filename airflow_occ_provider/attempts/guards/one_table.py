"""The guard against a second table if Hudi's lock has one name for all tables."""

from __future__ import annotations

import os
import re

from airflow_occ_provider.attempts.log.facts import Entry
from airflow_occ_provider.attempts.log.lines import is_logged_by
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.errors import ConfigurationError, MisconfigurationError
from airflow_occ_provider.storage.address import may_be_one_table, parse_table_path

# Hudi 0.15.0 to 1.2.0: HoodieActiveTimeline and ActiveTimelineV2, before any data is written.
_LOGGER = re.compile(r"\b(?:HoodieActiveTimeline|ActiveTimelineV[12])\b")
_BEGUN = re.compile(
    r"Create new file for toInstant \?(?P<table>(?:(?!/\.hoodie/)\S)+)"
    r"/\.hoodie/(?!metadata/)\S+\.inflight"
)


class OneTable:
    """Looks in what comes from a driver for writes to other tables than its own.

    A commit to another table would be made under this table's lock. It would not exclude the other
    table's own writers, which use a lock with that table's name.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._other = ""
        self._is_followed = False

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if there is a second table."""
        return Stop(Outcome.MISCONFIGURATION, self._message) if self._other else None

    def on_entry(self, entry: Entry) -> Stop | None:
        """Take what comes from the driver; return the reason to stop, if any.

        :param entry: a printed line counts only if the runner cannot follow Hudi's loggers: a job may
            print the log of another driver.
        """
        if not isinstance(entry, str) and entry["fact"] == "protected":
            self._is_followed = entry.get("followed") is True
        begun = None if self._other else _BEGUN.search(self._recorded(entry))
        if begun and is_other_table(self._table, begun["table"]):
            self._other = begun["table"]
        return self.stop

    def _recorded(self, entry: Entry) -> str:
        """Return what Hudi's timeline has logged, if the entry is its record."""
        if isinstance(entry, str):
            return entry if not self._is_followed and is_logged_by(_LOGGER, entry) else ""
        is_of_timeline = entry["fact"] == "hudi" and _LOGGER.search(str(entry.get("logger")))
        return str(entry.get("message")) if is_of_timeline else ""

    def refuse(self, *, committed: bool | None) -> None:
        """Raise if the driver wrote to a second table.

        :param committed: whether the write to the driver's own table has landed; ``None`` if the table
            does not show it, for example because it does not exist yet.
        """
        if self._other:
            raise MisconfigurationError(
                self._message,
                outcome=Outcome.MISCONFIGURATION,
                remedy="write each table by a task of its own, or lock in ZooKeeper, where each table "
                "has its own lock",
                committed=committed,
            )

    @property
    def _message(self) -> str:
        return (
            f"the job began to write {self._other} beside {self._table}, and was ended: Hudi's lock in "
            "the metastore has one name for all that a driver writes"
        )


def is_other_table(table: str, logged: str) -> bool:
    """Whether a driver's log names another table.

    :param table: base path of the driver's own table.
    :param logged: a table as Hadoop prints it.
    """
    try:
        return not may_be_one_table(_followed(table), _followed(logged))
    except ConfigurationError:
        return False  # a relative path proves nothing


def _followed(table: str) -> str:
    """Return a table's path; of a local one, where its symbolic links lead."""
    scheme, path = parse_table_path(table)
    return os.path.realpath(path.removeprefix("file://")) if scheme == "file" else table

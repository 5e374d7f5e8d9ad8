"""What a write cannot have seen: the driver's log shows the point, and listings show what came later."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.guards.table_guards import TableViews
from airflow_occ_provider.attempts.log.driver_log import DriverLog, OwnInstants
from airflow_occ_provider.storage.snapshot import Operations
from airflow_occ_provider.storage.table import HudiTable
from tests.support.early_stop import Race, before_the_profile

OWN, NEXT = "20261125190412486", "20261125190500000"
PAST = (
    "The HoodieWriteClient is not configured to auto & async clean. Async clean service will not start."
)
MAIN = "Thread-5"


def created(time, action="commit"):
    return f"INFO ActiveTimelineV2: Creating a new instant [==>{time}__{action}__REQUESTED]"


def inflight(time):
    made = f"/t/.hoodie/timeline/{time}.inflight"
    return f"INFO ActiveTimelineV2: Create new file for toInstant ?{made}"


def compared(*lines, thread=MAIN):
    """Return what is known after lines, each of the main thread or with a thread of its own."""
    log = OwnInstants()
    for line in lines:
        log.feed(*(line if isinstance(line, tuple) else (line, thread)))
    return log.compared


def fact(message, logger, thread=MAIN):
    return {"fact": "hudi", "logger": logger, "message": message, "thread": thread}


def test_the_line_is_of_the_write_that_was_requested_before_it():
    assert compared(created(OWN)) == set()
    assert compared(created(OWN), PAST) == {OWN}
    assert compared(created(OWN), PAST, inflight(OWN), created(NEXT)) == {OWN}
    assert compared(created(OWN), PAST, inflight(OWN), created(NEXT), PAST) == {OWN, NEXT}


@pytest.mark.parametrize(
    "between",
    [
        created("00000000000000010", "deltacommit"),  # the metadata table is made
        created(OWN, "deltacommit"),  # it is written to with the same time
        (created(NEXT), "another"),  # it writes, too
        created(NEXT, "rollback"),
    ],
)
def test_a_line_that_may_be_of_another_write_proves_nothing(between):
    assert compared(created(OWN), between, PAST) == set()


def test_a_line_of_another_thread_is_of_its_table_service():
    assert compared(created(OWN), (PAST, "another")) == set()
    assert compared((created(NEXT, "compaction"), "another"), created(OWN), (PAST, "another")) == set()
    assert compared((created(NEXT, "compaction"), "another"), created(OWN), PAST) == {OWN}


def test_a_line_without_its_thread_proves_nothing():
    assert compared(created(OWN), PAST, thread="") == set()


def test_what_a_job_prints_proves_nothing():
    log = DriverLog()
    for line in (created(OWN), PAST, f"x {PAST[30:]}"):
        log.take(line)
    assert log.instants.compared == set()


def test_a_commit_proves_nothing_of_the_metadata_table():
    assert compared(created(OWN), PAST, inflight(OWN), created(OWN, "deltacommit"), PAST) == {OWN}


class Unclear(Race):
    """A race whose rival completed before the profile, which does not show whether it was seen."""

    def __init__(self, folder):
        super().__init__(folder)
        with (self.path / ".hoodie" / "hoodie.properties").open("a") as added:
            added.write("\nhoodie.table.metadata.partitions=files,record_index\n")
        self.table = HudiTable(str(self.path))
        before_the_profile(self)
        self.log = DriverLog()
        self.log.take({"fact": "protected", "followed": True})
        self.log.take(fact(created(self.ours).partition(": ")[2], "ActiveTimelineV2"))
        self.views = TableViews(self.table)
        self.watch = self.guard()
        self.gone = self.path / self.winner.name
        self.winner.rename(self.gone)

    def passes(self):
        """Let Hudi take the point from which it compares."""
        self.log.take(fact(PAST, "AsyncCleanerService"))

    def look(self):
        self.watch.look(self.views.current())
        return self.watch.doomed

    def completes(self):
        self.gone.rename(self.winner)


@pytest.fixture
def race(tmp_path):
    return Unclear(tmp_path)


def test_a_rival_that_was_pending_after_the_point_is_known_to_win(race):
    race.passes()
    assert race.look() is None
    assert race.look() is None  # the first view that began after the line was read
    race.completes()
    assert race.look().stop.rival == race.rival


def test_a_profile_that_is_built_on_the_rival_overrules_the_log(race):
    (operation,) = Operations(race.table.snapshot(), {}).read([race.instant(race.ours)])
    (base,) = set(operation.bases.values())
    race.profile.write_bytes(race.profile.read_bytes().replace(base.encode(), race.rival.encode()))
    race.passes()
    race.look()
    race.look()
    race.completes()
    before_the_profile(race)
    assert race.look() is None


def test_a_view_that_began_before_the_line_was_read_proves_nothing(race):
    race.passes()
    assert race.look() is None
    race.completes()
    assert race.look() is None
    assert race.look() is None


def test_without_the_line_nothing_is_known(race):
    race.look()
    race.look()
    race.completes()
    assert race.look() is None

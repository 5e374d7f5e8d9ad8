"""Each finding of ``airflow hudi doctor`` in a table that real Hudi made, and none before the fault.

Four JVMs, of two releases and two zones, make the tables of ``tests.golden.scenarios_faulty``. What no
process here can have, another clock or an age of hours, is given to the files after the real write:
``aged`` and ``dead`` move their times back, and one test renames a file. The golden tables show the
findings that are not here.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from airflow_occ_provider.hudi.doctor.finding import Severity
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable

pytestmark = [pytest.mark.real, pytest.mark.nightly]

OLD, NEW = "0.15.0", "1.2.0"
JVMS = (
    (NEW, "Asia/Kolkata", "backward_begin"),
    (OLD, "UTC", "releases", "heartbeat_left"),
    (NEW, "UTC", "backward", "releases", "markers", "archival", "long_write", "colliding", "planned"),
    (OLD, "UTC", "releases"),
)
CLOCK_AHEAD_S, STUCK_S, EXPIRED_S = 45, 7 * 3600, 600


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for version, zone, *names in JVMS:
        module = [sys.executable, "-m", "tests.golden.scenarios_faulty"]
        subprocess.run([*module, str(folder), version, zone, *names], check=True, timeout=1200)
    return folder


def findings(path):
    return {one.check: one for one in examine(HudiTable(str(path)))}


def timeline(path):
    newer = path / ".hoodie" / "timeline"
    return newer if newer.is_dir() else path / ".hoodie"


def aged(files, by_s):
    """Move the times of files back."""
    for file in files:
        moment = file.stat().st_mtime - by_s
        os.utime(file, (moment, moment))


def dead(path):
    """Let the heartbeats of a table expire."""
    aged((path / ".hoodie" / ".heartbeat").iterdir(), EXPIRED_S)
    return path


def completed(path):
    return [one.time for one in HudiTable(str(path)).snapshot().timeline.completed_writes()]


def test_releases_by_turns(made):
    found = findings(made / "releases")
    assert found.keys() == {"mixed_releases"}
    assert found["mixed_releases"].instants == tuple(completed(made / "releases")[1:])
    assert "0.15; 1.2" in found["mixed_releases"].evidence


def test_two_kinds_of_markers(made):
    found = findings(dead(made / "markers"))
    assert "DIRECT: " in found["mixed_markers"].evidence
    assert found["mixed_markers"].severity is Severity.WARNING
    assert found.keys() == {"mixed_markers", "dead_writers"}


def test_a_failed_write_that_holds_the_archive_back(made):
    found = findings(dead(made / "archival"))
    (pending,) = HudiTable(str(made / "archival")).snapshot().timeline.pending_writes()
    assert found["archival_held_back"].instants == (pending.time,)
    assert found.keys() == {"archival_held_back", "dead_writers"}


def test_a_time_that_two_requests_have(made):
    found = findings(made / "colliding")
    assert found["colliding_instants"].instants == (completed(made / "colliding")[0],)


def test_a_service_that_another_zone_had_planned(made):
    found = findings(made / "backward")
    assert found["backward_completion_time"].severity is Severity.ERROR
    assert found.keys() <= {"backward_completion_time"}


def test_a_plan_that_is_aged_is_stuck(made):
    path = made / "planned"
    assert not findings(path)
    aged(timeline(path).glob("*.clustering.requested"), STUCK_S)
    assert findings(path).keys() == {"stuck_service"}


def test_a_heartbeat_that_is_aged_is_left_over(made):
    path = dead(made / "heartbeat_left")
    assert findings(path).keys() == {"leftover_heartbeat", "eager_cleaner"}


def test_a_write_that_is_dated_by_a_slower_clock_was_ahead(made):
    path = made / "long_write"
    assert not findings(path)
    last = completed(path)[-1]
    aged(timeline(path).glob(f"{last}*"), CLOCK_AHEAD_S)
    found = findings(path)
    assert found.keys() == {"clock_skew"}
    assert found["clock_skew"].instants == (last,)
    aged(timeline(path).glob(f"{last}*"), -CLOCK_AHEAD_S)


def test_writes_that_are_renamed_to_one_completion_time(made):
    path = made / "long_write"
    first, second = sorted(timeline(path).glob("*_*.commit"))
    stamp = first.name.partition("_")[2]
    renamed = second.rename(second.with_name(f"{second.name.partition('_')[0]}_{stamp}"))
    assert findings(path)["equal_completion_times"].instants == tuple(completed(path))
    renamed.rename(second)

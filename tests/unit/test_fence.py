"""What the table shows after a fence: a commit that came through it, and uncommitted files."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.commit import audit
from airflow_occ_provider.attempts.waits import dangling
from tests.support.hand_made_tables import T0, T1, add
from tests.support.rollbacks import EARLY, LATE, MADE, ROLLBACK, attempt, mark, roll_back


def loss(folder, table):
    add(folder, f"{T1}_{MADE}.commit", identity="me")
    snapshot = table.snapshot()
    (instant,) = snapshot.timeline.completed_writes()
    metadata = snapshot.reader.commit(instant)
    for path in metadata.paths:
        (folder.parent / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.parent / path).touch()
    return audit(table, snapshot, instant, metadata)


@pytest.mark.parametrize(
    ("rollback", "lost"),
    [
        (f"{ROLLBACK}_{EARLY}.rollback", False),
        (f"{ROLLBACK}_{LATE}.rollback", True),
        (f"{ROLLBACK}.rollback.requested", True),
    ],
)
def test_only_a_rollback_that_was_over_before_the_commit_took_nothing(folder, table, rollback, lost):
    roll_back(folder, T1, rollback)
    assert (loss(folder, table) is not None) == lost


@pytest.mark.parametrize(("committed", "visible"), [(T0, False), (LATE, True), (None, False)])
def test_markers_of_a_missing_instant_show_files_that_are_never_removed(
    folder,
    table,
    committed,
    visible,
):
    mark(folder, T1)
    if committed:
        add(folder, f"{committed}_{LATE}.commit")
    (found,) = dangling([attempt()], table.snapshot())
    assert (found.instant, found.files) == (T1, (f"p/f_1-0_{T1}.parquet",))
    assert found.visible == visible
    assert "HoodieRepairTool" in str(found.error())


def test_a_marker_without_its_file_is_none(folder, table):
    mark(folder, T1, written=False)
    assert dangling([attempt()], table.snapshot()) == ()


def test_an_instant_that_is_pending_or_whose_driver_was_seen_to_end_is_none(folder, table):
    mark(folder, T1)
    assert dangling([attempt("exit code 1")], table.snapshot()) == ()
    add(folder, f"{T1}.commit.requested")
    assert dangling([attempt()], table.snapshot()) == ()

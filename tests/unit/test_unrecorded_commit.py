"""A try that has no record of the tries before, and a clear that Airflow does not count."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts import commit as commits
from airflow_occ_provider.attempts.earlier_tries import EarlierTries
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import TryKey
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    FailedAfterCommitError,
    TableUnreadableError,
)
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task.run import due_ms, open_journal
from tests.support.earlier_tries import LOG, RULE
from tests.support.hand_made_tables import T0, T1, T2, C, add, archive
from tests.support.session_site import SITE
from tests.support.task_state import Instance, Store
from tests.support.unrecorded_commits import commit

DUE_S = 1_700_000_000  # of the run, by Airflow's clock
LONG_BEFORE = DUE_S - 86_400
SIGNED = Signature("first", "dag", "run", "task", map_index=3, try_number=1, site=SITE)


def begin(store, folder, number, max_tries=14, retries=2, due_s=DUE_S):
    """Look for the commit of an earlier try, as a try does before it runs."""
    context = {
        "task_state_store": store,
        "ti": Instance(number, max_tries),
        "task": SimpleNamespace(retries=retries),
    }
    run = open_journal(context)
    this_try = Signature(run.record.identity, "dag", "run", "task", 3, number, site=SITE)
    tries = EarlierTries(
        run,
        HudiTable,
        RULE,
        clean=lambda _: None,
        log=LOG,
        signature=this_try,
        due_ms=due_s * 1000,
    )
    return run, tries.commit(str(folder.parent), "d")


def test_a_try_without_a_record_does_not_write_again(folder):
    commit(folder, SIGNED)
    store = Store()
    with pytest.raises(CommitStateUnknownError, match=f"try 1 of this task run made commit {T1}"):
        begin(store, folder, 2)
    with pytest.raises(FailedAfterCommitError, match=f"commit {T1} is in the table"):
        begin(store, folder, 3)  # a retry
    run, found = begin(store, folder, 4, max_tries=17)  # a clear
    assert (found, run.record.identity == "first") == (None, False)


@pytest.mark.parametrize(
    "other",
    [
        Signature("i", "dag", "run", "task", 2, site=SITE),
        Signature("i", "dag", "run", "other", 3, site=SITE),
        Signature("i", "dag", "later", "task", 3, site=SITE),
        Signature("i", "else", "run", "task", 3, site=SITE),
        Signature("i", "dag", "run", "task", 3, site="there"),
    ],
)
def test_a_commit_of_another_run_or_task_is_none(folder, other):
    commit(folder, other)
    assert begin(Store(), folder, 2)[1] is None


def test_for_a_first_try_and_of_a_table_service_there_is_none(folder):
    commit(folder, SIGNED)
    assert begin(Store(), folder, 1)[1] is None
    commit(folder, SIGNED, "CLUSTER")
    assert begin(Store(), folder, 2)[1] is None


@pytest.mark.parametrize(
    ("last", "now", "cleared"),
    [
        (TryKey(1, 3, 3), TryKey(2, 4, 3), True),
        (TryKey(1, 3, 3), TryKey(2, 3, 2), True),  # retries were lowered before the clear
        (TryKey(1, 3, 3), TryKey(2, 3, 3), False),  # a retry
        (TryKey(2, 3, 3), TryKey(3, 3, 2), False),
        (TryKey(1, 3, 3), TryKey(1, 3, 2), False),  # the same try, continued
    ],
)
def test_a_clear_is_known_also_if_the_retries_were_changed(last, now, cleared):
    assert now.is_cleared_since(last) is cleared


# A commit that was archived since.


def written(path, at_s):
    os.utime(path, (at_s, at_s))
    return path


def damaged_history(folder):
    history = folder / "timeline" / "history"
    (history / "manifest_1").write_text('{"files": [{"fileName": "1_2_0.parquet", "fileLen": 1}]}')
    (history / "_version_").write_text("1")
    file = history / "1_2_0.parquet"
    file.write_bytes(b"no parquet")
    return file


@pytest.mark.parametrize(
    "remaining", [(), (T0, T2)], ids=["nothing active", "a savepoint keeps older ones"]
)
@pytest.mark.parametrize("due_s", [DUE_S, 0], ids=["due", "unknown"])
def test_a_commit_that_was_archived_since_is_not_written_again(folder, remaining, due_s):
    commit(folder, SIGNED)
    archive(folder, T1)
    for time in remaining:
        add(folder, f"{time}_{C}.commit", identity="another")
    with pytest.raises(CommitStateUnknownError, match=f"try 1 of this task run made commit {T1}"):
        begin(Store(), folder, 2, due_s=due_s)


def test_a_first_try_reads_no_archive(folder):
    damaged_history(folder)
    assert begin(Store(), folder, 1)[1] is None
    with pytest.raises(TableUnreadableError):
        begin(Store(), folder, 2)


def test_what_is_older_than_the_run_is_not_read(folder):
    add(folder, f"{T1}_{C}.commit")
    active = folder / "timeline" / f"{T1}_{C}.commit"
    active.write_bytes(b"cut")
    with pytest.raises(TableUnreadableError):
        begin(Store(), folder, 2)
    written(active, LONG_BEFORE)
    written(damaged_history(folder), LONG_BEFORE)
    assert begin(Store(), folder, 2)[1] is None


def test_clocks_may_differ(folder):
    commit(folder, SIGNED)
    archive(folder, T1)
    (file,) = (folder / "timeline" / "history").glob("*.parquet")
    written(file, DUE_S - 600)
    with pytest.raises(CommitStateUnknownError):
        begin(Store(), folder, 2)
    written(file, LONG_BEFORE)
    assert begin(Store(), folder, 2)[1] is None


def test_of_many_writes_only_the_youngest_are_read(folder, monkeypatch):
    commit(folder, SIGNED)
    add(folder, f"{T2}_{C}.commit")
    monkeypatch.setattr(commits, "MOST_UNRECORDED", 1)
    assert begin(Store(), folder, 2)[1] is None
    archive(folder, T1, T2)
    assert begin(Store(), folder, 2)[1] is None
    monkeypatch.setattr(commits, "MOST_UNRECORDED", 2)
    with pytest.raises(CommitStateUnknownError):
        begin(Store(), folder, 2)


def test_an_archive_that_cannot_be_read_is_told(folder, monkeypatch, caplog):
    damaged_history(folder)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with caplog.at_level("WARNING"):
        assert begin(Store(), folder, 2)[1] is None
    assert "no record of an earlier try" in caplog.text
    assert "pyarrow" in caplog.text


@pytest.mark.parametrize(
    ("run", "due_s"),
    [
        (None, 0),
        (SimpleNamespace(run_after=None, start_date=None), 0),
        (SimpleNamespace(run_after=DUE_S, start_date=DUE_S + 100), DUE_S),
        (SimpleNamespace(run_after=DUE_S + 100, start_date=DUE_S), DUE_S),  # started by hand before
        (SimpleNamespace(run_after=DUE_S, start_date=None), DUE_S),
    ],
)
def test_no_task_has_run_before_its_dag_run_was_due(run, due_s):
    for name, moment in vars(run).items() if run else ():
        setattr(run, name, moment and datetime.fromtimestamp(moment, UTC))
    assert due_ms({"dag_run": run}) == due_s * 1000


@pytest.mark.parametrize("ago", [timedelta(days=1), -timedelta(days=1)], ids=["before", "after"])
def test_the_operator_looks_for_commits_since_its_dag_run_was_due(scripted, ago):
    scripted.plan(("write", T1), ("end", 0))
    scripted.plan(("write", T2), ("end", 0))
    scripted.run(1)
    scripted.store.clear()
    task, context = scripted.task(2)
    context["dag_run"] = SimpleNamespace(run_after=datetime.now(UTC) - ago, start_date=None)
    if ago < timedelta():
        assert task.execute(context)["instant"] == T2
        return
    with pytest.raises(CommitStateUnknownError, match=f"made commit {T1}"):
        task.execute(context)

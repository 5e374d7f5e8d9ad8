"""A try that has no record of the tries before, and a clear that Airflow does not count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts.earlier_tries import EarlierTries
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record_parts import TryKey
from airflow_occ_provider.errors import CommitStateUnknownError, FailedAfterCommitError
from airflow_occ_provider.hooks.task_run import open_journal
from airflow_occ_provider.storage.table import HudiTable
from tests.unit.test_earlier_tries import LOG, RULE
from tests.unit.test_metadata import RECORD, avro
from tests.unit.test_record import Instance, Store
from tests.unit.test_table import T1, C

SIGNED = Signature("first", "dag", "run", "task", map_index=3, try_number=1, site="here")


def commit(folder, signature, operation="UPSERT"):
    record = {**RECORD, "operationType": operation, "extraMetadata": signature.options()}
    (folder / "timeline" / f"{T1}_{C}.commit").write_bytes(avro(record))
    for partition in ("p=1", "p=2", "p=3"):
        (folder.parent / partition).mkdir(exist_ok=True)


def begin(store, folder, number, max_tries=14, retries=2):
    """Look for the commit of an earlier try, as a try does before it runs."""
    context = {
        "task_state_store": store,
        "ti": Instance(number, max_tries),
        "task": SimpleNamespace(retries=retries),
    }
    run = open_journal(context)
    this_try = Signature(run.record.identity, "dag", "run", "task", 3, number, site="here")
    tries = EarlierTries(run, HudiTable, RULE, clean=lambda _: None, log=LOG, signature=this_try)
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
        Signature("i", "dag", "run", "task", 2, site="here"),
        Signature("i", "dag", "run", "other", 3, site="here"),
        Signature("i", "dag", "later", "task", 3, site="here"),
        Signature("i", "else", "run", "task", 3, site="here"),
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

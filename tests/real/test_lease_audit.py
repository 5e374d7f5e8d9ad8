"""After a real write: whether Hudi's commit lock was taken."""

from __future__ import annotations

import json

import pytest

from airflow_occ_provider.attempts.attempt import CommitLockAudit
from airflow_occ_provider.errors import MisconfigurationError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.storage.table import HudiTable
from tests.support.writers import LOCK_BASE_PATH, Writer

pytestmark = pytest.mark.real
ELSEWHERE = ("--jvm-option", "hoodie.write.lock.zookeeper.base_path=/elsewhere")


@pytest.fixture
def audit(hudi_stack, monkeypatch, tmp_path):
    extra = {"base_path": LOCK_BASE_PATH}
    value = {"conn_type": "hudi_zookeeper_lock", "host": hudi_stack.zookeeper.hosts, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
    table = HudiTable(str(tmp_path / "t"))

    def audit():
        lock = lock_hook("lock")
        made = CommitLockAudit(lock, lock.options(table.path), table)
        return made, made.count()

    return audit


def test_a_commit_without_the_lock_that_other_writers_take_is_reported(hudi_stack, tmp_path, audit):
    first, before = audit()
    made = Writer(hudi_stack, tmp_path / "t").run()
    first.refuse_unlocked(made.commit, before, first.count())
    second, before = audit()
    made = Writer(hudi_stack, tmp_path / "t", ELSEWHERE).run()
    with pytest.raises(MisconfigurationError, match="made without Hudi's lock") as refused:
        second.refuse_unlocked(made.commit, before, second.count())
    assert (refused.value.committed, refused.value.retry) == (True, False)

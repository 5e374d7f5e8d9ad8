"""A lost conflict, from its driver's real log and the table to the message for a person."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import LIMIT
from airflow_occ_provider.attempts.rivals import Rival, find_rival
from airflow_occ_provider.attempts.write import Write
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.storage.table import HudiTable
from tests.contract.in_memory_submitter import failing
from tests.support.avro_metadata import RECORD, avro
from tests.support.metric_contexts import Store, context
from tests.support.policies import with_policy
from tests.unit.reports import reported

LOG = Path(__file__).parents[1] / "golden" / "logs" / "commit_conflict_info.exit1.log"
OWN, RIVAL = re.search(r"instantTime=(\d+).*?instantTime=(\d+)", LOG.read_text()).groups()
C = "20261121235959999"
BY_TASK = {"identity": "x", "dag_id": "two_writers", "task_id": "write_b", "map_index": "-1"}
PLACES = ("p=1", "p=2")


def write(folder, *, signed=BY_TASK, operation="UPSERT"):
    """The loser is inflight with its profile; the winner, of the same file groups, is completed."""
    extra = {f"{SIGNATURE_PREFIX}{key}": value for key, value in signed.items()}
    record = {**RECORD, "operationType": "UPSERT", "extraMetadata": {}}
    timeline = folder / "timeline"
    (timeline / f"{OWN}.commit.requested").touch()
    (timeline / f"{OWN}.inflight").write_bytes(avro(record))
    won = {**record, "operationType": operation, "extraMetadata": extra}
    (timeline / f"{RIVAL}_{C}.commit").write_bytes(avro(won))


@pytest.mark.parametrize(
    ("signed", "operation", "expected"),
    [
        (BY_TASK, "UPSERT", ("two_writers", "write_b")),
        ({**BY_TASK, "map_index": "3"}, "UPSERT", ("two_writers", "write_b", "3")),
        ({}, "UPSERT", "an unsigned commit"),
        (BY_TASK, "COMPACT", "a table service"),
    ],
)
def test_the_winner_is_known_by_its_signature(folder, table, signed, operation, expected):
    write(folder, signed=signed, operation=operation)
    found = find_rival(table, OWN, RIVAL)
    assert found.writer == expected
    assert found.partitions == PLACES
    assert found.file_groups >= len(PLACES)


def test_what_the_table_does_not_show_is_left_out(folder, table):
    assert find_rival(table, OWN, RIVAL) == find_rival(table, OWN, None) == Rival()
    write(folder)
    assert find_rival(table, None, RIVAL) == Rival(("two_writers", "write_b"))
    (folder / "timeline" / f"{RIVAL}_{C}.commit").write_bytes(b"Obj\x01 no Avro")
    assert find_rival(HudiTable(table.path), OWN, RIVAL) == Rival()


@pytest.fixture
def lose(folder, table, caplog, queue):
    """Settle an attempt that lost a conflict; its settlement, and what the task's log got."""

    def lose(counts=None, *, number=1, scope=None, is_pending=False, **given):
        write(folder)
        if is_pending:
            (folder / "timeline" / f"{RIVAL}_{C}.commit").rename(
                folder / "timeline" / f"{RIVAL}.inflight"
            )
            (folder / "timeline" / f"{RIVAL}.commit.requested").touch()
            (folder / ".heartbeat" / RIVAL).touch()
        with DAG("d", schedule=None):
            task = HudiWriteOperator(
                task_id="t", application="a.py", table=table.path, scope=scope, **with_policy(given)
            )
        store = Store()
        mine = {**context("t", store), "task": task}
        mine["ti"].try_number = number
        store.set("hudi_retries", {"max_tries": mine["ti"].max_tries, "counts": counts or {}})
        protected = task._protected_run(mine)
        write_attempt = replace(Write(protected).write_attempt(), log=logging.getLogger("test"))
        signature = Signature("me", "d", "r", "t")
        driver = Driver(failing(reported(LOG.read_text().splitlines())))
        attempt = write_attempt.attempt(driver, signature, {})
        attempt.watch()
        caplog.clear()
        with caplog.at_level(logging.INFO, "test"):
            settlement = attempt.settle(is_judged=True)
        return settlement.error(), [record for record in caplog.records if record.name == "test"], mine

    return lose


def test_the_failed_trys_log_says_first_what_a_person_needs(lose):
    error, (first, second, *rest), mine = lose()
    assert first.levelno == logging.ERROR
    assert first.message == error.message
    assert first.message.startswith(
        f"Conflict: {OWN} lost to {RIVAL} (two_writers / write_b) in p=1 and p=2 "
    )
    assert " wasted. Next try: queued on " in first.message
    assert len(first.message) < LIMIT
    assert second.message.startswith(f"Outcome: commit_conflict (instant {OWN}, ")
    by_hudi = [one.message for one in rest if "HoodieWriteConflictException" in one.message]
    assert len(by_hudi) == 1
    assert isinstance(error, WriteConflictError)
    policy = HudiConflictRetryPolicy(base_delay=timedelta(0))
    assert error.message in policy.evaluate(error, 1, 5, mine).reason


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "Next try: queued on them."),
        ({"scope": "q=1"}, "Next try: queued on 3 partitions."),
        ({"admission": "off"}, "Next try: not queued."),
        ({"is_pending": True}, f"Next try: once {RIVAL} has ended."),
        ({"counts": {"conflict": 5}}, "Next try: none."),
        ({"number": 6}, "Next try: none."),
        ({"retry_policy": None}, "Next try: queued on them."),
    ],
)
def test_the_next_try_is_named_as_far_as_it_is_known(lose, given, expected):
    assert lose(**given)[0].message.endswith(expected)

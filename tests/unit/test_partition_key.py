"""The run's partition key as the scope of a task that names none."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts.scope import inherited
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.operators.hudi_sql import HudiSqlOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

TABLE = "/lake/trips"
KEY = "2026-11-29"
BY_DAY = {
    "hoodie.table.name": "trips",
    "hoodie.table.partition.fields": "dt",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}


def claim_of(properties=BY_DAY, key=KEY, kind=HudiWriteOperator, **arguments):
    job = {"application": "job.py"} if kind is HudiWriteOperator else {}
    task = kind(task_id="t", table=TABLE, **job, **arguments)
    table = SimpleNamespace(scheme="file", path=TABLE, config=lambda: TableConfig(properties))
    return task.spec({"partition_key": key}).claim(table, logging.getLogger("task"))


def test_a_run_of_a_partition_writes_it_alone():
    scope = claim_of().scope({}, None)
    assert scope == Scope.of(TABLE, ["dt=2026-11-29"], Mode.EXCLUSIVE)


def test_what_the_user_names_goes_before_the_key():
    assert claim_of(scope=["dt=2026-11-28"]).partitions == ("dt=2026-11-28",)


def test_options_of_the_job_say_how_its_partitions_are_spelled():
    slashes = {"hoodie.datasource.write.slash.separated.date.partitioning": True}
    assert claim_of(hudi_options=slashes).partitions == ("dt=2026/11/29",)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"properties": {}}, "there is no table yet"),
        (
            {"properties": {**BY_DAY, "hoodie.table.partition.fields": "dt,hour"}},
            "it is no value of a single partition field",
        ),
        ({"isolation": "serializable"}, "isolation='serializable' needs a scope that is certain"),
        (
            {
                "kind": HudiSqlOperator,
                "sql": "MERGE INTO trips USING s ON trips.id = s.id WHEN MATCHED THEN UPDATE SET *",
            },
            "isolation='serializable' needs a scope that is certain",
        ),
    ],
)
def test_a_key_that_is_no_certain_scope_is_left_and_why_is_logged(arguments, why, caplog):
    caplog.set_level(logging.INFO)
    assert claim_of(**arguments).partitions is None
    assert f"The run's partition key '{KEY}' is not taken for the scope: {why}." in caplog.text


def test_an_overwrite_holds_the_whole_table_as_without_a_key():
    insert = "INSERT OVERWRITE trips SELECT * FROM s"
    claims = [claim_of(kind=HudiSqlOperator, sql=insert), claim_of()]
    options = [{}, {"hoodie.datasource.write.operation": "insert_overwrite"}]
    for claim, of_job in zip(claims, options, strict=True):
        assert claim.scope(of_job, None) == Scope.of(TABLE, None, Mode.EXCLUSIVE)


def test_a_key_that_the_table_cannot_have_by_itself_is_no_error_of_the_user():
    style = {"hoodie.datasource.write.hive_style_partitioning": "true"}
    plain = {key: value for key, value in BY_DAY.items() if key not in style}
    claim = claim_of(plain, hudi_options=style)
    claim.refuse_impossible(TableConfig(plain))
    assert claim.partitions == ("dt=2026-11-29",)


@pytest.mark.parametrize(
    "arguments",
    [{"key": None}, {"policy": {"admission": "off"}}, {"policy": {"partition_key": False}}],
)
def test_without_a_key_or_a_queue_there_is_nothing_to_say(arguments, caplog):
    caplog.set_level(logging.INFO)
    assert claim_of(**arguments).partitions is None
    assert "partition key" not in caplog.text


def test_a_lease_of_the_run_that_does_not_cover_it_is_taken_as_it_is():
    other_day = Scope.of(TABLE, ["dt=2026-11-28"])
    lease = QueuedRequest(Request("l", Owner(("d", "r")), (other_day,), 1000), "n", (1,), 0)
    claim = claim_of()
    assert inherited(claim.scope({}, None), claim.declared({}), [lease]) == other_day


def test_nothing_is_learned_beside_it(caplog):
    caplog.set_level(logging.INFO)
    assert not claim_of(policy={"learn_scope": True}).learns
    assert "learn_scope has no effect: scope is given." in caplog.text

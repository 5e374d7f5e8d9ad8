"""``@task.hudi_write``: registered, checked when the DAG is parsed, and run by its source text."""

from __future__ import annotations

import base64
import pickle
from collections import OrderedDict
from datetime import date, timedelta
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.sdk import DAG, Asset, task
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from airflow.serialization.serialized_objects import DagSerialization

from airflow_occ_provider.decorators.hudi_write import hudi_write_task
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.in_driver import run_function
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

TABLE = "s3a://lake/trips"


@pytest.fixture
def dag():
    with DAG("d", schedule=None) as dag:
        yield dag


def call(job):
    path, (table, name, source, arguments) = job.application(None)
    assert (path, table) == (run_function.__file__, TABLE)
    return name, source, pickle.loads(base64.b64decode(arguments))


def test_airflow_knows_the_decorator():
    assert ProvidersManagerTaskRuntime().taskflow_decorators["hudi_write"] is hudi_write_task


def test_a_function_gets_its_arguments_and_what_it_names_of_the_context(dag):
    @task.hudi_write(table=TABLE, scope=["dt={{ ds }}"], lock_conn_id="lock")
    def trips(spark, day, number=2, ds=None):
        # a comment
        return spark.range(number).selectExpr(f"'{day}' as day", f"'{ds}' as ds")

    trips("{{ ds }}", number=3)
    one = dag.task_dict["trips"]
    assert isinstance(one, HudiWriteOperator)
    assert one.application == __file__
    one.render_template_fields({"ds": "2026-11-23"})
    name, source, arguments = call(one.job({"ds": "2026-11-23", "ti": object()}))
    assert name == "trips"
    assert arguments == {"day": "2026-11-23", "ds": "2026-11-23", "number": 3}
    assert one.scope == ["dt=2026-11-23"]
    spark = SimpleNamespace(range=lambda n: SimpleNamespace(selectExpr=lambda *given: (n, given)))
    assert run_function.defined(name, source)(**arguments, spark=spark) == (
        3,
        ("'2026-11-23' as day", "'2026-11-23' as ds"),
    )


def test_annotations_are_not_evaluated():
    source = "def f(spark: SparkSession) -> DataFrame:\n    return spark\n"
    assert run_function.defined("f", source)(1) == 1


def test_it_can_be_mapped_and_serialized(dag):
    @task.hudi_write(table=TABLE)
    def trips(spark, day):
        return None

    trips.expand(day=["a", "b"])
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert again.task_dict["trips"].is_mapped


class OfThisModule:
    """A class that only this process can import."""


def test_a_value_that_only_this_process_has_is_refused(dag):
    @task.hudi_write(table=TABLE)
    def trips(spark, ds=None):
        return None

    trips()
    for value, said in (
        ((n for n in ()), r"ds is a builtins\.generator"),
        (ParamsDict({"a": 1}), r"ds is a airflow\..*ParamsDict, .* it needs airflow,"),
        ({"deep": [OfThisModule()]}, r"ds is a builtins\.dict, .* it needs tests,"),
        ({"deep": [Asset("a"), Asset("b")]}, r"ds is a builtins\.dict, .* it needs airflow,"),
        (pendulum.duration(days=1), r"ds is a pendulum.*, .* it needs pendulum,"),
    ):
        with pytest.raises(ConfigurationError, match=f"^op_kwargs: {said}"):
            dag.task_dict["trips"].job({"ds": value}).work()
    plain = [1, 2.5, "x", None, b"x", (1, {2}), Decimal(1), date(2026, 1, 1), timedelta(1), UUID(int=1)]
    for value in (plain, pendulum.now("Europe/Rome"), OrderedDict(a=plain), ZoneInfo("UTC")):
        _, _, arguments = call(dag.task_dict["trips"].job({"ds": value}))
        assert arguments["ds"] == value


@pytest.mark.parametrize("name", ["ti", "dag_run", "task_instance", "var", "outlet_events"])
def test_an_object_of_airflow_is_refused_when_the_dag_is_parsed(dag, name):
    space = {}
    exec(f"def trips(spark, city, {name}=None): ...", space)  # noqa: S102 - a name per case
    made = hudi_write_task(space["trips"], table=TABLE)
    for make in (lambda: made("rome"), lambda: made.expand(city=["rome"])):
        with pytest.raises(ConfigurationError, match=f"^op_kwargs: {name} is an object of Airflow"):
            make()


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (lambda: None, {}, "needs a parameter spark"),
        (lambda *spark: None, {}, "needs a name"),
        (lambda spark, /: None, {}, "needs a name"),
        (lambda spark: None, {"sql": "DELETE FROM trips"}, "takes no sql"),
        (lambda spark: None, {"application": "job.py"}, "takes no application"),
    ],
)
def test_a_wrong_function_is_refused_when_the_dag_is_parsed(dag, function, given, said):
    with pytest.raises(TypeError, match=said):
        task.hudi_write(table=TABLE, task_id="t", **given)(function)()


class Properties(dict):
    stringPropertyNames, getProperty = dict.keys, dict.get  # noqa: N815 - as in Java


def test_the_tables_own_description_is_written_unless_an_option_was_given(monkeypatch):
    described = {"hoodie.table.name": "trips", "hoodie.datasource.write.recordkey.field": "k"}
    monkeypatch.setattr(run_function, "options_of", lambda *_: described.items())
    for given, expected in (
        (Properties(), {**described, run_function.OPERATION: "upsert"}),
        (
            Properties({run_function.OPERATION: "insert", "hoodie.table.name": "x", "hoodie.a": "b"}),
            {**described, "hoodie.table.name": "x", run_function.OPERATION: "insert"},
        ),
    ):
        written = {}
        config = SimpleNamespace(getGlobalProps=lambda given=given: given)
        hudi = SimpleNamespace(
            common=SimpleNamespace(config=SimpleNamespace(DFSPropertiesConfiguration=config))
        )
        spark = SimpleNamespace(
            _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hudi=hudi)))
        )
        run_function.write(spark, TABLE, SimpleNamespace(write=Frame(written)))
        assert written == {"format": "hudi", "mode": "append", "save": TABLE, **expected}


class Frame:
    def __init__(self, written):
        self.written = written

    def __getattr__(self, name):
        def note(*values, **options):
            self.written.update(options or {name: values[0]} if values or options else {})
            return self

        return note

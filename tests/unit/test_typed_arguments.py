"""Arguments by type: what a template renders, what Python gives, and what is refused at once."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.attempts.write_spec import WritePolicy
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_incremental_read import HudiIncrementalReadOperator
from airflow_occ_provider.operators.hudi_sql import HudiSqlOperator
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
from airflow_occ_provider.operators.hudi_table_service import (
    HudiClusteringOperator,
    HudiCompactionOperator,
)
from airflow_occ_provider.operators.hudi_trigger_dag_run import HudiTriggerDagRunOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator
from airflow_occ_provider.sensors.commit import HudiCommitSensor
from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
from airflow_occ_provider.sensors.idle import HudiTableIdleSensor
from airflow_occ_provider.sensors.incremental_window import HudiIncrementalWindowSensor
from airflow_occ_provider.sensors.lease import HudiLeaseSensor
from airflow_occ_provider.task.arguments import TYPES, TypedArguments
from tests.support.policies import with_policy

MADE = {
    HudiWriteOperator: {"table": "/t", "application": "a.py"},
    HudiSqlOperator: {"table": "/t", "sql": "DELETE FROM t"},
    HudiStreamerOperator: {"table": "/t"},
    HudiCleanOperator: {"table": "/t"},
    HudiClusteringOperator: {"table": "/t", "op": "run"},
    HudiCompactionOperator: {"table": "/t", "op": "run"},
    HudiIncrementalReadOperator: {"table": "/t", "consumer": "c", "application": "a.py"},
    HudiTriggerDagRunOperator: {"table": "/t", "trigger_dag_id": "d"},
    HudiLeaseOperator: {"tables": ["/t"]},
    HudiCommitSensor: {"table": "/t"},
    HudiHeartbeatSensor: {"table": "/t"},
    HudiTableIdleSensor: {"table": "/t"},
    HudiIncrementalWindowSensor: {"table": "/t", "consumer": "c"},
    HudiLeaseSensor: {"table": "/t"},
}
LISTS = ("scope", "tables", "partitions", "operations", "instants", "streamer_args")
NAMES = ["/a=1", "/b=2"]


def make(kind, **given):
    with DAG("d", schedule=None):
        return kind(**{"task_id": "t", **MADE[kind], **with_policy(given)})


def arguments(*, templated, types):
    for kind in MADE:
        task = make(kind)
        for name in task._argument_names():
            if (name in task.template_fields) is templated and TYPES.get(name) in types:
                yield kind, name


def of(name):
    return TYPES[name]


LIST_TYPES, SWITCH = {of("scope"), of("streamer_args")}, {of("deferrable")}
MAPPING = {of("signed"), of("hudi_options")}
DURATION = {of("wait_timeout")}


def rendered(kind, name, value, context=None):
    task = make(kind, **{name: value})
    task.render_template_fields(context or {})
    return getattr(task, name)


def test_every_operator_and_sensor_with_a_table_has_typed_arguments():
    assert all(issubclass(kind, TypedArguments) for kind in MADE)
    templated = {name for _, name in arguments(templated=True, types=LIST_TYPES)}
    assert templated == set(LISTS)


@pytest.mark.parametrize(("kind", "name"), arguments(templated=True, types=LIST_TYPES))
def test_a_list_is_a_list_however_it_arrives(kind, name):
    names = ["20261121000000000", "20261121000000001"] if name == "instants" else NAMES
    context = {"given": names, "params": SimpleNamespace(given=names)}
    assert rendered(kind, name, names) == names
    assert rendered(kind, name, tuple(names)) == names
    assert rendered(kind, name, str(names)) == names
    assert rendered(kind, name, "{{ given }}", context) == names
    assert rendered(kind, name, "{{ given | tojson }}", context) == names
    assert rendered(kind, name, ["{{ given[0] }}", names[1]], context) == names
    if name != "streamer_args":
        assert rendered(kind, name, ["{{ given }}"], context) == names
    for wrong in ("{{ none }}", "[{{ given[0] }}", "{{ {'a': 1} }}", "[None]", "[1.5]"):
        with pytest.raises(ConfigurationError, match=f"^{name}: "):
            rendered(kind, name, wrong, context)


@pytest.mark.parametrize(("kind", "name"), arguments(templated=True, types=MAPPING))
def test_a_dictionary_is_one_however_it_arrives(kind, name):
    value = {"dag_id": "x"} if name == "signed" else {"hoodie.a": "1"}
    for given in (value, str(value), "{{ given }}", "{{ given | tojson }}"):
        assert rendered(kind, name, given, {"given": value}) == value
    with pytest.raises(ConfigurationError, match=f"^{name}: .* no dictionary"):
        rendered(kind, name, "{{ given }}", {"given": [1]})


def test_a_rendered_isolation_is_the_one_that_it_names():
    for value in Isolation:
        assert rendered(HudiWriteOperator, "isolation", value) is value
        assert rendered(HudiWriteOperator, "isolation", value.value) is value
        assert rendered(HudiWriteOperator, "isolation", "{{ given }}", {"given": value.value}) is value
    with pytest.raises(ConfigurationError, match=r"^isolation: 'maybe'.* 'snapshot', 'serializable'"):
        rendered(HudiWriteOperator, "isolation", "{{ given }}", {"given": "maybe"})


def refused(kind, name, value):
    with pytest.raises(ConfigurationError) as caught:
        make(kind, **{name: value})
    assert caught.value.message.startswith(f"{name}: ")
    return caught.value.message


@pytest.mark.parametrize(("kind", "name"), arguments(templated=False, types=SWITCH))
def test_a_switch_that_is_no_template_refuses_one(kind, name):
    assert getattr(make(kind, **{name: "off"}), name) is False
    assert "no template" in refused(kind, name, "{{ params.x }}")
    assert "neither true nor false" in refused(kind, name, None)


@pytest.mark.parametrize(("kind", "name"), arguments(templated=False, types=DURATION))
def test_a_duration_is_a_timedelta_or_seconds(kind, name):
    for given in (timedelta(minutes=1), 60, 60.0, "60"):
        assert getattr(make(kind, **{name: given}), name) == timedelta(minutes=1)
    for wrong in ("1h", None, True, -1, float("nan"), [60]):
        refused(kind, name, wrong)
    assert "no template" in refused(kind, name, "{{ params.x }}")


@pytest.mark.parametrize("kind", MADE)
def test_no_argument_that_is_not_rendered_takes_a_template(kind):
    task = make(kind)
    plain = {name for name in task._argument_names() if name not in task.template_fields}
    given = set(MADE[kind]) - {"consumer"}
    for name in plain - given - {"retries", "retry_delay", "outlets", "inlets", "poke_interval"}:
        with pytest.raises((ConfigurationError, TypeError)):
            make(kind, **{name: "{{ params.x }}"})


def test_switches_agree_on_true_and_false():
    off = WritePolicy(early_stop=False, admission="False", early_conflict_detection=False)
    assert (off.early_stop, off.admission, off.early_conflict_detection) == ("off", "off", "off")
    on = WritePolicy(early_stop=True, admission=True, early_conflict_detection="true")
    assert (on.early_stop, on.admission, on.early_conflict_detection) == (EarlyStop.ACT, "queue", "on")


SINGLE = {"hoodie.write.concurrency.mode": "SINGLE_WRITER"}
WRONG = [
    ({"table": "trips"}, "table"),
    ({"table": ""}, "table"),
    ({"scope": []}, "scope"),
    ({"scope": [None]}, "scope"),
    ({"scope": "dt=1/.."}, "scope"),
    ({"hudi_options": ["a"]}, "hudi_options"),
    ({"hudi_options": SINGLE}, "hudi_options"),
    ({"hudi_options": str(SINGLE)}, "hudi_options"),
    ({"hudi_options": {"hoodie.clean.failed.writes.policy": "EAGER", "a": "{{ x }}"}}, "hudi_options"),
    ({"conf": {f"spark.{key}": value for key, value in SINGLE.items()}}, "conf"),
    ({"conf": {"spark.remote": "sc://host"}}, "conf"),
    ({"conf": {"spark.serializer": "x"}}, "conf"),
    ({"early_conflict_detection": "{{ params.x }}"}, "early_conflict_detection"),
    ({"early_stop": "later"}, "early_stop"),
    ({"admission": "off", "isolation": "serializable"}, "admission"),
    ({"isolation": "read_committed"}, "isolation"),
    ({"isolation": True}, "isolation"),
    ({"sql": "DELETE FROM t; INSERT INTO t SELECT 1"}, "sql"),
    ({"sql": "DROP TABLE t"}, "sql"),
    ({"sql": "SELECT 1"}, "sql"),
    ({"sql": "INSERT INTO t SELECT 'open"}, "sql"),
    ({"sql": "INSERT INTO t SELECT 1; DELETE FROM other"}, "sql"),
]


@pytest.mark.parametrize(("given", "field"), WRONG)
def test_a_value_that_can_never_work_is_refused_when_the_dag_is_parsed(given, field):
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        make(HudiSqlOperator if "sql" in given else HudiWriteOperator, **given)


@pytest.mark.parametrize(
    "given",
    [
        {"table": "{{ params.table }}"},
        {"scope": "{{ params.scope }}"},
        {"hudi_options": "{{ params.options }}"},
        {"sql": "DELETE FROM {{ params.name }}; DELETE FROM x"},
        {"sql": "jobs/two.sql"},
        {"sql": "CREATE TEMPORARY VIEW v AS SELECT 1; DELETE FROM t WHERE a = 1"},
    ],
)
def test_what_only_rendering_can_tell_is_not_judged_before(given):
    make(HudiSqlOperator if "sql" in given else HudiWriteOperator, **given)

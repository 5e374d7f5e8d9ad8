from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred

from airflow_occ_provider.errors import ConfigurationError, OccError
from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from tests.unit.beating import BeatingTable, instant

LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


def sensor(table, **given):
    arguments = {"interval_ms": 1000, "poke_interval": 0.05, "timeout": 0.3, "deferrable": False}
    return HudiHeartbeatSensor(task_id="s", table=str(table.path), **{**arguments, **given})


def told(*pairs):
    return [(writer["instant"], writer["fate"]) for writer in pairs]


def test_a_table_without_heartbeats(table):
    time_ = table.begin(1, LONG_AGO_MS)
    assert told(*sensor(table).execute({})) == [(time_, "dead")]
    assert told(*sensor(table, deferrable=True).execute({})) == [(time_, "dead")]


def test_a_table_with_a_live_writer(table):
    table.begin(1, round(time.time() * 1000) + 60_000)
    with pytest.raises(AirflowSensorTimeout):
        sensor(table).execute({})


def test_it_waits_in_the_triggerer(table):
    time_ = table.begin(1, round(time.time() * 1000) + 60_000)
    one = sensor(table, deferrable=True, timeout=60, until=["dead"], match="any", instants=[time_])
    begun_ms = round(time.time() * 1000)
    with pytest.raises(TaskDeferred) as deferred:
        one.execute({})
    _, arguments = deferred.value.trigger.serialize()
    assert begun_ms + 60_000 <= arguments.pop("deadline_ms") <= round(time.time() * 1000) + 60_000
    assert arguments == {
        "table": str(table.path),
        "storage_conn_id": None,
        "instants": [time_],
        "writer_task_id": None,
        "until": ["dead"],
        "match": "any",
        "poll_s": 0.05,
        "interval_ms": 1000,
        "tolerable_misses": 2,
    }
    writers = [{"instant": time_, "action": "commit", "fate": "dead", "last_tick_ms": 1}]
    assert one.execute_complete({}, {"status": "reached", "writers": writers}) == writers
    with pytest.raises(OccError, match="no such thing"):
        one.execute_complete({}, {"status": "error", "message": "no such thing"})
    with pytest.raises(AirflowSensorTimeout, match=r"the writers of .* were not dead within 60 s"):
        one.execute_complete({}, {"status": "timeout"})


def test_it_starts_in_the_triggerer_with_the_triggers_own_arguments(table):
    with DAG("d"):
        one = sensor(table, deferrable=True, start_from_trigger=True, instants="{{ params.instant }}")
    other = sensor(table, deferrable=True).start_trigger_args
    given = one.start_trigger_args
    assert one.start_from_trigger
    assert given.trigger_cls == HudiHeartbeatTrigger.serialize(one._trigger())[0]
    assert HudiHeartbeatTrigger(**given.trigger_kwargs).instants == "{{ params.instant }}"
    assert given.timeout == timedelta(seconds=0.3)
    assert other is None  # those of one task are not another's
    assert not sensor(table, start_from_trigger=True).start_from_trigger


def test_mapped_tasks_begin_in_a_worker():
    with DAG("d"):
        given = {"task_id": "s", "deferrable": True, "start_from_trigger": True}
        mapped = HudiHeartbeatSensor.partial(**given).expand(table=["/a", "/b"])
    assert mapped.start_trigger_args is None  # Airflow would start the trigger without its table


def test_the_poll_follows_the_interval(table):
    default = HudiHeartbeatSensor(task_id="s", table="/t")
    assert default.poke_interval == 15


def test_a_tasks_own_writes(table):
    mine = table.begin(1, LONG_AGO_MS)
    table.begin(2, round(time.time() * 1000) + 60_000)
    answers = iter([None, [mine]])
    asked = []

    def xcom_pull(**given):
        asked.append(given)
        return next(answers)

    context = {"ti": SimpleNamespace(xcom_pull=xcom_pull)}
    found = sensor(table, writer_task_id="write", timeout=5).execute(context)
    assert told(*found) == [(mine, "dead")]
    assert asked == [{"task_ids": "write", "key": "hudi_instants"}] * 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"until": ["ill"]}, "'ill' is not a valid Fate"),
        ({"match": "most"}, "'most' is not a valid Match"),
        ({"interval_ms": 0}, "interval_ms: '0' is no whole number of 1 or more"),
        ({"tolerable_misses": 0}, "tolerable_misses: '0' is no whole number of 1 or more"),
        ({"match": "any", "until": ["committed"]}, "none of those has ended"),
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_parsed(table, given, words):
    with pytest.raises(ConfigurationError, match=words):
        sensor(table, **given)


def test_a_table_that_is_not_there_is_asked_again(tmp_path):
    with pytest.raises(AirflowSensorTimeout):
        sensor(SimpleNamespace(path=tmp_path)).execute({})


def test_a_missing_instant_is_reported(table):
    assert told(*sensor(table, instants=instant(9)).execute({})) == [(instant(9), "gone")]


def test_an_unchanged_state_is_logged_once(table, capsys, caplog):
    time_ = table.begin(1, round(time.time() * 1000) + 60_000)
    with pytest.raises(AirflowSensorTimeout):
        sensor(table).execute({})
    assert (capsys.readouterr().out + caplog.text).count(f"{time_} is alive.") == 1

"""The values of Hudi's options: numbers and other types, from each place that names them."""

from __future__ import annotations

from argparse import ArgumentTypeError
from decimal import Decimal

import pytest
from airflow.models.connection import Connection

from airflow_occ_provider import cli
from airflow_occ_provider.attempts.jobs import refuse_unsafe_arguments
from airflow_occ_provider.attempts.site import ELSEWHERE, Site, Source
from airflow_occ_provider.attempts.submission import SparkJob, effective_options
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import (
    FILE_LOCK_EXPIRE,
    INTERVAL_OPTION,
    LOCK_PROVIDER,
    RETRIES_IN_JOB,
    TOLERABLE_MISSES_OPTION,
    job_rules,
)
from airflow_occ_provider.in_driver import run_job
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
from airflow_occ_provider.sensors.idle import HudiTableIdleSensor

JOB = SparkJob("job.py")
WRONG = [
    *(
        (INTERVAL_OPTION, value)
        for value in ("60s", "", "6e4", "0", "-1", "999", "60_000", "\uff16000", "9" * 10)
    ),
    *((TOLERABLE_MISSES_OPTION, value) for value in ("two", "0", "-1", "2.0")),
    *((RETRIES_IN_JOB, value) for value in ("none", "-1", "²")),
    *((FILE_LOCK_EXPIRE, value) for value in ("5m", "-1", "²")),
]
RIGHT = {
    INTERVAL_OPTION: "1000",
    TOLERABLE_MISSES_OPTION: "1",
    RETRIES_IN_JOB: "0",
    FILE_LOCK_EXPIRE: "0",
}


def of_options(options):
    effective_options({}, options, JOB, ELSEWHERE)


def of_conf(options):
    conf = {f"spark.{key}": value for key, value in options.items()}
    effective_options({}, {}, SparkJob("job.py", conf=conf), ELSEWHERE)


def of_spark_defaults(options):
    source = Source(
        "spark-defaults.conf", tuple((f"spark.{key}", value) for key, value in options.items())
    )
    effective_options({}, {}, JOB, Site(source))


def of_hudi_defaults(options):
    source = Source("hudi-defaults.conf", tuple(options.items()))
    effective_options({}, {}, JOB, Site(Source("spark", ()), (source,)))


def of_the_dag(options):
    HudiWriteOperator(task_id="t", application="job.py", table="/lake/t", hudi_options=options)


def of_streamer(options):
    arguments = [f"--hoodie-conf={key}={value}" for key, value in options.items()]
    refuse_unsafe_arguments(["--target-base-path", "/lake/t", *arguments], "/lake/t")


def of_the_connection(options):
    lines = "\n".join(
        f"{key}={value}" for key, value in {LOCK_PROVIDER: "org.acme.Lock", **options}.items()
    )
    connection = Connection(conn_id="c", conn_type="x", extra={"hudi_lock_options": lines})
    assert HudiZookeeperLockHook("c", connection).hudi_lock


def of_the_driver(options):
    rules = [rule._asdict() for rule in job_rules({})]
    problem = run_job.contradiction(options.items(), rules, "the session")
    if problem:
        raise ConfigurationError("the session", problem, remedy="")


PLACES = [
    of_options,
    of_conf,
    of_spark_defaults,
    of_hudi_defaults,
    of_the_dag,
    of_the_connection,
    of_the_driver,
]


@pytest.mark.parametrize("place", [*PLACES, of_streamer])
@pytest.mark.parametrize(("key", "value"), WRONG)
def test_an_option_that_is_read_as_a_number_is_one_wherever_it_is_set(place, key, value):
    with pytest.raises(ConfigurationError) as refused:
        place({key: value})
    assert key in str(refused.value)
    assert "give a whole number" in str(refused.value) or place is of_streamer


@pytest.mark.parametrize("place", PLACES)
def test_right_numbers_are_accepted(place):
    place(RIGHT)


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (60_000, "60000"), (0.5, "0.5"), (Decimal("1.50"), "1.50"), ("x", "x"), ("", "")],
)
def test_a_value_of_an_option_is_what_hudi_reads(value, text):
    assert effective_options({}, {"hoodie.a": value}, JOB, ELSEWHERE) == {"hoodie.a": text}
    task = HudiWriteOperator(
        task_id="t", application="job.py", table="/lake/t", hudi_options={"hoodie.a": value}
    )
    assert task.hudi_options == {"hoodie.a": text}


def test_an_option_without_a_value_leaves_that_of_the_site():
    site = Site(Source("spark", ()), (Source("hudi-defaults.conf", (("hoodie.a", "of the site"),)),))
    assert effective_options({}, {"hoodie.a": None, "hoodie.b": None}, JOB, site) == {
        "hoodie.a": "of the site"
    }


@pytest.mark.parametrize("value", [["a", "b"], {"a"}, {"a": 1}, b"a", object(), ("a",)])
def test_a_value_that_is_no_text_number_or_boolean_is_refused(value):
    for place in (of_options, of_conf, of_the_dag):
        with pytest.raises(ConfigurationError, match=r"hoodie\.a is .*Remedy: give text"):
            place({"hoodie.a": value})


def test_a_property_for_hudi_without_a_value_is_refused_and_one_of_spark_is_sparks():
    with pytest.raises(ConfigurationError, match=r"^conf: spark\.hoodie\.a is NoneType"):
        of_conf({"hoodie.a": None})
    conf = {"spark.x": None, "spark.y": ["a"]}
    assert effective_options({}, {}, SparkJob("job.py", conf=conf), ELSEWHERE) == {}


@pytest.mark.parametrize("field", ["interval_ms", "tolerable_misses"])
@pytest.mark.parametrize("value", [0, -1, "60s", None, True, 1.5, "²"])
def test_no_sensor_counts_every_neighbour_as_dead(field, value):
    for sensor, more in ((HudiHeartbeatSensor, {"instants": ["1"]}), (HudiTableIdleSensor, {})):
        with pytest.raises(ConfigurationError, match=rf"^{field}: .*no whole number of 1 or more"):
            sensor(task_id="t", table="/lake/t", **more, **{field: value})


def test_a_sensor_reads_a_number_from_text():
    sensor = HudiTableIdleSensor(task_id="t", table="/lake/t", interval_ms="2000", tolerable_misses=5)
    assert HeartbeatRule(sensor.interval_ms, sensor.tolerable_misses) == HeartbeatRule(2000, 5)


@pytest.mark.parametrize("argument", [cli._INTERVAL, cli._MISSES])
def test_no_command_counts_every_writer_as_dead(argument):
    read = argument.kwargs["type"]
    assert read("5000") == 5000
    for text in ("0", "-1", "60s", "²", ""):
        with pytest.raises(ArgumentTypeError, match="not a whole number of 1 or more"):
            read(text)

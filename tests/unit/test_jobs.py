"""The kinds of jobs: what runs them, what is refused, and what counts as the same work."""

from __future__ import annotations

import base64
import logging
import pickle
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pendulum
import pytest
from airflow.sdk import DAG

from airflow_occ_provider.attempts.jobs import (
    Function,
    JobFile,
    MainClass,
    PythonFile,
    Sql,
    refuse_unsafe_arguments,
    spark_job,
)
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.submission import driver_input, effective_options
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.options import CATALOG, SERIALIZER, SPARK_SETTINGS
from airflow_occ_provider.in_driver import run_function, run_main, run_sql
from airflow_occ_provider.in_driver.run_main import STREAMER
from airflow_occ_provider.operators.hudi_sql import HudiSqlOperator
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.support.policies import with_policy

TABLE = "/lake/trips"
UPDATE = "UPDATE trips SET v = 1"


def table(**properties):
    return SimpleNamespace(scheme="file", path=TABLE, config=lambda: TableConfig(properties))


TRIPS = table(**{"hoodie.table.name": "trips"})


def job_of(task):
    return task.job({})


def claim_of(task):
    return task.spec({}).claim(TRIPS, logging.getLogger("task"))


def write(**given):
    kind = HudiSqlOperator if "sql" in given else HudiWriteOperator
    return kind(**{"task_id": "t", "table": TABLE, **with_policy(given)})


def test_a_pyspark_file_runs_itself():
    job = job_of(write(application="job.py", application_args=["a", 1]))
    assert job == PythonFile("job.py", ("a", 1))
    assert job.application(TRIPS) == ("job.py", ("a", "1"))
    assert job.work() == (JobFile("job.py"), "a", "1")


def test_sql_runs_in_a_file_of_ours_under_the_tables_own_name():
    text = f"CREATE TEMP VIEW v AS SELECT 1; {UPDATE};"
    job = job_of(write(sql=text))
    view = "CREATE TEMP VIEW v AS SELECT 1"
    assert job.application(TRIPS) == (run_sql.__file__, (TABLE, "trips", "`trips`", view, UPDATE))
    assert job.work() == ("sql", text, None)
    named = job_of(write(sql="DELETE FROM lake.trips", table_name="lake.trips"))
    assert named.application(TRIPS)[1] == (
        TABLE,
        "lake.trips",
        "`lake`.`trips`",
        "DELETE FROM lake.trips",
    )
    assert named.work() == ("sql", "DELETE FROM lake.trips", "lake.trips")


def test_sql_needs_a_table_that_exists():
    with pytest.raises(ConfigurationError, match=r"does not exist yet: /lake/trips.*create it"):
        Sql(UPDATE, TABLE).application(table())


JAVA = {SERIALIZER: "org.apache.spark.serializer.JavaSerializer"}
ICEBERG = {CATALOG: "org.apache.iceberg.spark.SparkSessionCatalog"}
KINDS = {
    "file": PythonFile("job.py"),
    "sql": Sql(UPDATE, TABLE),
    "class": MainClass("org.example.Main", ""),
    "function": Function("f", "def f(spark): pass", TABLE),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["conf", "spark-defaults.conf"])
@pytest.mark.parametrize("settings", [JAVA, ICEBERG])
def test_settings_of_spark_with_which_hudi_cannot_work_are_refused(kind, place, settings):
    (key,) = settings
    conf, of_site = (settings, {}) if place == "conf" else ({}, settings)
    job = spark_job(KINDS[kind], TRIPS, conf, "client")
    site = Site(Source("spark-defaults.conf", tuple(of_site.items())))
    if settings is ICEBERG and kind != "sql":  # a job may read other tables by its own catalog
        assert effective_options({}, {}, job, site) == {}
        return
    with pytest.raises(ConfigurationError, match=rf"^{place}: {key}=.*Remedy: remove it"):
        effective_options({}, {}, job, site)


@pytest.mark.parametrize("kind", KINDS)
def test_hudis_own_settings_of_spark_contradict_nothing_and_reach_every_driver(kind):
    job = spark_job(KINDS[kind], TRIPS, SPARK_SETTINGS, "client")
    assert effective_options({}, {}, job, Site(Source("spark-defaults.conf", ()))) == {}
    assert driver_input(job, {}, ())["spark"] == SPARK_SETTINGS


@pytest.mark.parametrize(
    "given", [{"sql": UPDATE}, {"application": "job.py", "isolation": "serializable"}]
)
def test_a_read_of_the_target_makes_the_writer_exclusive(monkeypatch, caplog, given):
    monkeypatch.setattr(HudiWriteOperator, "log", logging.getLogger("task"))
    caplog.set_level(logging.INFO)
    task = write(**given)
    assert claim_of(task).is_serializable
    said = "isolation='serializable' is implied: UPDATE reads the rows that it changes" in caplog.text
    assert said is ("sql" in given)


def test_an_implied_read_needs_the_queue():
    task = write(sql=UPDATE, admission="off")
    with pytest.raises(ConfigurationError, match=r"^admission: off, and isolation='serializable'"):
        claim_of(task)
    free = write(sql="INSERT INTO trips SELECT 1", admission="off")
    assert not claim_of(free).is_serializable


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "application"),
        ({"sql": UPDATE, "application": "job.py"}, "application"),
        ({"sql": UPDATE, "java_class": "a.B"}, "java_class"),
        ({"sql": UPDATE, "application_args": ["x"]}, "application_args"),
    ],
)
def test_a_task_has_one_job(given, field):
    with pytest.raises(ConfigurationError) as refused:
        write(**given)
    assert refused.value.field == field


def test_a_job_may_come_from_the_default_arguments():
    with DAG("d", schedule=None, default_args={"application": "job.py"}):
        assert job_of(write()) == PythonFile("job.py")
        assert job_of(write(sql=UPDATE, task_id="u")) == Sql(UPDATE, TABLE)


def test_a_sql_file_is_read_and_other_arguments_that_end_alike_are_not(tmp_path):
    (tmp_path / "merge.sql").write_text("UPDATE trips SET dt = '{{ day }}'")
    with DAG("d", schedule=None, template_searchpath=[str(tmp_path)]) as dag:
        task = write(sql="merge.sql")
        beside = HudiWriteOperator(
            task_id="u", table=TABLE, application="a.py", application_args=["x.sql"]
        )
    assert set(dag.task_dict) == {"t", "u"}
    for one in (task, beside):
        one.render_template_fields({"day": "2026-11-23"})
    assert task.sql == "UPDATE trips SET dt = '2026-11-23'"
    assert beside.application_args == ["x.sql"]


def test_a_main_class_is_called_with_its_jar(tmp_path):
    jar = tmp_path / "jobs.jar"
    jar.touch()
    job = job_of(write(application=str(jar), java_class="com.acme.Write", application_args=["x", 1]))
    assert job.application(TRIPS) == (run_main.__file__, (str(jar), "com.acme.Write", "x", "1"))
    assert job.work() == (JobFile(str(jar)), "com.acme.Write", "x", "1")
    assert job.signs
    assert MainClass("com.acme.Write", "").application(TRIPS)[1] == ("", "com.acme.Write")
    with pytest.raises(ConfigurationError, match=r"^application: .*not a jar on this machine"):
        spark_job(MainClass("com.acme.Write", str(tmp_path / "missing.jar")), TRIPS, {}, "client")
    for prefix in ("file:", "file://", "local:", "local://"):
        assert spark_job(MainClass("com.acme.Write", f"{prefix}{jar}"), TRIPS, {}, "client")


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_jar_of_a_main_class_may_be_anywhere_that_the_driver_can_read(tmp_path, mode):
    for url in ("s3a://code/jobs.jar", "hdfs:///code/jobs.jar", "https://code.test/jobs.jar"):
        assert spark_job(MainClass("com.acme.Write", url), TRIPS, {}, mode).arguments[0] == url
    of_image = MainClass("com.acme.Write", "local:///opt/jobs.jar")
    if mode == "cluster":
        assert spark_job(of_image, TRIPS, {}, mode).arguments[0] == "local:///opt/jobs.jar"
    with pytest.raises(ConfigurationError, match=r"^application: "):
        spark_job(MainClass("com.acme.Write", str(tmp_path / "jobs.jar")), TRIPS, {}, mode)


def streamer(**given):
    return HudiStreamerOperator(task_id="t", table=TABLE, **given)


def test_hudi_streamer_gets_one_round():
    task = streamer(
        source_class="org.acme.Source",
        source_ordering_field="ts",
        table_type="MERGE_ON_READ",
        streamer_args=["--filter-dupes"],
    )
    job = job_of(task)
    path, arguments = job.application(TRIPS)
    assert path == run_main.__file__
    assert arguments == (
        *("", STREAMER, "--target-base-path", TABLE, "--target-table", "trips"),
        *("--table-type", "MERGE_ON_READ", "--op", "UPSERT", "--source-class", "org.acme.Source"),
        *("--source-ordering-field", "ts", "--disable-compaction", "--filter-dupes"),
    )
    assert not job.signs
    assert "--disable-compaction" not in job_of(streamer()).application(TRIPS)[1]
    assert not claim_of(task).is_serializable


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--continuous"], "commits again and again"),
        (["--continuous=true"], "commits again and again"),
        (["--props", "/a.properties"], "go before the protection's"),
        (["--run-bootstrap"], "does not bootstrap"),
        (["--spark-master", "local"], "start Spark elsewhere"),
        (["--target-base-path", "/lake/other"], "names /lake/trips, /lake/other"),
        (["--hoodie-conf", "hoodie.write.concurrency.mode=SINGLE_WRITER"], "contradicts safe"),
        (["--hoodie-conf", "hoodie.write.lock.zookeeper.url=other"], "before the lock connection"),
        (["--hoodie-conf", "_airflow_identity=x"], "contradicts safe"),
    ],
)
def test_arguments_that_take_the_protection_away_are_refused(given, said):
    with pytest.raises(ConfigurationError, match=f"^application_args: .*{said}.*Remedy"):
        job_of(streamer(streamer_args=given)).application(TRIPS)


def test_hudi_streamer_as_a_plain_main_class_is_checked_too():
    with pytest.raises(ConfigurationError, match="names no table"):
        MainClass(STREAMER, "", ("--op", "UPSERT")).application(TRIPS)
    refuse_unsafe_arguments(["--continuous=false", f"--target-base-path=file://{TABLE}/"], TABLE)


@pytest.mark.parametrize("field", ["java_class", "application_args"])
def test_hudi_streamer_takes_no_other_job(field):
    with pytest.raises(ConfigurationError) as refused:
        streamer(**{field: ["x"]})
    assert refused.value.field == field


def test_a_functions_arguments_go_pickled_without_airflows_classes():
    at = pendulum.datetime(2026, 11, 23, tz="UTC")
    job = Function("f", "def f(spark, at): ...", TABLE, {"at": at, "a": 1})
    path, (given, name, source, call) = job.application(TRIPS)
    assert (path, given, name) == (run_function.__file__, TABLE, "f")
    assert b"pendulum" not in base64.b64decode(call)
    assert pickle.loads(base64.b64decode(call)) == {"a": 1, "at": datetime(2026, 11, 23, tzinfo=UTC)}
    assert job.work() == ("function", "f", source, pickle.loads(base64.b64decode(call)))


def test_an_argument_that_cannot_be_pickled_is_named():
    job = Function("f", "", TABLE, {"a": 1, "lock": threading.Lock()})
    with pytest.raises(
        ConfigurationError, match=r"^op_kwargs: lock is a _thread\.lock, which .*Remedy: pass"
    ):
        job.work()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3a://lake/t/", "s3://lake/t"),
        ("wasbs://c@a.blob.core.windows.net/t", "abfs://c@a.dfs.core.windows.net/t"),
        ("abfss://c@a.dfs.core.windows.net/x.blob.y", "abfs://c@a.dfs.core.windows.net/x.blob.y"),
        ("gs://lake/t", "gs://lake/t"),
        ("file:/lake/t/", "file:/lake/t"),
    ],
)
def test_the_driver_compares_locations_by_one_name_for_each(url, name):
    assert run_sql.one_name(url) == name

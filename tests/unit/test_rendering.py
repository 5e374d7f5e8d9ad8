"""What an operator does before its ``execute``: parsed, copied, rendered and shown."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, BaseHook, BaseOperator, Connection
from airflow.sdk._shared.secrets_masker import redact
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import SetRenderedFields
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.sdk.log import _secrets_masker

from airflow_occ_provider.assets.table import emit_asset_events, hudi_asset
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.submission import SparkJob, Submission, driver_input
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.operators import task_run
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_table_service import (
    HudiClusteringOperator,
    HudiCompactionOperator,
)
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator
from airflow_occ_provider.operators.task_run import SparkRun
from airflow_occ_provider.sensors.lease import HudiLeaseSensor
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.processes import Flag
from tests.support.table_properties import table_properties
from tests.support.task_state import Store

JDBC = "hoodie.datasource.hive_sync.jdbcurl"
URL = "jdbc:hive2://hive:10000/;user=etl;password=do-not-show-me"
WRITE = {"task_id": "t", "application": "a.py", "table": "/t"}
NO_JOB = {"task_id": "t", "table": "/t"}


@pytest.fixture
def dag():
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        yield dag


@pytest.fixture
def asked(monkeypatch):
    """How often each connection was asked for."""
    asked = Counter()
    known = {
        "lock": {"conn_type": "hudi_zookeeper_lock", "host": "127.0.0.1:1"},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
    }

    def get_connection(cls, conn_id):
        asked[conn_id] += 1
        return Connection(conn_id=conn_id, **known[conn_id])

    monkeypatch.setattr(BaseHook, "get_connection", classmethod(get_connection))
    return asked


@pytest.fixture
def site(monkeypatch):
    """What the site's own ``hudi-defaults.conf`` says."""
    lines = []
    monkeypatch.setattr(
        task_run, "read_site", lambda *_, **__: Site(Source("s", ()), (Source("h", tuple(lines)),))
    )
    monkeypatch.setattr(_secrets_masker(), "patterns", set())
    return lines


def ti(**given):
    names = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "max_tries": 1}
    return SimpleNamespace(**names, try_number=1, **given)


def context_of(task):
    return {"ti": ti(task=task), "task": task, "task_state_store": Store()}


def of_another_task():
    return BaseOperator(task_id="other").output


@pytest.mark.parametrize(
    "options",
    [
        "{{ var.json.hudi_options }}",
        {"hoodie.index.type": "{{ params.index }}"},
        of_another_task,
        lambda: {"hoodie.index.type": of_another_task()},
    ],
)
@pytest.mark.parametrize("kind", [HudiWriteOperator, HudiClusteringOperator])
def test_options_that_are_only_known_at_run_time_do_not_break_the_dag(dag, kind, options):
    given = WRITE if kind is HudiWriteOperator else NO_JOB
    options = options() if callable(options) else options
    assert kind(**given, policy={"conflict_resolution": "bucket_index"}, hudi_options=options)


@pytest.mark.parametrize("text", ['{"hoodie.index.type": "SIMPLE"}', "{'hoodie.index.type': 'SIMPLE'}"])
def test_options_that_a_template_renders_to_text_are_read(dag, text):
    task = HudiWriteOperator(**WRITE, hudi_options="{{ options }}")
    task.render_template_fields({"options": text})
    assert task.hudi_defaults["hoodie.index.type"] == "SIMPLE"


@pytest.mark.parametrize("text", ["", "SIMPLE", "[1]"])
def test_options_that_are_rendered_to_something_else_are_refused(dag, text):
    task = HudiWriteOperator(**WRITE, hudi_options="{{ options }}")
    with pytest.raises(ConfigurationError) as caught:
        task.render_template_fields({"options": text})
    assert caught.value.field == "hudi_options"


def test_options_that_were_rendered_are_checked_as_given_ones(dag, asked, site, folder):
    rule = {"hoodie.clustering.plan.strategy.partition.selected": "dt=1"}
    options = "{{ options }}"
    task = HudiClusteringOperator(
        task_id="t", table=str(folder.parent), lock_conn_id="lock", hudi_options=options
    )
    context = {**context_of(task), "options": rule}
    task.render_template_fields(context)
    with pytest.raises(ConfigurationError) as caught:
        task._protected_run(context).prepare()
    assert caught.value.remedy == "use scope"


@pytest.mark.parametrize("kind", [HudiCleanOperator, HudiClusteringOperator, HudiCompactionOperator])
def test_default_args_for_writers_do_not_reach_operators_without_a_job(dag, kind):
    args = {"isolation": "serializable", "application_args": ["x"]}
    dag.default_args.update(args)
    for task in (kind(**NO_JOB), kind(task_id="u", table="/t", default_args=args)):
        table = SimpleNamespace(config=lambda: SimpleNamespace(version=9))
        claim = task.spec({}).claim(table, task.log)
        assert not claim.is_serializable
        assert not task.application_args
    with pytest.raises(ConfigurationError):
        kind(**NO_JOB, isolation="serializable")


KINDS = [HudiWriteOperator, HudiCleanOperator, HudiClusteringOperator, HudiCompactionOperator]


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_can_be_copied_and_pickled(dag, kind):
    task = kind(**(WRITE if kind is HudiWriteOperator else NO_JOB), hudi_options={JDBC: URL})
    for other in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert other.hudi_options == {JDBC: URL}
        other.on_kill()
        assert not task._killed.is_set()
    assert dag.partial_subset("t").get_task("t").table == "/t"


@pytest.mark.parametrize("kind", KINDS)
def test_every_operator_takes_default_args_templates_xcoms_and_maps(dag, site, kind):
    dag.default_args.update({"lock_conn_id": "theirs", "retries": 3, "name": "{{ x }}"})
    job = {"application": "a.py"} if kind is HudiWriteOperator else {}
    task = kind(task_id="one", table="{{ x }}", storage_conn_id=of_another_task(), **job)
    assert (task.lock_conn_id, task.own_retries) == ("theirs", 3)
    assert task.upstream_task_ids == {"other"}
    options = {"a": "{{ x }}", JDBC: URL}
    unmapped = mapped(dag, kind, hudi_options=options, x="b", **job)
    assert (unmapped.name, unmapped.lock_conn_id) == ("b", "lock")
    assert unmapped.hudi_defaults["a"] == "b"
    assert "do-not-show-me" not in json.dumps(_serialize_rendered_fields(unmapped))


def test_rendering_makes_no_connection(dag, monkeypatch):
    """As ``airflow tasks render`` does, where neither Spark, the lock nor the table is within reach."""
    monkeypatch.setattr(BaseHook, "get_connection", lambda *_: pytest.fail("asked for a connection"))
    monkeypatch.setattr(task_run, "open_table", lambda *_: pytest.fail("opened the table"))
    task = HudiWriteOperator(
        **WRITE, policy={"conflict_resolution": "simple"}, hudi_options={"a": "{{ x }}"}
    )
    task.render_template_fields({"x": "b"})
    assert task.hudi_defaults["hoodie.write.concurrency.mode"] == "OPTIMISTIC_CONCURRENCY_CONTROL"
    assert task.hudi_defaults["a"] == "b"


def mapped(dag, kind, x, **given):
    """One mapped task, rendered as ``MappedOperator.render_template_fields`` does it."""
    task = kind.partial(task_id="t", lock_conn_id="lock", **given).expand(table=["/t"])
    unmapped = task.unmap({"table": "/t"})
    unmapped._do_render_template_fields(
        unmapped, unmapped.template_fields, {"x": x}, unmapped.get_template_env(), set()
    )
    return unmapped


def test_a_mapped_task_shows_its_options_too(dag, site):
    options = {"a": "{{ x }}", JDBC: URL}
    task = mapped(dag, HudiWriteOperator, application="a.py", hudi_options=options, x="b")
    shown = _serialize_rendered_fields(task)
    assert shown["hudi_defaults"]["a"] == "b"
    assert shown["hudi_defaults"][JDBC] == shown["hudi_options"][JDBC]
    assert "do-not-show-me" not in json.dumps(shown)


def test_a_mapped_clean_judges_heartbeats_by_its_own_options(dag, asked, site, folder):
    client = "hoodie.client.heartbeat"
    options = {f"{client}.interval_in_ms": "5000", f"{client}.tolerable.misses": "{{ x }}"}
    task = mapped(dag, HudiCleanOperator, hudi_options=options, x=5)
    task.table = str(folder.parent)
    task.is_dry_run = True
    context = context_of(task)
    task.execute(context)
    assert task._clean_run(task._protected_run(context)).rule == HeartbeatRule(5000, 5)


def test_under_its_lease_a_try_reads_the_properties_again(dag, asked, site, folder):
    task = HudiWriteOperator(**{**WRITE, "table": str(folder.parent)}, lock_conn_id="lock")
    context = context_of(task)
    task.render_template_fields(context)
    run = task._protected_run(context)
    assert run.prepare().snapshot.config.version == 9
    (folder / "hoodie.properties").write_text(table_properties(version=8))
    assert run.prepare("20261122.4001").snapshot.config.version == 8


def test_a_write_of_an_old_table_adds_no_index_and_none_may_be_asked_for(dag, asked, site, folder):
    stats = "hoodie.metadata.index.column.stats.enable"
    old = table_properties(version=6, table__metadata__partitions="files")
    (folder / "hoodie.properties").write_text(old)

    def prepared(**arguments):
        write = {**WRITE, "task_id": f"t{len(dag.tasks)}", "table": str(folder.parent)}
        task = HudiWriteOperator(**write, lock_conn_id="lock", **arguments)
        context = context_of(task)
        task.render_template_fields(context)
        return task._protected_run(context).prepare()

    preparation = prepared()
    assert preparation.options[stats] == "false"
    assert preparation.options["hoodie.write.table.version"] == "6"
    session = driver_input(SparkJob("/a.py"), preparation.options, ())["session"]
    assert any(re.fullmatch(rule["keys"], stats) for rule in session["rules"])
    for arguments in ({"hudi_options": {stats: "true"}}, {"conf": {f"spark.{stats}": "true"}}):
        with pytest.raises(ConfigurationError, match="overwrites its rows"):
            prepared(**arguments)


def test_the_sites_own_lines_and_secrets_are_not_shown(dag, asked, site, folder):
    site += [("fs.s3a.secret.key", "secret-of-the-site"), ("site.only", "internal"), ("a", "theirs")]
    task = HudiWriteOperator(
        **{**WRITE, "table": str(folder.parent)},
        lock_conn_id="lock",
        hudi_options={JDBC: URL, "a": "ours"},
        conf={"spark.hadoop.fs.s3a.secret.key": "secret-of-the-conf"},
    )
    context = context_of(task)
    task.render_template_fields(context)
    preparation = task._protected_run(context).prepare("20261122.4001")
    assert preparation.options["fs.s3a.secret.key"] == "secret-of-the-site"
    shown = _serialize_rendered_fields(task)
    text = json.dumps(shown)
    for hidden in ("do-not-show-me", "secret-of-the-site", "secret-of-the-conf"):
        assert hidden not in text
    assert "internal" not in text
    assert shown["hudi_defaults"]["a"] == "ours"
    assert shown["hudi_defaults"]["_airflow_order"] == "20261122.4001"
    assert redact("instant 20261122.4001, secret-of-the-site") == "instant 20261122.4001, ***"


def test_the_secrets_of_the_sites_spark_are_masked(dag, asked, site, folder, monkeypatch):
    of_site = {
        "spark.hadoop.fs.s3a.secret.key": "secret-of-the-site",
        "spark.my.pin": "hidden-by-the-site",
        "spark.redaction.regex": "(?i)pin",
        "spark.app.name": "shown-to-all",
    }
    spark = Site(Source("spark-defaults.conf", tuple(of_site.items())))
    monkeypatch.setattr(task_run, "read_site", lambda *_, **__: spark)
    task = HudiWriteOperator(**{**WRITE, "table": str(folder.parent)}, lock_conn_id="lock")
    context = context_of(task)
    task.render_template_fields(context)
    task._protected_run(context).prepare("1")
    assert redact("secret-of-the-site hidden-by-the-site shown-to-all") == "*** *** shown-to-all"


def test_a_driver_that_starts_is_shown_with_all_its_options(dag, asked, monkeypatch):
    own = {"driver_class_path": "/mine", "env_vars": {"HUDI_CONF_DIR": "/site"}}
    task, sent = HudiWriteOperator(**WRITE, **own, application_args=["mine"]), []
    monkeypatch.setattr(
        task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=sent.append), raising=False
    )
    task.hudi_defaults = {"a": "b"}
    identity = {"AIRFLOW_OCC_IDENTITY": "one"}
    submission = Submission("run.py", AttemptFolder("/private"), b"{}", environment=identity)
    run = SparkRun(task, context_of(task), Flag())
    driver = run.driver(submission)
    spark = driver.submitter.place._launch.spark
    assert spark._application_args == ["/private"]
    assert spark._driver_class_path == "/mine"
    assert spark._env_vars == {"HUDI_CONF_DIR": "/site", "AIRFLOW_OCC_IDENTITY": "one"}
    assert (task.application_args, task.env_vars) == (["mine"], own["env_vars"])
    assert not any(isinstance(one, SetRenderedFields) for one in sent)
    driver.echo("the first line")
    driver.echo("the second line")
    (shown,) = (one for one in sent if isinstance(one, SetRenderedFields))
    assert shown.rendered_fields["hudi_defaults"] == {"a": "b"}
    assert shown.rendered_fields["submission"]["application"] == "run.py"
    assert shown.rendered_fields["application"] == "a.py"


def test_one_try_asks_for_each_connection_a_few_times(dag, asked, site, folder):
    task = HudiWriteOperator(**{**WRITE, "table": str(folder.parent)}, lock_conn_id="lock")
    context = context_of(task)
    task.render_template_fields(context)
    run = task._protected_run(context)
    for _ in range(3):
        run.prepare()
    assert run.lock.terms()
    assert run.job.deploy_mode is None
    assert asked == {"lock": 1, "spark_default": 1}


def test_a_table_that_airflow_has_no_asset_for_does_not_fail_a_committed_task(dag):
    task = HudiWriteOperator(**{**WRITE, "table": "airflow://lake"}, outlets=[AssetAlias("trips")])
    events = OutletEventAccessors()
    emit_asset_events({"outlet_events": events}, task.outlets, task.table, {"instant": "1"})
    assert events[task.outlets[0]].asset_alias_events == []


@pytest.mark.parametrize("table", ["s3a://lake/trips/", "/lake/trips"])
def test_an_assets_alias_gets_the_facts_of_the_table(dag, table):
    outlets = [Asset("s3://other"), AssetAlias("trips")]
    task = HudiWriteOperator(**{**WRITE, "table": table}, outlets=outlets)
    events = OutletEventAccessors()
    emit_asset_events({"outlet_events": events}, task.outlets, task.table, {"instant": "1"})
    emit_asset_events({"outlet_events": events}, task.outlets, task.table, {"instant": None})
    assert events[outlets[0]].extra == {"instant": None}
    (event,) = events[outlets[1]].asset_alias_events
    assert event.extra == {"instant": "1"}
    assert event.dest_asset_key.uri == {"/": "file:///lake/trips"}.get(table[0], "s3://lake/trips")


@pytest.mark.parametrize("by_partition", [False, True])
def test_an_asset_by_partition_has_an_event_for_each(dag, by_partition, caplog):
    outlet = hudi_asset("/lake/trips", by_partition=by_partition, extra={"team": "a"})
    events = OutletEventAccessors()
    paths = ["dt=2026-11-28", "dt=2026-11-29", f"dt={'x' * 251}", "", "dt= "]
    result = {"instant": "1", "partitions": paths, "partitions_left_out": 2}
    emit_asset_events({"outlet_events": events}, [outlet], "/lake/trips", result)
    keys = {"2026-11-28", "2026-11-29"} if by_partition else set()
    assert events[outlet].partition_keys == keys
    assert ("3 partitions that were written get no event" in caplog.text) is by_partition
    assert outlet.extra["team"] == "a"


def test_of_very_many_partitions_the_result_names_the_first_and_counts_the_rest():
    paths = tuple(f"dt={number:05}" for number in range(1007))
    groups = frozenset((path, "f") for path in paths)
    metadata = CommitMetadata("INSERT", groups, frozenset(), 7, {})
    facts = Commit(SimpleNamespace(time="1", action="commit"), metadata).facts()
    assert (facts["partitions"], facts["partitions_left_out"]) == ([*paths[:1000]], 7)


@pytest.mark.parametrize("path", ["dt=1//h=2", "./dt=1", "dt=1/..", "s3://lake/trips/dt=1"])
def test_a_lease_takes_the_spelling_of_a_path_that_a_writer_takes(dag, path):
    wrong = (
        lambda: HudiWriteOperator(**WRITE, scope=["dt=1", path]),
        lambda: HudiLeaseOperator(task_id="lease", tables=["/t"], scope=["dt=1", path]),
        lambda: HudiLeaseSensor(task_id="sensor", table="/t", scope=path),
    )
    for make in wrong:
        with pytest.raises(ConfigurationError, match=r"^scope: .* is not a path below the table"):
            make()

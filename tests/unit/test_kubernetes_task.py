"""A task whose Spark connection is one of Kubernetes in cluster mode, without a cluster."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.submission import SparkJob, remove_leftovers
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks import kubernetes as module
from airflow_occ_provider.hooks.drivers import LocalDrivers, drivers_of
from airflow_occ_provider.hooks.kubernetes import KubernetesDrivers, api_client
from airflow_occ_provider.hooks.submitters import follower, service_of
from airflow_occ_provider.hooks.yarn import YarnDrivers
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.spark_run import SparkRun
from airflow_occ_provider.submitters.kubernetes.manifests import protected_conf
from airflow_occ_provider.submitters.spark_submit import Flag
from tests.unit.test_record import Store, Task

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://cluster.test:6443"}}],
    "users": [{"name": "u", "user": {"token": "do-not-show-me"}}],
    "contexts": [
        {"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("first", "second")
    ],
    "current-context": "first",
}
NO_SITE = Site(Source("spark-defaults.conf", ()))
OPTIONS = {IDENTITY_KEY: "k", "hoodie.client.heartbeat.interval_in_ms": "60000"}


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path, monkeypatch):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path


@pytest.fixture
def connect(monkeypatch):
    def make(extra=None, host="k8s://https://cluster.test", **kubernetes):
        extra = {"deploy-mode": "cluster", **(extra or {})}
        spark = {"conn_type": "spark", "host": host, "port": 6443, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
        given = {"conn_type": "kubernetes", "extra": kubernetes}
        monkeypatch.setenv("AIRFLOW_CONN_MY_CLUSTER", json.dumps(given))

    make()
    return make


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "trips.py"
    path.write_text("print('mine')")
    return SparkJob(str(path), ("a", "b"))


def run_of(**given):
    task = HudiWriteOperator(task_id="t", application="a.py", table="/t", **given)
    return SparkRun(task, {"ti": Task(1, 14), "task_state_store": Store()}, Flag())


@pytest.mark.parametrize(
    ("host", "mode", "kind"),
    [
        ("k8s://https://cluster.test", "cluster", KubernetesDrivers),
        ("k8s://https://cluster.test", "client", LocalDrivers),
        ("local[2]", None, LocalDrivers),
    ],
)
def test_the_connection_decides_where_drivers_run(connect, host, mode, kind):
    connect({"deploy-mode": mode}, host)
    assert isinstance(run_of().drivers, kind)


def test_yarn_is_another_place(monkeypatch):
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://rm:8088"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT",
        json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
    )
    run = run_of()
    assert isinstance(drivers_of(run.task, run.hook), YarnDrivers)


@pytest.mark.parametrize(
    ("extra", "own", "namespace"),
    [
        ({}, {}, "default"),
        ({"namespace": "spark"}, {"namespace": "other"}, "spark"),
        ({}, {"namespace": "other"}, "other"),
    ],
)
def test_the_namespace_is_that_of_a_connection(connect, extra, own, namespace):
    connect({"kubernetes_conn_id": "my_cluster", **extra}, **own)
    run = run_of()
    assert (run.is_remote, run.deploy_mode) == (True, "cluster")
    assert run.drivers.follower(Flag()).api.namespace == namespace


def test_a_killed_workers_copy_of_the_clusters_account_is_removed_with_its_other_files(connect, job):
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config=json.dumps(KUBECONFIG))
    with run_of().prepared(job, OPTIONS) as submission:
        path = Path(submission.environment["KUBECONFIG"])
        assert path.exists()
        remove_leftovers(OPTIONS[IDENTITY_KEY])
        assert not path.exists()


def test_the_input_is_runner_payload_and_job(connect, job):
    with run_of().prepared(job, OPTIONS) as submission:
        assert submission.application == "local:///etc/airflow-occ/run_job.py"
        digest = hashlib.sha256(submission.content["payload.json"]).hexdigest()
        assert submission.arguments == (digest, "/etc/airflow-occ/payload.json")
        assert sorted(submission.content) == ["payload.json", "run_job.py", "trips.py"]
        given = json.loads(submission.content["payload.json"])
    assert (given["application"], given["arguments"]) == ("/etc/airflow-occ/trips.py", ["a", "b"])
    assert submission.content["trips.py"] == b"print('mine')"


@pytest.mark.parametrize(
    ("application", "expected"),
    [("s3a://code/trips.py", "s3a://code/trips.py"), ("local:///opt/trips.py", "/opt/trips.py")],
)
def test_a_job_elsewhere_stays_where_it_is(connect, application, expected):
    run = run_of()
    run.refuse(SparkJob(application), NO_SITE)
    with run.prepared(SparkJob(application), OPTIONS) as submission:
        assert json.loads(submission.content["payload.json"])["application"] == expected
        assert sorted(submission.content) == ["payload.json", "run_job.py"]


def test_the_command_has_all_of_a_submission_and_the_drivers_variables(connect, job):
    connect({"namespace": "spark", "kubernetes_conn_id": "my_cluster"}, cluster_context="second")
    run = run_of(env_vars={"MINE": "1"}, conf={"spark.x": "y"})
    with run.prepared(job, OPTIONS) as submission:
        one = run.driver(submission).submitter
    conf = protected_conf("k", one.conf, submission="s", namespace=one.api.namespace)
    command = one.command(conf)
    given = [command[at + 1] for at, word in enumerate(command) if word == "--conf"]
    assert given.count("spark.kubernetes.namespace=spark") == 1
    assert "spark.kubernetes.context=second" in given
    assert "spark.x=y" in given
    assert "spark.kubernetes.driverEnv.MINE=1" in given
    assert not any("IDENTITY" in one for one in given)
    assert command[-3:-1] == ["local:///etc/airflow-occ/run_job.py", submission.arguments[0]]
    assert command[-1] == "/etc/airflow-occ/payload.json"
    assert one.environment["MINE"] == "1"


def test_spark_submit_is_given_the_connections_account(connect, job):
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config=json.dumps(KUBECONFIG))
    with run_of().prepared(job, OPTIONS) as submission:
        path = Path(submission.environment["KUBECONFIG"])
        assert json.loads(path.read_text()) == KUBECONFIG
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config_path="/mine")
    with run_of().prepared(job, OPTIONS) as submission:
        assert submission.environment == {"KUBECONFIG": "/mine"}


@pytest.mark.parametrize(
    ("extra", "host"),
    [
        ({}, "https://cluster.test:6443"),
        ({"kube_config": KUBECONFIG, "cluster_context": "second"}, "https://cluster.test:6443"),
    ],
)
def test_a_client_changes_no_configuration_of_the_process(extra, host):
    from kubernetes.client import Configuration

    before = Configuration.get_default_copy().host
    one = api_client({**extra, "disable_verify_ssl": True})
    assert one.configuration.host == host
    assert not one.configuration.verify_ssl
    assert Configuration.get_default_copy().host == before


def test_a_connection_without_a_cluster_is_named(connect, job, kubeconfig):
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config_path="/not/there")
    with pytest.raises(ConfigurationError, match="kubernetes_conn_id: it names no cluster"):
        run_of().refuse(job, NO_SITE)


def test_a_missing_client_is_named(connect, job, monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ConfigurationError, match=r"conn_id: .*with its extra kubernetes"):
        run_of().refuse(job, NO_SITE)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"spark.kubernetes.driver.pod.name": "x"}, r"spark-defaults.conf spark\..*pod.name"),
        ({"spark.kubernetes.namespace": "x"}, r"spark-defaults.conf .*namespace: is x"),
    ],
)
def test_a_site_that_hides_or_limits_pods_is_refused(connect, job, options, named):
    site = Site(Source("spark-defaults.conf", tuple(options.items())))
    with pytest.raises(ConfigurationError, match=named):
        run_of().refuse(job, site)


def test_a_large_job_is_refused_before_anything_is_submitted(connect, tmp_path):
    large = tmp_path / "large.py"
    large.write_bytes(b"#" * 1024 * 1024)
    with (
        pytest.raises(ConfigurationError, match=r"application: .*a Secret holds"),
        run_of().prepared(SparkJob(str(large)), OPTIONS),
    ):
        pass


def test_a_handle_is_enough_to_follow_a_pod(connect):
    facts = {"conn_id": "", "namespace": "spark", "pod": "p", "uid": "u", "key": "k"}
    handle = Handle.from_json(Handle("kubernetes", "pod spark/p", facts).to_json())
    one = follower(handle)
    assert one.api.namespace == "spark"
    assert one.api.address == "https://cluster.test:6443, namespace 'spark'"
    assert one.traits.outlives_task
    assert service_of(handle).split() == ["kubernetes"]


def test_a_cluster_that_is_away_lets_pods_stay(connect, monkeypatch, caplog):
    def refused(*_, **__):
        raise ConnectionRefusedError

    monkeypatch.setattr("kubernetes.client.ApiClient.call_api", refused)
    with caplog.at_level("WARNING", module.__name__):
        run_of().forget("k")
    assert "The pods of the task run stay" in caplog.text

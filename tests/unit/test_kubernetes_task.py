"""A task whose Spark connection is one of Kubernetes in cluster mode, without a cluster."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.site import Site, Source
from airflow_occ_provider.attempts.submission import SparkJob, remove_leftovers
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.task_run import SparkRun
from airflow_occ_provider.places.kubernetes import api_client
from airflow_occ_provider.places.of_task import follower, service_of
from airflow_occ_provider.submitters.kubernetes_place import KubernetesPlace, pod_name
from airflow_occ_provider.submitters.local_place import LocalPlace
from airflow_occ_provider.submitters.processes import Flag
from airflow_occ_provider.submitters.yarn_place import YarnPlace
from tests.support.task_state import Store, Task

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


@pytest.fixture
def table(tmp_path):
    return str(tmp_path / "lake" / "trips")


def run_of(table="/lake/trips", **given):
    task = HudiWriteOperator(task_id="t", application="a.py", table=table, **given)
    return SparkRun(task, {"ti": Task(1, 14), "task_state_store": Store()}, Flag())


@pytest.mark.parametrize(
    ("host", "mode", "kind"),
    [
        ("k8s://https://cluster.test", "cluster", KubernetesPlace),
        ("k8s://https://cluster.test", "client", LocalPlace),
        ("local[2]", None, LocalPlace),
    ],
)
def test_the_connection_decides_where_drivers_run(connect, host, mode, kind):
    connect({"deploy-mode": mode}, host)
    assert isinstance(run_of().drivers.place(None), kind)


def test_yarn_is_another_place(monkeypatch):
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://rm:8088"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_DEFAULT",
        json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
    )
    assert isinstance(run_of().drivers.place(None), YarnPlace)


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
    place = run.drivers._others
    assert isinstance(place, KubernetesPlace)
    assert place.conf("file:///f")["spark.kubernetes.namespace"] == namespace


def submitted(run, submission):
    """The place of a submission, its command and the environment of that."""
    place, folder = run.driver(submission).submitter.place, submission.arguments[0]
    return place, place._launch.command(place.conf(folder)), place._launch.environment


def test_the_command_has_the_runner_and_the_folder_and_the_drivers_variables(connect, job, table):
    connect({"namespace": "spark", "kubernetes_conn_id": "my_cluster"}, cluster_context="second")
    run = run_of(
        table, env_vars={"MINE": "1"}, conf={"spark.x": "y", "spark.my.password": "do-not-show"}
    )
    with run.prepared(job, OPTIONS) as submission:
        folder = submission.arguments[0]
        _, command, environment = submitted(run, submission)
        secrets = Path(command[command.index("--properties-file") + 1]).read_text()
    conf = [command[at + 1] for at, word in enumerate(command) if word == "--conf"]
    assert conf.count("spark.kubernetes.namespace=spark") == 1
    for setting in (
        "spark.kubernetes.context=second",
        "spark.kubernetes.driver.label.airflow-occ-identity=k",
        f"spark.kubernetes.driver.pod.name={pod_name('d.t.r', folder)}",
        "spark.x=y",
        "spark.kubernetes.driverEnv.MINE=1",
    ):
        assert setting in conf, setting
    assert "do-not-show" in secrets
    assert not any("do-not-show" in word or "IDENTITY" in word for word in command)
    path = folder.removeprefix("file://")
    assert path.startswith(f"{Path(table).parent}/.airflow_occ/trips/k/")
    # Spark would upload a file: to a folder that it is not given.
    assert command[-2:] == [f"local://{path}/run_job.py", folder]
    assert environment["MINE"] == "1"


def test_a_runner_in_an_object_store_stays_there(connect, job, table):
    run = run_of(table)
    with run.prepared(job, OPTIONS) as submission:
        url = "s3a://lake/.airflow_occ/trips/k/0/run_job.py"
        _, command, _ = submitted(run, replace(submission, application=url))
    assert command[-2] == url


def test_spark_submit_is_given_the_connections_account(connect, job, table, kubeconfig):
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config=json.dumps(KUBECONFIG))
    run = run_of(table)
    with run.prepared(job, OPTIONS) as submission:
        _, _, environment = submitted(run, submission)
        path = Path(environment["KUBECONFIG"])
        assert json.loads(path.read_text()) == KUBECONFIG
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config_path=str(kubeconfig))
    run = run_of(table)
    with run.prepared(job, OPTIONS) as submission:
        assert submitted(run, submission)[2]["KUBECONFIG"] == str(kubeconfig)


def test_a_killed_workers_copy_of_the_clusters_account_is_removed_with_its_other_files(
    connect, job, table
):
    connect({"kubernetes_conn_id": "my_cluster"}, kube_config=json.dumps(KUBECONFIG))
    run = run_of(table)
    with run.prepared(job, OPTIONS) as submission:
        path = Path(submitted(run, submission)[2]["KUBECONFIG"])
        remove_leftovers(OPTIONS[IDENTITY_KEY])
        assert not path.exists()


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


def test_a_site_with_another_namespace_is_refused(connect, job):
    site = Site(Source("spark-defaults.conf", (("spark.kubernetes.namespace", "x"),)))
    with pytest.raises(ConfigurationError, match=r"spark-defaults.conf .*namespace: is x"):
        run_of().refuse(job, site)


def test_a_handle_is_enough_to_follow_a_pod(connect):
    facts = {"conn_id": "", "namespace": "spark", "pod": "p", "storage_conn_id": None}
    handle = Handle.from_json(Handle("kubernetes", "pod spark/p", facts).to_json())
    one = follower(handle)
    assert isinstance(one.place, KubernetesPlace)
    assert one.place._api.address == "https://cluster.test:6443, namespace 'spark'"
    assert one.outlives_task
    assert service_of(handle).split() == ["kubernetes"]


def test_pods_are_removed_with_their_folders_unless_the_cluster_is_away(
    connect, job, table, monkeypatch, caplog
):
    calls = []

    def refused(_, path, verb, **given):
        calls.append((verb, path, given["query_params"]))
        raise ConnectionRefusedError

    monkeypatch.setattr("kubernetes.client.ApiClient.call_api", refused)
    run = run_of(table)
    with run.prepared(job, OPTIONS) as submission:
        folder = Path(submission.arguments[0].removeprefix("file://"))
    assert folder.exists()
    run.forget("k")
    assert not folder.exists()
    selector = "airflow-occ-identity=k,spark-role=driver"
    assert calls == [("GET", "/api/v1/namespaces/default/pods", [("labelSelector", selector)])]
    assert "The pods of the task run stay" in caplog.text

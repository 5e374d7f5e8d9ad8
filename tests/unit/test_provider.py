from __future__ import annotations

import json

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, Asset
from airflow.serialization.serialized_objects import DagSerialization

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.provider_info import get_provider_info

CLOSED_PORT = "127.0.0.1:1"


def connection(monkeypatch, conn_type="hudi_zookeeper_lock", host="zk1:2181,zk2:2181/chroot", **extra):
    value = {"conn_type": conn_type, "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))


def test_airflow_discovers_the_provider():
    manager = ProvidersManager()
    assert "airflow-occ-provider" in manager.providers
    forms = {form.connection_type: form for form in manager.iter_connection_type_hook_ui_metadata()}
    form = forms["hudi_zookeeper_lock"]
    assert form.hook_class_name.endswith("HudiZookeeperLockHook")


def test_the_metadata_names_what_is_there():
    info = get_provider_info()
    (form,) = info["connection-types"]
    assert form["connection-type"] == HudiZookeeperLockHook.conn_type
    assert form["hook-name"] == HudiZookeeperLockHook.hook_name
    for kind in ("operators", "hooks", "triggers"):
        for group in info[kind]:
            for module in group["python-modules"]:
                __import__(module)


def test_the_connection_becomes_hudis_options(monkeypatch):
    connection(monkeypatch, base_path="/locks", session_timeout_ms=30000, num_retries="2")
    options = lock_hook("lock").options()
    prefix = "hoodie.write.lock."
    assert options[f"{prefix}zookeeper.url"] == "zk1:2181,zk2:2181/chroot"
    assert options[f"{prefix}zookeeper.base_path"] == "/locks"
    assert options[f"{prefix}zookeeper.session_timeout_ms"] == "30000"
    assert options[f"{prefix}zookeeper.connection_timeout_ms"] == "15000"
    assert options[f"{prefix}client.num_retries"] == "2"
    assert f"{prefix}zookeeper.port" not in options
    assert f"{prefix}zookeeper.lock_key" not in options


def test_a_port_of_its_own_goes_into_the_hosts(monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", "hudi-zookeeper-lock://zk1:2182")
    assert lock_hook("lock").options()["hoodie.write.lock.zookeeper.url"] == "zk1:2182"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": ""}, "hosts"),
        ({"base_path": "locks"}, "base_path"),
        ({"base_path": "/"}, "base_path"),
        ({"session_timeout_ms": "soon"}, "session_timeout_ms"),
        ({"wait_time_ms": -1}, "wait_time_ms"),
    ],
)
def test_a_wrong_field_is_named_with_a_remedy(monkeypatch, fields, named):
    connection(monkeypatch, **fields)
    with pytest.raises(ConfigurationError, match=rf"^connection 'lock', {named}: .*Remedy: enter"):
        lock_hook("lock").options()
    ok, message = HudiZookeeperLockHook("lock").test_connection()
    assert not ok
    assert named in message


def test_a_connection_of_another_kind_is_refused(monkeypatch):
    connection(monkeypatch, conn_type="ssh")
    with pytest.raises(ConfigurationError, match=r"lock_conn_id: connection 'lock' has the type 'ssh'"):
        lock_hook("lock")


def test_an_unreachable_zookeeper_answers_the_test_button(monkeypatch):
    connection(monkeypatch, host=CLOSED_PORT, connection_timeout_ms=500)
    ok, message = HudiZookeeperLockHook("lock").test_connection()
    assert not ok
    assert CLOSED_PORT in message
    assert "Remedy" in message


def make(**arguments):
    with DAG("d", schedule=None, default_args=arguments.pop("default_args", {})) as dag:
        task = HudiWriteOperator(task_id="t", application="job.py", table="/lake/t", **arguments)
    return dag, task


def test_defaults_reach_plain_and_mapped_tasks():
    _, task = make()
    assert task.retries == DEFAULT_RETRIES
    assert isinstance(task.retry_policy, HudiConflictRetryPolicy)
    with DAG("d", schedule=None):
        mapped = HudiWriteOperator.partial(task_id="m", application="job.py").expand(table=["/a", "/b"])
    assert mapped.retries == DEFAULT_RETRIES
    assert isinstance(mapped.partial_kwargs["retry_policy"], HudiConflictRetryPolicy)


def test_the_users_retries_win():
    assert make(retries=1)[1].retries == 1
    assert make(default_args={"retries": 2})[1].retries == 2


def test_the_dag_survives_serialization():
    dag, _ = make(outlets=[Asset("trips")], hudi_options={"hoodie.a": 1})
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert again.task_dict["t"].task_type == "HudiWriteOperator"


def test_unknown_budgets_are_refused():
    with pytest.raises(ValueError, match="conflicts"):
        HudiConflictRetryPolicy(budgets={"conflicts": 1})


def test_the_command_line_tells_the_outcome(capsys, tmp_path):
    log = tmp_path / "driver.log"
    log.write_text("nothing of note\n")
    args = get_parser().parse_args(["hudi", "outcome", str(log), "--exit-code", "137", "-o", "json"])
    args.func(args)
    answer = json.loads(capsys.readouterr().out)
    assert answer["outcome"] == "killed"
    assert set(answer) == {"outcome", "instant", "rival", "lines", "remedy"}
    args = get_parser().parse_args(["hudi", "outcome", str(log)])
    args.func(args)
    assert "outcome    unknown" in capsys.readouterr().out


def test_a_missing_log_is_said_in_one_line():
    args = get_parser().parse_args(["hudi", "outcome", "/no/such.log"])
    with pytest.raises(SystemExit, match="No such file"):
        args.func(args)

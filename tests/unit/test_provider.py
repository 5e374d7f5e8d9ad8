from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import airflow
import jsonschema
import msgspec
import pytest
from airflow.cli.cli_parser import get_parser
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, Asset
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType, TaskDeferralError
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.serialization.serialized_objects import DagSerialization
from kazoo.hosts import collect_hosts

from airflow_occ_provider.connection_form import LOCK_FORMS
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hooks.dynamodb_lock import HudiDynamoLockHook
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hooks.metastore_lock import HudiMetastoreLockHook
from airflow_occ_provider.hooks.storage_lock import HudiStorageLockHook
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.zookeeper.access import Tls
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.provider_info import get_provider_info

PROVIDERS = "org.apache.hudi.client.transaction.lock"
CLOSED_PORT = "127.0.0.1:1"


def connection(monkeypatch, conn_type="hudi_zookeeper_lock", host="zk1:2181,zk2:2181/chroot", **extra):
    value = {"conn_type": conn_type, "host": host, "extra": extra}
    value |= {name: extra.pop(name) for name in ("login", "password", "port") if name in extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))


def test_airflow_discovers_the_provider():
    manager = ProvidersManager()
    assert "airflow-occ-provider" in manager.providers
    forms = {form.connection_type: form for form in manager.iter_connection_type_hook_ui_metadata()}
    form = forms["hudi_zookeeper_lock"]
    assert form.hook_class_name.endswith("HudiZookeeperLockHook")


def test_the_form_is_one_that_airflow_draws():
    schema = json.loads((Path(airflow.__file__).parent / "provider.yaml.schema.json").read_text())
    for form in get_provider_info()["connection-types"]:
        jsonschema.validate(form, schema["properties"]["connection-types"]["items"])
    for lock_form in LOCK_FORMS:
        assert lock_form()["conn-fields"]["hudi_lock_options"]["schema"]["format"] == "multiline"
    drawn = {
        one.connection_type: one for one in ProvidersManager().iter_connection_type_hook_ui_metadata()
    }
    behaviour = drawn["hudi_zookeeper_lock"].field_behaviour
    assert not {"login", "password", "host"} & set(behaviour["hidden_fields"])
    assert "host" not in drawn["hudi_metastore_lock"].field_behaviour["hidden_fields"]


def test_the_forms_defaults_are_the_hooks(monkeypatch):
    form, *_ = get_provider_info()["connection-types"]
    fields = form["conn-fields"].items()
    defaults = {name: field["schema"].get("default") for name, field in fields}
    for given in (defaults, dict.fromkeys(defaults), dict.fromkeys(defaults, "")):
        connection(monkeypatch, **given)
        filled = lock_hook("lock")
        connection(monkeypatch)
        empty = lock_hook("lock")
        assert filled.options("/lake/trips") == empty.options("/lake/trips")
        assert filled.terms() == empty.terms()
        assert filled.access == empty.access
        assert (
            filled.lease_backend.root
            == empty.lease_backend.root
            == form["conn-fields"]["lease_root"]["schema"]["default"]
        )


def test_the_metadata_names_what_is_there():
    info = get_provider_info()
    hooks = (
        HudiZookeeperLockHook,
        HudiMetastoreLockHook,
        HudiStorageLockHook,
        HudiDynamoLockHook,
        HudiTableHook,
    )
    for form, hook in zip(info["connection-types"], hooks, strict=True):
        assert form["connection-type"] == hook.conn_type
        assert form["hook-name"] == hook.hook_name
        assert form["hook-class-name"] == f"{hook.__module__}.{hook.__qualname__}"
    for kind in ("operators", "sensors", "hooks", "triggers"):
        for group in info[kind]:
            for module in group["python-modules"]:
                __import__(module)


def test_the_connection_becomes_hudis_options(monkeypatch):
    connection(monkeypatch, base_path="/locks", session_timeout_ms=30000, num_retries="2")
    options = lock_hook("lock").options("/lake/trips")
    prefix = "hoodie.write.lock."
    assert options[f"{prefix}zookeeper.url"] == "zk1:2181,zk2:2181/chroot"
    assert options[f"{prefix}zookeeper.base_path"] == "/locks"
    assert options[f"{prefix}zookeeper.session_timeout_ms"] == "30000"
    assert options[f"{prefix}zookeeper.connection_timeout_ms"] == "15000"
    assert options[f"{prefix}client.num_retries"] == "2"
    assert f"{prefix}zookeeper.port" not in options
    assert f"{prefix}zookeeper.lock_key" not in options


@pytest.mark.parametrize(
    ("host", "port", "servers", "chroot"),
    [
        ("zk1", 2182, [("zk1", 2182)], None),
        ("zk1", None, [("zk1", 2181)], None),
        ("zk1,zk2, zk3", 2281, [("zk1", 2281), ("zk2", 2281), ("zk3", 2281)], None),
        ("zk1/hudi", 2281, [("zk1", 2281)], "/hudi"),
        ("zk1,zk2/a/b/", 2281, [("zk1", 2281), ("zk2", 2281)], "/a/b"),
        ("zk1:2181,zk2", None, [("zk1", 2181), ("zk2", 2181)], None),
        ("zk1:2281,zk2", 2281, [("zk1", 2281), ("zk2", 2281)], None),
        ("[::1]", 2281, [("::1", 2281)], None),
        ("[::1]:2281,[fe80::1]/hudi", None, [("::1", 2281), ("fe80::1", 2181)], "/hudi"),
        ("10.0.0.1/", 2181, [("10.0.0.1", 2181)], None),
    ],
)
def test_the_port_is_each_servers_for_the_leases_and_for_hudis_lock(
    monkeypatch, host, port, servers, chroot
):
    connection(monkeypatch, host=host, port=port)
    hook = lock_hook("lock")
    assert collect_hosts(hook.access.hosts) == (servers, chroot)
    assert hook.options("/lake/trips")["hoodie.write.lock.zookeeper.url"] == hook.access.hosts


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("zk1:2181,zk2", 2281),
        ("zk1/hudi:2181", None),
        ("zk1:2181/hudi,zk2:2181/hudi", None),
        ("zk1,,zk2", 2181),
        ("zk1:port", None),
        ("user@zk1", None),
    ],
)
def test_hosts_that_may_mean_two_things_are_refused(monkeypatch, host, port):
    connection(monkeypatch, host=host, port=port)
    for call in (lambda hook: hook.options("/lake/trips"), HudiZookeeperLockHook.validate):
        with pytest.raises(ConfigurationError, match=r"^connection 'lock', hosts: .*Remedy: enter"):
            call(lock_hook("lock"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": ""}, "hosts"),
        ({"base_path": "locks"}, "base_path"),
        ({"base_path": "/"}, "base_path"),
        ({"session_timeout_ms": "soon"}, "session_timeout_ms"),
        ({"wait_time_ms": -1}, "wait_time_ms"),
        ({"base_path": "/hudi//locks"}, "base_path"),
        ({"lease_root": "leases"}, "lease_root"),
        ({"lease_root": "/hudi/locks/../locks"}, "lease_root"),
        ({"lease_ttl_s": 2}, "lease_ttl_s"),
        ({"lease_ttl_s": 29}, "lease_ttl_s"),
        ({"lease_ttl_s": 11, "connection_timeout_ms": 4000}, "lease_ttl_s"),
        ({"lease_ttl_s": 60, "claim_ttl_s": 59}, "claim_ttl_s"),
        ({"tls": "perhaps"}, "tls"),
        ({"password": "s3cret"}, "login"),
    ],
)
def test_a_wrong_field_is_named_with_a_remedy(monkeypatch, fields, named):
    connection(monkeypatch, **fields)
    with pytest.raises(
        ConfigurationError, match=rf"^connection 'lock', {named}: .*Remedy: enter"
    ) as told:
        lock_hook("lock").validate()
    assert HudiZookeeperLockHook("lock").test_connection() == (False, str(told.value))
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("lease_root", "base_path"),
    [
        ("/hudi/locks", "/hudi/locks"),
        ("/hudi/locks", None),
        ("/hudi/locks/leases", "/hudi/locks"),
        ("/hudi", "/hudi/locks"),
        (None, "/airflow_occ"),
        (None, "/airflow_occ/leases/hudi"),
    ],
)
@pytest.mark.parametrize("other", [False, True], ids=["our fields", "options of their own"])
def test_leases_never_live_where_hudis_locks_do(monkeypatch, lease_root, base_path, other):
    fields = {"lease_root": lease_root, "base_path": base_path}
    if other:
        del fields["base_path"]
        fields["hudi_lock_options"] = (
            f"hoodie.write.lock.provider={ZOOKEEPER_LOCK_PROVIDER}\n"
            f"hoodie.write.lock.zookeeper.base_path={base_path or '/hudi/locks'}"
        )
    connection(monkeypatch, host=CLOSED_PORT, **fields)
    with pytest.raises(ConfigurationError, match=r"'lock', lease_root: .* overlap"):
        lock_hook("lock").leases()
    with pytest.raises(ConfigurationError, match="lease_root"):
        lock_hook("lock").validate()


def test_the_test_button_says_what_it_cannot_see(monkeypatch):
    connection(monkeypatch)
    monkeypatch.setattr(HudiZookeeperLockHook, "test", lambda self: "ZooKeeper answers.")
    ok, message = lock_hook("lock").test_connection()
    assert ok
    assert message.startswith("ZooKeeper answers. ")
    assert "maxClientCnxns, default 60" in message


def test_neighbouring_paths_are_no_harm(monkeypatch):
    fields = {"lease_root": "/hudi/locks2", "base_path": "/hudi/locks", "connection_timeout_ms": 300}
    connection(monkeypatch, host=CLOSED_PORT, **fields)
    with pytest.raises(LockUnreachableError, match=CLOSED_PORT):
        lock_hook("lock").leases()


def test_a_claim_lasts_at_least_as_long_as_a_lease(monkeypatch):
    connection(monkeypatch)
    assert lock_hook("lock").terms() == Terms(60_000, 600_000)
    connection(monkeypatch, lease_ttl_s=900)
    assert lock_hook("lock").terms() == Terms(900_000, 900_000)
    connection(monkeypatch, lease_ttl_s="10", claim_ttl_s=10, connection_timeout_ms=3000)
    assert lock_hook("lock").terms() == Terms(10_000, 10_000)


def test_another_lock_provider_takes_the_place_of_zookeeper(monkeypatch):
    given = """
        hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.StorageBasedLockProvider
        hoodie.write.lock.storage.validity.timeout.secs = 300
    """
    connection(monkeypatch, hudi_lock_options=given)
    hook = lock_hook("lock")
    assert hook.options("/lake/trips") == {
        "hoodie.write.lock.provider": f"{PROVIDERS}.StorageBasedLockProvider",
        "hoodie.write.lock.storage.validity.timeout.secs": "300",
    }
    assert hook.commit_lock("/lake/trips", "trips") is None


FILE_LOCK = f"{LOCK_PROVIDER}={PROVIDERS}.FileSystemBasedLockProvider"


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("s3a://lake/locks", "/lake/trips"),
        ("abfss://c@a/locks", "hdfs://nn/trips"),
        ("GS://lake/locks", "gs://lake/trips"),
        ("", "s3a://lake/trips"),
        ("", "oss://lake/trips"),
        ("", "wasbs://c@a.blob.core.windows.net/trips"),
    ],
)
def test_a_lock_in_a_file_is_refused_in_an_object_store(monkeypatch, path, table):
    connection(monkeypatch, hudi_lock_options=f"{FILE_LOCK}\nhoodie.write.lock.filesystem.path={path}")
    with pytest.raises(ConfigurationError, match=r"'lock', hudi_lock_options: .*object store.*Remedy"):
        lock_hook("lock").options(table)


@pytest.mark.parametrize("path", ["hdfs://nn/locks", "/locks", ""])
def test_a_lock_in_a_file_of_a_file_system_is_used(monkeypatch, path):
    connection(monkeypatch, hudi_lock_options=f"{FILE_LOCK}\nhoodie.write.lock.filesystem.path={path}")
    table = "s3a://lake/trips" if path else "hdfs://nn/trips"
    assert lock_hook("lock").options(table)["hoodie.write.lock.filesystem.path"] == path


@pytest.mark.parametrize(
    "given",
    [
        "hoodie.write.lock.storage.validity.timeout.secs=300",
        f"{PROVIDERS}.StorageBasedLockProvider",
        f"{LOCK_PROVIDER}={PROVIDERS}.A\nhoodie.write.concurrency.mode=SINGLE_WRITER",
        f"{LOCK_PROVIDER}={PROVIDERS}.A\nhoodie.cleaner.policy.failed.writes=EAGER",
    ],
    ids=["no provider", "no option at all", "single writer", "eager cleaning"],
)
def test_options_that_are_no_lock_are_refused(monkeypatch, given):
    connection(monkeypatch, hudi_lock_options=given)
    with pytest.raises(ConfigurationError, match=r"^connection 'lock', hudi_lock_options: .*Remedy"):
        lock_hook("lock").options("/lake/trips")


def test_tls_verifies_by_default(monkeypatch):
    connection(monkeypatch, tls_ca="/ca.pem")
    assert lock_hook("lock").access.tls is None
    files = {"tls_ca": "/ca.pem", "tls_certificate": "/me.pem", "tls_key": "/me.key"}
    for given in ({}, {"tls_verify": None}, {"tls_verify": ""}, {"tls_verify": True}):
        connection(monkeypatch, tls=True, **files, **given)
        assert lock_hook("lock").access.tls == Tls("/ca.pem", "/me.pem", "/me.key", verify=True)
    connection(monkeypatch, tls="true", tls_verify="False")
    assert lock_hook("lock").access.tls == Tls(verify=False)


def test_secrets_are_in_no_error_and_no_representation(monkeypatch, caplog):
    caplog.set_level("DEBUG")
    secret = {"login": "occ", "password": "s3cret"}
    connection(monkeypatch, host=CLOSED_PORT, connection_timeout_ms=300, **secret)
    hook = lock_hook("lock")
    assert hook.access.login == "occ"
    assert hook.access.password == "s3cret"
    assert "s3cret" not in repr(hook.access)
    with pytest.raises(LockUnreachableError) as told:
        hook.leases()
    ok, message = hook.test_connection()
    assert not ok
    assert "s3cret" not in f"{told.value}{message}{caplog.text}{hook.options('/lake/trips')}"


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


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (TaskDeferralError("Trigger failure"), RetryAction.RETRY),
        (AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR)), RetryAction.RETRY),
        (AirflowRuntimeError(ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND)), RetryAction.DEFAULT),
        (ValueError("x"), RetryAction.DEFAULT),
    ],
)
def test_a_failure_of_airflow_itself_is_retried(error, action):
    assert HudiConflictRetryPolicy().evaluate(error, 1, 9).action is action


def test_the_dag_survives_serialization():
    dag, _ = make(outlets=[Asset("trips")], hudi_options={"hoodie.a": 1})
    again = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert again.task_dict["t"].task_type == "HudiWriteOperator"
    with dag:
        HudiWriteOperator.partial(task_id="m", application="job.py").expand(table=["/a", "/b"])
    assert msgspec.msgpack.encode(DagSerialization.to_dict(dag))  # as the DAG processor sends it


def test_unknown_budgets_are_refused():
    with pytest.raises(ValueError, match="conflicts"):
        HudiConflictRetryPolicy(budgets={"conflicts": 1})


@pytest.mark.parametrize("field", ["base_delay", "max_delay"])
def test_waits_of_the_policy_are_lengths_of_time(field):
    policies = [HudiConflictRetryPolicy(**{field: wait}) for wait in (90, 90.0, timedelta(seconds=90))]
    assert {getattr(policy.rules, field) for policy in policies} == {timedelta(seconds=90)}
    for wait in ("soon", -1, True, None, "{{ params.wait }}"):
        with pytest.raises(ConfigurationError, match=rf"^{field}: "):
            HudiConflictRetryPolicy(**{field: wait})


@pytest.mark.parametrize("count", [-1, 1.5, "many", True, None])
def test_a_budget_is_a_number_of_retries(count):
    assert HudiConflictRetryPolicy(budgets={"conflict": 0}).rules.budgets["conflict"] == 0
    with pytest.raises(ConfigurationError, match=r"^budgets"):
        HudiConflictRetryPolicy(budgets={"conflict": count})


def test_the_command_line_prints_the_outcome(capsys, tmp_path):
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


def test_a_missing_log_is_reported_in_one_line():
    args = get_parser().parse_args(["hudi", "outcome", "/no/such.log"])
    with pytest.raises(SystemExit, match="No such file"):
        args.func(args)

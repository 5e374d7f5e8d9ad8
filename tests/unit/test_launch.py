"""The command that starts a driver, which all users of its host can read."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.submission import SparkJob, Submission
from airflow_occ_provider.hooks.spark import attempt_hook, spark_hook
from airflow_occ_provider.hudi.format.properties import parse_table_properties
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.places.of_task import Launch
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.processes import Flag
from tests.support.local_drivers import local_drivers

SECRET = "a/b+c=d:#e"
SITE = {"spark.eventLog.enabled": "true", "spark.executor.memory": "2g", "spark.ssl.keyPassword": "x1y2"}


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Return the command of a task's driver, with what its properties file has."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local"}))
    (tmp_path / "job.py").touch()

    def command(conf, **given):
        task = HudiWriteOperator(
            task_id="t", application=str(tmp_path / "job.py"), table="/t", conf=conf, **given
        )
        with local_drivers().prepared(SparkJob(task.application), {}) as submission:
            hook = attempt_hook(spark_hook(task), "", (), {}, conf)
            words = Launch(hook, submission, {}, Flag(), SITE).command()
            if "--properties-file" not in words:
                return words, None
            path = Path(words[words.index("--properties-file") + 1])
            if not path.exists():
                return words, None
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            properties = parse_table_properties(path.read_text())
        assert not path.exists()
        return words, properties

    return command


@pytest.mark.parametrize(
    "key",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.trustStorePassword",
        "spark.authenticate.secret",
        "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
    ],
)
def test_a_secret_property_is_in_a_private_file_with_those_of_the_site(command, key):
    words, properties = command({key: SECRET, "spark.executor.memory": "4g", "spark.x": 1})
    assert not [word for word in words if SECRET in word]
    assert properties == {**SITE, key: SECRET}  # what the command names goes before it
    assert "spark.executor.memory=4g" in words
    assert "spark.x=1" in words


def test_a_secret_within_a_value_and_a_key_that_a_pattern_names_are_hidden_too(command):
    conf = {
        "spark.driver.extraJavaOptions": f"-Dx=1 -Djavax.net.ssl.trustStorePassword={SECRET}",
        "spark.redaction.regex": "(?i)badge",
        "spark.my.Badge": SECRET,
    }
    words, properties = command(conf)
    assert not [word for word in words if SECRET in word]
    assert properties.keys() - SITE == {"spark.driver.extraJavaOptions", "spark.my.Badge"}


def test_a_file_of_the_users_is_the_site_of_the_task(command):
    words, properties = command({"spark.a.password": SECRET}, properties_file="/mine.conf")
    assert words.count("--properties-file") == 1
    assert "/mine.conf" not in words
    assert properties["spark.executor.memory"] == "2g"


def test_a_place_names_sparks_master_and_adds_to_what_the_task_gives(monkeypatch):
    connection = {"conn_type": "spark", "host": "yarns://here", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_MINE", json.dumps(connection))
    conf, variables = {"spark.x": 1, "spark.y": "theirs"}, {"A": "b"}
    task = HudiWriteOperator(
        task_id="t", application="a.py", table="/t", conn_id="mine", jars="/a.jar", env_vars=variables
    )
    submission = Submission("run.py", AttemptFolder("/f"), b"", environment={"IDENTITY": "k"})
    hook = attempt_hook(spark_hook(task), "name", ["/f"], variables, conf)
    launch = Launch(hook, submission, variables, Flag())
    for _ in range(2):  # it changes nothing of the attempt's
        words = launch.command({"spark.y": "ours"}, master="local[2]", deploy_mode="client")
        assert " ".join(words) == (
            "spark-submit --master local[2] --conf spark.x=1 --conf spark.y=ours --jars /a.jar "
            "--name name --deploy-mode client run.py /f"
        )
    assert launch.conf == {"spark.x": "1", "spark.y": "theirs"}
    assert {"A": "b", "IDENTITY": "k"}.items() <= launch.environment.items()


@pytest.mark.parametrize("key", ["driver.secrets.my-secret", "executor.secretKeyRef.MY_TOKEN"])
def test_the_name_of_a_secret_of_kubernetes_is_none(command, key):
    words, properties = command({f"spark.kubernetes.{key}": "/etc/secrets"})
    assert properties is None
    assert f"spark.kubernetes.{key}=/etc/secrets" in words


def test_without_secrets_the_command_is_sparks_own(command):
    words, properties = command({"spark.executor.memory": "4g"}, properties_file="/mine.conf")
    assert properties is None
    assert words[words.index("--properties-file") + 1] == "/mine.conf"

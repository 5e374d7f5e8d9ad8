"""The examples of docs/how-to/other-operators.md: each makes its operator, which names the driver."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from airflow.providers.cncf.kubernetes.operators.custom_object_launcher import CustomObjectLauncher
from airflow.sdk import DAG, BaseOperator
from botocore.client import BaseClient
from moto import mock_aws

from airflow_occ_provider import via as markers
from airflow_occ_provider.places.via import RULES, ViaPlace, operator_path
from airflow_occ_provider.via import ATTEMPT, markers_in, with_driver

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "other-operators.md").read_text()
EXAMPLES = dict(re.findall(r"^### (\w+)\n.*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
ROWS = {
    name: (settings, proof)
    for name, settings, proof in re.findall(
        r"^\| `(\w+Operator)` \| (.*?) ?\| (.*) \|$", PAGE, re.MULTILINE
    )
}
REGION = "us-east-1"
RUNNER, FOLDER = "s3://lake/.airflow_occ/trips/i/1/run_job.py", "s3://lake/.airflow_occ/trips/i/1"


def example(name):
    """Return the class and the arguments of an operator's example."""
    module = re.search(r"^from (\S+) import", EXAMPLES[name], re.MULTILINE)[1]
    pytest.importorskip(module)  # those of Google and Databricks are large
    values = {key: getattr(markers, key) for key in ("ARGUMENTS", "ATTEMPT", "FOLDER", "RUNNER")}
    exec(EXAMPLES[name], values)  # noqa: S102 - our own page
    return values["via"], values["via_kwargs"]


@pytest.fixture
def task():
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        return BaseOperator(task_id="write")


@pytest.fixture
def made(task, monkeypatch):
    """Return a function that makes the operator of an example, as at a start."""

    def made(name):
        via, kwargs = example(name)
        assert via.__name__ == name
        operators = []
        monkeypatch.setattr(via, "execute", lambda self, context: operators.append(self))
        place = ViaPlace(operator_path(via), kwargs, task, {"task": task})
        place.refuse()
        place.start(RUNNER, [FOLDER])
        return operators[0]

    return made


def test_each_operator_with_a_rule_has_a_row_and_an_example():
    bases, without_rule = {"BaseOperator", "ResumableJobMixin"}, {"BashOperator"}
    assert set(EXAMPLES) == set(ROWS) == set(RULES) - bases | without_rule


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_makes_an_operator_that_names_the_driver(made, name):
    operator = made(name)
    fields = [getattr(operator, field, None) for field in operator.template_fields]
    assert RUNNER in repr(fields)
    assert FOLDER in repr(fields).replace(RUNNER, "")
    assert not markers_in(fields)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_task_sets_what_the_table_says(made, name):
    operator = made(name)
    settings = dict(re.findall(r"`(\w+)=(\w+)`", ROWS[name][0]))
    for setting, value in settings.items():
        attributes = vars(operator)
        assert str(attributes.get(setting, attributes.get(f"_{setting}"))) == value
    assert getattr(operator, "deferrable", False) is False
    if "`client_request_token`" in ROWS[name][0]:
        assert len(operator.client_request_token) == 24


# What the services are asked for


@pytest.fixture
def aws(monkeypatch):
    """An account of AWS by moto, with a client for each service."""
    connection = {"conn_type": "aws", "login": "k", "password": "s", "extra": {"region_name": REGION}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
    with mock_aws():
        yield partial(boto3.client, region_name=REGION)


@pytest.fixture
def execute(task):
    """Return a function that has an example's operator start a driver."""

    def execute(name, **other):
        via, kwargs = example(name)
        instance = SimpleNamespace(
            dag_id="d",
            task_id="write",
            run_id="r",
            map_index=-1,
            try_number=1,
            xcom_push=lambda **_: None,
        )
        context = {"task": task, "ti": instance, "task_instance": instance, "task_state_store": None}
        place = ViaPlace(operator_path(via), {**kwargs, **other}, task, context)
        place.start(RUNNER, [FOLDER])

    return execute


def test_a_job_run_of_emr_serverless_has_the_driver(aws, execute):
    serverless = aws("emr-serverless")
    application = serverless.create_application(
        name="n", releaseLabel="emr-7.9.0", type="SPARK", clientToken="t"
    )["applicationId"]
    execute("EmrServerlessStartJobOperator", application_id=application)
    (run,) = serverless.list_job_runs(applicationId=application)["jobRuns"]
    shown = serverless.get_job_run(applicationId=application, jobRunId=run["id"])["jobRun"]
    assert shown["jobDriver"]["sparkSubmit"] == {"entryPoint": RUNNER, "entryPointArguments": [FOLDER]}


def test_a_step_of_emr_has_the_driver(aws, execute):
    emr = aws("emr")
    cluster = emr.run_job_flow(Name="n", Instances={"KeepJobFlowAliveWhenNoSteps": True})["JobFlowId"]
    execute("EmrAddStepsOperator", job_flow_id=cluster)
    (step,) = emr.list_steps(ClusterId=cluster)["Steps"]
    assert step["Config"]["Args"][-2:] == [RUNNER, FOLDER]


def test_a_job_run_of_emr_on_eks_has_the_driver(aws, execute):
    containers = aws("emr-containers")
    cluster = containers.create_virtual_cluster(
        name="n",
        containerProvider={"id": "eks", "type": "EKS", "info": {"eksInfo": {"namespace": "n"}}},
    )["id"]
    execute("EmrContainerOperator", virtual_cluster_id=cluster)
    (run,) = containers.list_job_runs(virtualClusterId=cluster)["jobRuns"]
    shown = containers.describe_job_run(id=run["id"], virtualClusterId=cluster)["jobRun"]
    driver = {"entryPoint": RUNNER, "entryPointArguments": [FOLDER]}
    assert shown["jobDriver"]["sparkSubmitJobDriver"] == driver
    assert run["clientToken"] == with_driver(ATTEMPT, RUNNER, [FOLDER])


def test_each_run_of_a_glue_job_that_exists_has_its_own_driver(aws, execute, monkeypatch):
    requests = []

    def answer(_client, operation, request):
        requests.append((operation, request))
        return {"GetJob": {}, "StartJobRun": {"JobRunId": "jr"}}[operation]

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    execute("GlueJobOperator")
    arguments = {"--scriptLocation": RUNNER, "--airflow_occ_folder": FOLDER}
    operation, request = requests[-1]
    assert operation == "StartJobRun"
    assert arguments.items() <= request["Arguments"].items()


def test_a_pod_runs_the_driver_and_no_earlier_pod_is_taken_for_it(made, tmp_path):
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "contexts": [context], "current-context": "x", "users": []}
    (tmp_path / "config").write_text(json.dumps(config))
    operator = made("KubernetesPodOperator")
    operator.config_file = str(tmp_path / "config")
    (container,) = operator.build_pod_request_obj().spec.containers
    assert container.command == ["/opt/spark/bin/spark-submit"]
    assert container.args[-2:] == [RUNNER, FOLDER]
    assert not operator.reattach_on_restart


def test_an_application_of_spark_operator_has_the_driver(made):
    operator = made("SparkKubernetesOperator")
    body = CustomObjectLauncher("trips", "default", None, None, operator.template_body).body
    spec = body["spec"]
    assert (spec["mainApplicationFile"], spec["arguments"]) == (RUNNER, [FOLDER])
    assert body["kind"] == "SparkApplication"

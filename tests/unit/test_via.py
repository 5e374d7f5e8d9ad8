"""Another operator as the place of a driver: its arguments, what is refused, and what it starts."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.providers.amazon.aws.operators.emr import (
    EmrAddStepsOperator,
    EmrContainerOperator,
    EmrServerlessStartJobOperator,
)
from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, BaseOperator
from airflow.sdk import task as task_decorator
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowSkipException
from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
from airflow.serialization.serialized_objects import DagSerialization

from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
from airflow_occ_provider.operators.hudi_table_service import (
    HudiClusteringOperator,
    HudiCompactionOperator,
)
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.places.via import ViaPlace, operator_class, operator_path
from airflow_occ_provider.via import ARGUMENTS, ATTEMPT, FOLDER, RUNNER, markers_in, with_driver

URL = "s3://lake/trips/.airflow_occ/a b/1"
PLAIN = "s3://lake/trips/.airflow_occ/ab/1"
SUBMIT = f"spark-submit {RUNNER} {ARGUMENTS}"
OF_SPARK = {"sparkSubmit": {"entryPoint": RUNNER, "entryPointArguments": [ARGUMENTS]}}
EMR = {"application_id": "a", "execution_role_arn": "r", "job_driver": OF_SPARK}
ON_EKS = {
    "name": "n",
    "virtual_cluster_id": "v",
    "execution_role_arn": "r",
    "release_label": "emr-7",
    "job_driver": {"sparkSubmitJobDriver": {"entryPoint": RUNNER, "entryPointArguments": [ARGUMENTS]}},
}
STEPS = {
    "job_flow_id": "j-1",
    "steps": [{"Name": "s", "HadoopJarStep": {"Args": ["spark-submit", RUNNER, ARGUMENTS]}}],
}
GLUE = {"script_args": {"--scriptLocation": RUNNER, "--airflow_occ_folder": FOLDER}}
LIVY = {"file": RUNNER, "args": [ARGUMENTS]}
POD = {"image": "spark", "cmds": ["spark-submit"], "arguments": [RUNNER, ARGUMENTS]}
OF_OPERATORS = {"sparkapplication": {"spec": {"mainApplicationFile": RUNNER, "arguments": [ARGUMENTS]}}}
KNOWN = [
    (BashOperator, {"bash_command": SUBMIT}),
    (EmrServerlessStartJobOperator, EMR),
    (EmrContainerOperator, ON_EKS),
    (EmrAddStepsOperator, STEPS),
    (GlueJobOperator, GLUE),
    (LivyOperator, LIVY),
    (KubernetesPodOperator, POD),
    (SparkKubernetesOperator, {"template_spec": OF_OPERATORS}),
]


class Submitting(BaseOperator):
    """An operator without a rule: it records how it was executed."""

    template_fields = ("command", "greeting")
    template_ext = (".sh",)

    def __init__(self, *, command, greeting="hello {{ who }}", act=None, **kwargs):
        super().__init__(**kwargs)
        self.command = command
        self.greeting = greeting
        self.act = act
        self.ended = threading.Event()

    def execute(self, context):
        context["executed"].append(self)
        if self.act:
            return self.act(self)
        return "done"

    def on_kill(self):
        self.ended.set()
        raise OSError("the service is away")


class Hasty(Submitting):
    """The same, which needs one argument more."""

    def __init__(self, *, pace, **kwargs):
        super().__init__(**kwargs)
        self.pace = pace


class OurLivy(LivyOperator):
    """A company's own."""


@pytest.fixture
def task(tmp_path):
    (tmp_path / "submit.sh").write_text(f"spark-submit {RUNNER} --day {{{{ who }}}} {ARGUMENTS}\n")
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        dag.template_searchpath = [str(tmp_path)]
        return BaseOperator(task_id="write")


def started(task, via, kwargs, arguments=(PLAIN,), **context):
    context = {"executed": [], "task": task, "who": "me", **context}
    start = ViaPlace(operator_path(via), kwargs, task, context)
    start.refuse()
    start.start("/r/run.py", arguments)
    return context["executed"][0], start


# Markers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (RUNNER, "/r/run.py"),
        (FOLDER, URL),
        ([RUNNER, ARGUMENTS], ["/r/run.py", URL, "--x"]),
        (("a", ARGUMENTS, "b"), ("a", URL, "--x", "b")),
        (
            {"args": {"--folder": FOLDER, "deep": [[ARGUMENTS]]}},
            {"args": {"--folder": URL, "deep": [[URL, "--x"]]}},
        ),
        (f"submit {RUNNER} {ARGUMENTS}", f"submit /r/run.py '{URL}' --x"),
        (f"--folder={FOLDER}", f"--folder='{URL}'"),
        ("nothing", "nothing"),
        (7, 7),
        (None, None),
    ],
)
def test_markers_are_replaced_wherever_they_are(value, expected):
    assert with_driver(value, "/r/run.py", [URL, "--x"]) == expected
    assert markers_in(with_driver(value, "/r/run.py", [URL, "--x"])) == set()


def test_an_attempt_has_a_name_of_its_own_that_services_accept():
    names = {with_driver(f"trips-{ATTEMPT}", "r", [url]) for url in (URL, URL, PLAIN)}
    assert len(names) == 2
    assert all(len(name) <= 40 and name.replace("-", "").isalnum() for name in names)


@pytest.mark.parametrize("marker", [RUNNER, ARGUMENTS, FOLDER, ATTEMPT])
def test_a_marker_survives_json_templates_and_formats(task, marker):
    text = json.loads(json.dumps(f"{marker}")).format() % ()
    assert task.get_template_env().from_string(text).render() == marker


# What is refused


@pytest.mark.parametrize(("via", "kwargs"), KNOWN)
def test_arguments_with_markers_are_accepted(task, via, kwargs):
    ViaPlace(operator_path(via), kwargs, task).refuse()


@pytest.mark.parametrize(("via", "kwargs"), KNOWN)
@pytest.mark.parametrize("marker", [RUNNER, "the arguments"])
def test_missing_markers_are_named(task, via, kwargs, marker):
    missing = [RUNNER] if marker is RUNNER else [ARGUMENTS, FOLDER]
    text = repr(kwargs)
    for name in missing:
        text = text.replace(name, "x")
    with pytest.raises(ConfigurationError) as caught:
        ViaPlace(operator_path(via), eval(text), task).refuse()  # noqa: S307 - a literal of this module
    assert caught.value.field == "via_kwargs"
    assert all(name in caught.value.remedy for name in missing)


@pytest.mark.parametrize(
    ("via", "kwargs", "path"),
    [
        (EmrServerlessStartJobOperator, {**EMR, "wait_for_completion": True}, "wait_for_completion"),
        (EmrServerlessStartJobOperator, {**EMR, "deferrable": True}, "deferrable"),
        (EmrServerlessStartJobOperator, {**EMR, "client_request_token": "t"}, "client_request_token"),
        (EmrServerlessStartJobOperator, {**EMR, "config": {"clientToken": "t"}}, "config.clientToken"),
        (EmrContainerOperator, {**ON_EKS, "client_request_token": "t"}, "client_request_token"),
        (EmrAddStepsOperator, {**STEPS, "wait_for_completion": True}, "wait_for_completion"),
        (GlueJobOperator, {**GLUE, "durable": True}, "durable"),
        (GlueJobOperator, {**GLUE, "run_job_kwargs": {"JobRunId": "jr"}}, "run_job_kwargs.JobRunId"),
        (
            GlueJobOperator,
            {"script_location": RUNNER, "script_args": {"--airflow_occ_folder": FOLDER}},
            "script_args.--scriptLocation",
        ),
        (LivyOperator, {**LIVY, "polling_interval": 30}, "polling_interval"),
        (LivyOperator, {**LIVY, "durable": True}, "durable"),
        (KubernetesPodOperator, {**POD, "durable": True}, "durable"),
        (
            SparkKubernetesOperator,
            {"template_spec": OF_OPERATORS, "reattach_on_restart": True},
            "reattach_on_restart",
        ),
        (BashOperator, {"bash_command": SUBMIT, "pool": "p"}, "pool"),
        (BashOperator, {"bash_command": SUBMIT, "task_id": "t"}, "task_id"),
        (BashOperator, {"env": {"X": SUBMIT}}, "bash_command"),
        (Hasty, {"command": SUBMIT}, "pace"),
    ],
)
def test_a_contradicting_argument_is_refused_with_its_path_and_a_remedy(task, via, kwargs, path):
    with pytest.raises(ConfigurationError) as caught:
        ViaPlace(operator_path(via), kwargs, task).refuse()
    assert caught.value.field == f"via_kwargs.{path}"
    assert caught.value.remedy
    assert via.__name__ in str(caught.value)


@pytest.mark.parametrize(
    ("via", "kwargs"),
    [
        (EmrServerlessStartJobOperator, {**EMR, "client_request_token": f"trips-{ATTEMPT}"}),
        (EmrServerlessStartJobOperator, {**EMR, "wait_for_completion": "{{ params.wait }}"}),
        (
            EmrContainerOperator,
            {**ON_EKS, "job_retry_max_attempts": 3},
        ),  # a second driver is not granted
        (
            GlueJobOperator,
            {"script_location": RUNNER, "script_args": f"{{{{ var.json.args }}}} {FOLDER}"},
        ),
        (LivyOperator, {**LIVY, "queue": "etl"}),  # its own argument, of the name of a task's
        (BashOperator, {"bash_command": "submit.sh"}),  # the markers are in the file
        (BashOperator, {"bash_command": SUBMIT, "do_xcom_push": False}),
        (BashOperator, "{{ var.json.submission }}"),
        (BashOperator, BaseOperator(task_id="other").output),
        (Submitting, {"command": SUBMIT, "deferrable": None}),
    ],
)
def test_what_contradicts_nothing_is_accepted(task, via, kwargs):
    ViaPlace(operator_path(via), kwargs, task).refuse()


def test_default_args_of_the_dag_are_those_of_the_operator_too(task):
    task.dag.default_args = {"pace": "slow", "greeting": "good day"}
    operator, _ = started(task, Hasty, {"command": SUBMIT})
    assert (operator.pace, operator.greeting) == ("slow", "good day")


@pytest.mark.parametrize(
    ("via", "problem"),
    [
        ("nowhere.Operator", "cannot be imported"),
        ("Operator", "cannot be imported"),
        ("airflow.providers.standard.operators.bash.NoOperator", "cannot be imported"),
        ("json.JSONDecoder", "is no operator class"),
        (json.JSONDecoder, "is no operator class"),
        (HudiWriteOperator, "protects a driver itself"),
        (BaseOperator(task_id="made"), "is neither a class nor its path"),
        (3, "is neither a class nor its path"),
    ],
)
def test_what_is_no_class_of_another_operator_is_refused(via, problem):
    with pytest.raises(ConfigurationError, match=problem) as caught:
        operator_path(via)
    assert caught.value.field == "via"


def test_a_class_that_its_path_does_not_lead_to_is_refused():
    class Local(BaseOperator):
        pass

    with pytest.raises(ConfigurationError):
        operator_path(Local)


def test_the_path_of_a_class_leads_to_it():
    assert operator_class(operator_path(BashOperator)) is BashOperator
    assert operator_path(operator_path(BashOperator)) == operator_path(BashOperator)


# What is started


def test_the_operator_is_executed_as_a_part_of_the_task(task):
    operator, _ = started(task, Submitting, {"command": SUBMIT})
    assert operator.command == f"spark-submit /r/run.py {PLAIN}"
    assert (operator.task_id, operator.dag) == ("write", task.dag)
    assert operator.greeting == "hello me"  # its own default is rendered
    assert task.dag.task_dict == {"write": task}


def test_airflow_takes_it_for_a_task_of_its_own(task, monkeypatch, capsys):
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", False)
    started(task, Submitting, {"command": SUBMIT})
    assert "outside of the Task Runner" not in capsys.readouterr().out


def test_an_operators_file_is_rendered_once_and_has_the_driver(task):
    operator, _ = started(task, Submitting, {"command": "submit.sh"})
    assert operator.command == f"spark-submit /r/run.py --day me {PLAIN}"


def test_rendered_data_is_not_rendered_again(task):
    operator, _ = started(task, Submitting, {"command": f"{SUBMIT} '{{{{ who }}}}'"})
    assert operator.command.endswith("'{{ who }}'")


@pytest.mark.parametrize(
    ("via", "kwargs", "expected"),
    [
        (EmrServerlessStartJobOperator, EMR, {"deferrable": False, "wait_for_completion": False}),
        (EmrContainerOperator, ON_EKS, {"deferrable": False, "wait_for_completion": False}),
        (EmrAddStepsOperator, STEPS, {"deferrable": False, "wait_for_completion": False}),
        (GlueJobOperator, GLUE, {"deferrable": False, "durable": False, "wait_for_completion": False}),
        (LivyOperator, LIVY, {"deferrable": False, "durable": False, "_polling_interval": 0}),
        (KubernetesPodOperator, POD, {"durable": False, "reattach_on_restart": False}),
        (SparkKubernetesOperator, {"template_spec": OF_OPERATORS}, {"reattach_on_restart": False}),
    ],
)
def test_durable_modes_and_waiters_are_off(task, monkeypatch, via, kwargs, expected):
    operators = []
    monkeypatch.setattr(via, "execute", lambda self, context: operators.append(self))
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    task.dag.default_args = {"deferrable": True, "durable": True, "wait_for_completion": True}
    started_at_all(task, via, kwargs)
    assert {name: getattr(operators[0], name) for name in expected} == expected


def started_at_all(task, via, kwargs, url=PLAIN):
    start = ViaPlace(operator_path(via), kwargs, task, {"task": task})
    start.refuse()
    start.start("/r/run.py", [url])


@pytest.mark.parametrize(
    ("via", "kwargs"), [(EmrServerlessStartJobOperator, EMR), (EmrContainerOperator, ON_EKS)]
)
@pytest.mark.parametrize("token", [None, f"trips-{ATTEMPT}"])
def test_a_token_is_the_same_within_an_attempt_and_another_in_the_next(
    task, monkeypatch, via, kwargs, token
):
    operators = []
    monkeypatch.setattr(via, "execute", lambda self, context: operators.append(self))
    if token:
        kwargs = {**kwargs, "client_request_token": token}
    for url in (PLAIN, PLAIN, URL):
        started_at_all(task, via, kwargs, url)
    first, again, other = [operator.client_request_token for operator in operators]
    assert first == again != other
    assert first.startswith("trips-") is bool(token)


def test_a_services_request_names_the_driver(task, monkeypatch):
    requests = []
    client = SimpleNamespace(
        get_application=lambda **_: {"application": {"state": "STARTED"}},
        start_job_run=lambda **request: (
            requests.append(request) or {"ResponseMetadata": {"HTTPStatusCode": 200}, "jobRunId": "jr"}
        ),
    )
    hook = SimpleNamespace(conn=client)
    monkeypatch.setattr(EmrServerlessStartJobOperator, "hook", hook)
    monkeypatch.setattr(EmrServerlessStartJobOperator, "persist_links", lambda self, context: None)
    started_at_all(task, EmrServerlessStartJobOperator, EMR, URL)
    submitted = requests[0]["jobDriver"]["sparkSubmit"]
    assert submitted == {"entryPoint": "/r/run.py", "entryPointArguments": [URL]}
    assert requests[0]["clientToken"] == with_driver(ATTEMPT, "r", [URL])


def test_glue_gets_a_file_of_s3_by_the_scheme_that_it_knows(task, monkeypatch):
    operators = []
    monkeypatch.setattr(GlueJobOperator, "execute", lambda self, context: operators.append(self))
    kwargs = {**GLUE, "script_location": RUNNER}
    start = ViaPlace(operator_path(GlueJobOperator), kwargs, task, {"task": task})
    start.start("s3a://lake/run.py", [PLAIN])
    (operator,) = operators
    assert operator.script_location == operator.script_args["--scriptLocation"] == "s3://lake/run.py"


def test_an_operator_that_defers_itself_has_started_the_driver(task, capsys):
    def defer(operator):
        operator.defer(trigger=object(), method_name="execute_complete")

    started(task, Submitting, {"command": SUBMIT, "act": defer})
    assert "Submitting has deferred itself" in capsys.readouterr().out


@pytest.mark.parametrize("error", [OSError("no route"), AirflowSkipException("exit code 99")])
def test_a_failed_start_neither_skips_the_task_nor_says_that_nothing_runs(task, error):
    def fail(operator):
        raise error

    with pytest.raises(SubmitterUnreachableError, match=str(error)) as caught:
        started(task, Submitting, {"command": SUBMIT, "act": fail})
    assert caught.value.__cause__ is error
    assert caught.value.committed is None


@pytest.mark.parametrize("rendered", [{**EMR, "wait_for_completion": "True"}, {"job_driver": {}}, "{}"])
def test_what_a_template_was_rendered_to_is_judged_before_the_start(task, monkeypatch, rendered):
    monkeypatch.setattr(EmrServerlessStartJobOperator, "execute", lambda *_: pytest.fail("it started"))
    start = ViaPlace(operator_path(EmrServerlessStartJobOperator), rendered, task, {"task": task})
    with pytest.raises(ConfigurationError):
        start.start("/r/run.py", [PLAIN])


def test_arguments_that_the_operator_itself_refuses_start_nothing(task):
    with pytest.raises(ConfigurationError, match="sped"):
        started(task, Submitting, {"command": SUBMIT, "sped": 1})
    steps = {**STEPS, "job_flow_name": "both"}
    with pytest.raises(ConfigurationError, match="Exactly one of"):
        started(task, EmrAddStepsOperator, steps)


@pytest.mark.parametrize(
    ("via", "waits"),
    [
        (Submitting, True),  # unknown: the task must not be deferred while it runs
        *((kind, True) for kind in (BashOperator, KubernetesPodOperator, SparkKubernetesOperator)),
        *((kind, False) for kind in (LivyOperator, EmrAddStepsOperator, GlueJobOperator)),
    ],
)
def test_an_operator_waits_for_the_driver_unless_it_is_known_not_to(task, via, waits):
    assert ViaPlace(operator_path(via), {}, task).waits is waits


def test_the_rules_of_a_class_are_those_of_its_subclasses(task):
    assert ViaPlace(operator_path(OurLivy), LIVY, task).waits is False
    with pytest.raises(ConfigurationError):
        ViaPlace(operator_path(OurLivy), {**LIVY, "polling_interval": 9}, task).refuse()


def test_its_links_are_those_of_its_class(task):
    names = {link.name for link in ViaPlace(operator_path(EmrAddStepsOperator), STEPS, task).links}
    assert names == {"EMR Cluster", "EMR Cluster Logs"}


# The end


def test_the_end_is_the_operators_own_and_never_raises(task):
    operator, start = started(task, Submitting, {"command": SUBMIT})
    start.kill(None)
    assert operator.ended.wait(10)


def test_an_end_that_comes_before_what_it_ends_is_repeated(task):
    ended = threading.Event()

    def submit_late(operator):
        operator.ended.wait(30)  # the first end found nothing
        operator.ended.clear()
        if operator.ended.wait(30):
            ended.set()

    start = ViaPlace(operator_path(Submitting), {"command": SUBMIT, "act": submit_late}, task)
    start._context = {"executed": (operators := []), "who": "me"}
    thread = threading.Thread(target=start.start, args=("/r/run.py", [PLAIN]), daemon=True)
    thread.start()
    while not operators:
        assert thread.is_alive()
    start.kill(None)
    assert ended.wait(30)


def test_another_process_has_nothing_to_end(task):
    ViaPlace(operator_path(Submitting), {"command": SUBMIT}, task).kill(None)


def test_a_command_is_ended_while_it_runs(task, tmp_path):
    started_file = tmp_path / "started"
    command = f"touch {started_file}; exec sleep 600 # {SUBMIT}"
    context = {"task": task, "ti": SimpleNamespace(), "dag_run": None}
    start = ViaPlace(operator_path(BashOperator), {"bash_command": command}, task, context)
    errors = []

    def run():
        try:
            start.start("/r/run.py", [PLAIN])
        except SubmitterUnreachableError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while not started_file.exists():  # by then, the operator may not know of the process yet
        assert thread.is_alive()
    start.kill(None)
    thread.join(30)
    assert not thread.is_alive()
    assert "Bash command failed" in str(errors[0])


# An operator of ours with it

WRITE = {"task_id": "write", "table": "/t", "application": "a.py"}
BASH = {"via": BashOperator, "via_kwargs": {"bash_command": f"{SUBMIT} # {{{{ who }}}}"}}


@pytest.fixture
def dag():
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        yield dag


def stored(dag):
    """What the database gets of a DAG, by way of JSON."""
    return json.loads(json.dumps(DagSerialization.to_dict(dag)))


@pytest.mark.parametrize("via", [BashOperator, operator_path(BashOperator)])
def test_a_dag_with_it_is_stored_as_text(dag, via):
    task = HudiWriteOperator(**WRITE, via=via, via_kwargs=BASH["via_kwargs"])
    (of_task,) = stored(dag)["dag"]["tasks"]
    assert of_task["__var"]["via_kwargs"] == BASH["via_kwargs"]
    assert task.via == "airflow.providers.standard.operators.bash.BashOperator"
    assert list(dag.task_dict) == ["write"]


@pytest.mark.parametrize("via", [BashOperator, operator_path(BashOperator)])
def test_a_mapped_task_with_it_is_stored_and_made(dag, via):
    commands = [{"bash_command": f"{SUBMIT} {day}"} for day in (1, 2)]
    mapped = HudiWriteOperator.partial(**WRITE, via=via).expand(via_kwargs=commands)
    assert stored(dag)
    task = mapped.unmap({"via_kwargs": commands[1]})
    operator, _ = started(task, Submitting, {"command": task.via_kwargs["bash_command"]})
    assert operator.command == f"spark-submit /r/run.py {PLAIN} 2"
    assert task.via == operator_path(BashOperator)


def test_a_function_with_it_is_stored_and_made(dag):
    @task_decorator.hudi_write(table="/t", **BASH)
    def write(spark):
        return spark.table("trips")

    @task_decorator.hudi_write(table="/t", **BASH)
    def each(spark, day):
        return spark.table(f"trips_{day}")

    write()
    each.expand(day=[1, 2])
    assert stored(dag)
    assert dag.get_task("write").via == operator_path(BashOperator)
    assert dag.get_task("each").unmap({"op_kwargs": {"day": 1}}).via == operator_path(BashOperator)


def test_default_args_may_name_it(dag):
    dag.default_args.update(BASH)
    task = HudiWriteOperator(**WRITE)
    assert task.via == operator_path(BashOperator)
    with pytest.raises(ConfigurationError, match="conf"):
        HudiWriteOperator(**{**WRITE, "task_id": "other"}, conf={"a": "b"})


def test_its_arguments_are_rendered_with_the_tasks(dag):
    task = HudiWriteOperator(**WRITE, **BASH)
    task.render_template_fields({"who": "me"})
    assert task.via_kwargs == {"bash_command": f"{SUBMIT} # me"}
    shown = _serialize_rendered_fields(task)
    assert shown["via_kwargs"] == task.via_kwargs


def test_xcoms_in_its_arguments_are_dependencies(dag):
    steps = {**STEPS, "job_flow_id": BaseOperator(task_id="cluster").output}
    task = HudiWriteOperator(**WRITE, via=EmrAddStepsOperator, via_kwargs=steps)
    assert task.upstream_task_ids == {"cluster"}


def test_the_links_of_the_operator_are_the_tasks(dag):
    HudiWriteOperator(**WRITE, via=EmrAddStepsOperator, via_kwargs=STEPS)
    (of_task,) = stored(dag)["dag"]["tasks"]
    links = of_task["__var"]["_operator_extra_links"]
    assert set(links) == {"Hudi table", "Driver", "EMR Cluster", "EMR Cluster Logs"}


def test_a_copy_has_it_too(dag):
    task = HudiWriteOperator(**WRITE, **BASH)
    for other in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert (other.via, other.via_kwargs) == (task.via, task.via_kwargs)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"via": BashOperator}, "via_kwargs.bash_command"),
        ({"via": BashOperator, "via_kwargs": {"bash_command": "true"}}, "via_kwargs"),
        ({"via": BashOperator, "via_kwargs": [SUBMIT]}, "via_kwargs"),
        ({"via_kwargs": {"bash_command": SUBMIT}}, "via_kwargs"),
        ({"via": "{{ params.operator }}", "via_kwargs": {}}, "via"),
        ({"via": HudiWriteOperator, "via_kwargs": {}}, "via"),
        ({**BASH, "conf": {"spark.executor.memory": "1g"}}, "conf"),
        ({**BASH, "conn_id": "spark"}, "conn_id"),
        ({**BASH, "jars": "a.jar"}, "jars"),
        ({**BASH, "env_vars": {"A": "b"}}, "env_vars"),
        ({**BASH, "name": "trips"}, "name"),
        ({**BASH, "deploy_mode": "cluster"}, "deploy_mode"),
    ],
)
def test_what_would_not_reach_the_driver_is_refused_when_the_dag_is_parsed(dag, arguments, field):
    with pytest.raises(ConfigurationError) as caught:
        HudiWriteOperator(**WRITE, **arguments)
    assert caught.value.field == field
    assert caught.value.remedy


@pytest.mark.parametrize(
    "kind", [HudiCleanOperator, HudiClusteringOperator, HudiCompactionOperator, HudiStreamerOperator]
)
def test_every_operator_with_a_driver_takes_it(dag, kind):
    assert kind(task_id="t", table="/t", **BASH).via == operator_path(BashOperator)
    with pytest.raises(ConfigurationError):
        kind(task_id="u", table="/t", via=BashOperator)

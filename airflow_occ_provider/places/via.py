"""Any operator of Airflow as the place where a task's driver is started."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts.site import ELSEWHERE, Site
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.attempts.typed_values import has_template
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.places.of_task import Launch, PlacedTask
from airflow_occ_provider.submitters.place import Place, StartedPlace
from airflow_occ_provider.submitters.processes import DriverProcess, child_process
from airflow_occ_provider.via import ARGUMENTS, ATTEMPT, FOLDER, RUNNER, markers_in, with_driver

if TYPE_CHECKING:
    from airflow.sdk import Context


_PACKAGE = __name__.partition(".")[0]
_KILL_AFTER_S = (0.0, 0.5, 1.0, 2.0)
_FOR_ALL_OPERATORS = ("default_args", "do_xcom_push")
_OF_JOBS = ("application", "application_args", "java_class")
_OF_SPARK_SUBMIT = set(inspect.signature(SparkSubmitOperator.__init__).parameters).difference(_OF_JOBS)


@dataclass(frozen=True, slots=True)
class StartRule:
    """What makes an operator start one driver for each attempt, and nothing more.

    :param settings: arguments that get this value. An attempt waits for its driver by the folder: a
        waiter of the operator's own would give up earlier, and a trigger would take the task along.
    :param tokens: arguments by which a service takes a submission for an earlier one, so that an
        attempt would get the driver of the attempt before. Each needs ``ATTEMPT`` in it.
    :param refused: arguments that no attempt can use, with the reason.
    :param runner_at: the argument that must have ``RUNNER``: what others have is kept for later runs.
    :param s3_scheme: the scheme by which the service names the file, if it is on S3.
    :param waits: whether ``execute`` returns only once the driver has ended. Until then the task cannot
        be deferred: the driver may be the operator's child.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    runner_at: str = ""
    s3_scheme: str = ""
    waits: bool = True


_NO_WAIT = {"wait_for_completion": False}
RULES: Mapping[str, StartRule] = {
    # An operator that does not take one of these arguments does not get it.
    "BaseOperator": StartRule({"deferrable": False}),
    "ResumableJobMixin": StartRule({"durable": False}),
    "SSHOperator": StartRule({"cmd_timeout": None}),  # the default is 10 s
    "KubernetesPodOperator": StartRule({"durable": False}),
    "SparkKubernetesOperator": StartRule({"reattach_on_restart": False}),
    "LivyOperator": StartRule({"polling_interval": 0}, waits=False),
    "EmrAddStepsOperator": StartRule(_NO_WAIT, waits=False),
    "EmrServerlessStartJobOperator": StartRule(
        {**_NO_WAIT, "client_request_token": ATTEMPT},
        ("client_request_token", "config.clientToken"),
        waits=False,
    ),
    "EmrContainerOperator": StartRule(
        {**_NO_WAIT, "client_request_token": ATTEMPT}, ("client_request_token",), waits=False
    ),
    "GlueJobOperator": StartRule(
        _NO_WAIT,
        refused={"run_job_kwargs.JobRunId": "repeats an earlier run, with that run's arguments"},
        runner_at="script_args.--scriptLocation",  # script_location is that of the first run
        s3_scheme="s3",  # with another one, the operator takes it for a file of the worker
        waits=False,
    ),
    "DataprocSubmitJobOperator": StartRule(
        {"asynchronous": True}, ("request_id", "job.reference.job_id"), waits=False
    ),
    "DataprocCreateBatchOperator": StartRule(
        {"asynchronous": True}, ("batch_id", "request_id"), waits=False
    ),
    "DatabricksSubmitRunOperator": StartRule(
        {"wait_for_termination": False}, ("idempotency_token", "json.idempotency_token"), waits=False
    ),
}
"""The rules by the name of a class, which are also those of its subclasses."""


def operator_path(via: object) -> str:
    """Return the import path of an operator class, which a serialized DAG can store.

    :param via: the class, or its path.
    :raises ConfigurationError: if it is neither, or the path does not lead to it.
    """
    if not isinstance(via, str | type):
        raise ConfigurationError(
            "via", f"{via!r} is neither a class nor its path", remedy="give the class of an operator"
        )
    path = via if isinstance(via, str) else f"{via.__module__}.{via.__qualname__}"
    operator = operator_class(path)
    if isinstance(via, type) and operator is not via:
        raise ConfigurationError(
            "via",
            f"{path} is not the class that was given, so a worker does not find it",
            remedy="define the class at the top of a module",
        )
    return path


def operator_class(path: str) -> type[BaseOperator]:
    """Return the operator class at an import path.

    :raises ConfigurationError: if there is none, or it cannot start a driver.
    """
    module, _, name = path.rpartition(".")
    try:
        operator = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            "via",
            f"{path!r} cannot be imported: {error}",
            remedy="install the provider that has it, or correct the path",
        ) from error
    if not isinstance(operator, type) or not issubclass(operator, BaseOperator):
        raise ConfigurationError(
            "via", f"{path} is no operator class", remedy="give the class of an operator, or its path"
        )
    if operator.__module__.partition(".")[0] == _PACKAGE:
        raise ConfigurationError(
            "via",
            f"{operator.__name__} protects a driver itself",
            remedy="give the operator that starts the driver, such as BashOperator",
        )
    return operator


def refuse_beside_via(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of ``spark-submit``, which another operator does not get.

    :param arguments: that were given to the task.
    :raises ConfigurationError: with the first of them.
    """
    for name, value in arguments.items():
        if name in _OF_SPARK_SUBMIT and value is not None:
            raise ConfigurationError(
                name,
                "does not reach a driver that via starts",
                remedy="leave it out; via_kwargs may have an argument for it",
            )


class ViaPlace(Place):
    """Starts the driver of one attempt by another operator.

    Nothing of the operator's service is known here. That ``execute`` has returned, or failed, says
    nothing about the driver: the attempt's folder does. Only the end of a child of this process is
    seen here, such as of what ``BashOperator`` runs in client mode.

    :param via: the import path of the operator's class.
    :param kwargs: its arguments, with markers; when the DAG is parsed, with templates too.
    :param task: the task, whose name and DAG the operator gets.
    :param context: of the task, once it runs.
    """

    name = StartedPlace.name

    def __init__(
        self, via: str, kwargs: Any, task: BaseOperator, context: Context | None = None
    ) -> None:
        self._context: Context = context or {}
        self._class = operator_class(via)
        self._kwargs = {} if kwargs is None else kwargs
        self._task = task
        self._rule = _rule_of(self._class)
        self.waits = self._rule.waits
        self._operator: BaseOperator | None = None
        self._executes = False
        self._children: dict[str, DriverProcess] = {}

    @property
    def links(self) -> tuple[Any, ...]:
        """The operator's links for the UI; they read what it stores for the task."""
        links = self._class.operator_extra_links
        return tuple(links) if isinstance(links, list | tuple) else ()  # some compute them

    def refuse(self, site: Site = ELSEWHERE) -> None:  # noqa: ARG002
        """Refuse arguments that start no driver, or that of another attempt.

        :raises ConfigurationError: with the first of them.
        """
        if not isinstance(self._kwargs, Mapping):
            if has_template(self._kwargs):
                return  # not known before the task starts
            raise self._refusal(
                "", f"{self._kwargs!r} is no dictionary", "give the operator's arguments by name"
            )
        self._refuse_foreign()
        for path in (*self._rule.settings, *self._rule.tokens, *self._rule.refused):
            for value in _values_at(self._kwargs, path):
                self._refuse_value(path, value)
        self._refuse_without_markers()

    def start(self, runner: str, arguments: Sequence[str]) -> None:
        """Make the operator and execute it, in the task's context and log.

        An operator that defers itself has started the driver; the trigger is not started.

        :param runner: path or URL of the PySpark file, as the driver reads it.
        :param arguments: of the file; the first is the URL of the attempt's folder.
        :raises ConfigurationError: if the operator cannot be made of its arguments, or ``refuse``
            refuses what their templates were rendered to.
        :raises SubmitterUnreachableError: if ``execute`` fails. A driver may run all the same.
        """
        self.refuse()
        operator = self._operator = self._made(runner, arguments)
        name = self._class.__name__
        in_operator = contextvars.copy_context()
        in_operator.run(ExecutorSafeguard.tracker.set, operator)  # as Airflow does for the task's own
        self._executes = True
        try:
            in_operator.run(operator.execute, self._context)
        except TaskDeferred:
            self._task.log.info("%s has deferred itself; its trigger is not needed.", name)
        except Exception as error:
            raise SubmitterUnreachableError(
                f"{name} failed: {type(error).__name__}: {error}",
                remedy="correct what the task's log shows",
            ) from error
        finally:
            self._executes = False

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, Any]]:
        """Return the driver's name; note its process, if that is a child of this one.

        No other process is told of it: it could not know whether it has ended.
        """
        child = child_process(hello.details)
        if child:
            self._children[hello.nonce] = child
        return super().identify(hello)

    def state(self, handle: Handle) -> Running | Ended | Unseen:
        """Return whether the driver's JVM is alive, if it is a child of this process."""
        child = self._children.get(str(handle.facts["nonce"]))
        if child is None:
            return super().state(handle)
        return Ended(None) if child.is_gone else Running()

    def kill(self, handle: Handle | None) -> None:  # noqa: ARG002
        """Have the operator end what it has started.

        It is asked again: ``execute`` may have been about to start that.
        """
        for delay_s in _KILL_AFTER_S:
            time.sleep(delay_s)
            if self._operator is None or (delay_s and not self._executes):
                return
            with contextlib.suppress(Exception):  # the folder ends the driver in any case
                self._operator.on_kill()

    def _made(self, runner: str, arguments: Sequence[str]) -> BaseOperator:
        """Return the operator, with the task's name and DAG, but not as a task of the DAG."""
        settings = {
            name: value for name, value in self._rule.settings.items() if name in self._parameters
        }
        if self._rule.s3_scheme:
            runner = re.sub("^s3[an]?(?=://)", self._rule.s3_scheme, runner)
        kwargs = with_driver({**settings, **self._kwargs}, runner, arguments)
        dag = self._task.get_dag()
        try:
            operator = self._class(
                task_id=self._task.task_id, dag=dag, _airflow_from_mapped=True, **kwargs
            )
        except Exception as error:
            raise self._refusal(
                "", f"{type(error).__name__}: {error}", "correct the argument"
            ) from error
        # The arguments are rendered already. What remains are the operator's own defaults and files.
        # What looks like a template by now is data, and is never rendered.
        if not has_template(self._kwargs):
            operator.render_template_fields(self._context, self._task.get_template_env())
            for name in operator.template_fields:
                value = getattr(operator, name, None)
                if markers_in(value):
                    setattr(operator, name, with_driver(value, runner, arguments))
        return operator

    @property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments that the operator's class takes, those of ``BaseOperator`` left out."""
        return {
            name: parameter
            for parent in reversed(self._class.__mro__)
            if parent is not BaseOperator and "__init__" in vars(parent)
            for name, parameter in inspect.signature(vars(parent)["__init__"]).parameters.items()
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        }

    def _refuse_foreign(self) -> None:
        """Refuse arguments that only a task of its own has, and a lack of required ones."""
        parameters = self._parameters
        of_tasks = set(inspect.signature(BaseOperator.__init__).parameters).difference(
            parameters, _FOR_ALL_OPERATORS
        )
        for name in self._kwargs:
            if name in of_tasks:
                raise self._refusal(name, "has no effect there", "give it to the task itself")
        dag = self._task.get_dag()
        supplied = {"self", "task_id", *self._kwargs, *(dag.default_args if dag else ())}
        for name, parameter in inspect.signature(self._class.__init__).parameters.items():
            is_named = parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            if is_named and parameter.default is parameter.empty and name not in supplied:
                raise self._refusal(name, f"is missing, and {self._class.__name__} needs it", "add it")

    def _refuse_value(self, path: str, value: object) -> None:
        if path in self._rule.refused:
            raise self._refusal(path, self._rule.refused[path], "leave it out")
        if path in self._rule.tokens:
            if value and ATTEMPT not in markers_in(value) and not has_template(value):
                raise self._refusal(
                    path,
                    f"{value!r} is the same in each attempt, so the service repeats the first one",
                    "leave it out, or put airflow_occ_provider.via.ATTEMPT into it",
                )
            return
        setting = self._rule.settings[path]
        if value != setting and (value or setting) and not has_template(value):
            raise self._refusal(
                path,
                f"{value!r}: the task waits for the driver itself, and needs {setting!r}",
                "leave it out",
            )

    def _refuse_without_markers(self) -> None:
        markers = markers_in(self._kwargs)
        if RUNNER in markers and {ARGUMENTS, FOLDER} & markers:
            self._refuse_runner_elsewhere()
            return
        if any(self._is_file(name, value) for name, value in self._kwargs.items()):
            return  # they may be in the file
        if RUNNER not in markers:
            raise self._refusal(
                "",
                "does not say where the driver's PySpark file goes",
                f"put airflow_occ_provider.via.RUNNER, the text {RUNNER}, where the operator names it",
            )
        raise self._refusal(
            "",
            "does not say where the driver's arguments go",
            f"put airflow_occ_provider.via.ARGUMENTS, the text {ARGUMENTS}, after the PySpark file; or "
            f"FOLDER, the text {FOLDER}, as the value of an argument --airflow_occ_folder",
        )

    def _refuse_runner_elsewhere(self) -> None:
        path = self._rule.runner_at
        if not path or RUNNER in markers_in([*_values_at(self._kwargs, path)]):
            return
        if not has_template(self._kwargs):
            raise self._refusal(
                path,
                "does not name the driver's PySpark file, and the service starts later drivers with "
                "the file that other arguments have named for the first one",
                f"put airflow_occ_provider.via.RUNNER, the text {RUNNER}, there",
            )

    def _is_file(self, name: str, value: object) -> bool:
        """Return whether the operator loads an argument from a file."""
        endings = tuple(self._class.template_ext)
        is_field = name in self._class.template_fields
        return is_field and isinstance(value, str) and bool(endings) and value.endswith(endings)

    def _refusal(self, path: str, problem: str, remedy: str) -> ConfigurationError:
        where = f"via_kwargs.{path}" if path else "via_kwargs"
        return ConfigurationError(where, f"{problem} (via {self._class.__name__})", remedy=remedy)


def place_of_task(task: PlacedTask, launch: Launch | None) -> ViaPlace:  # noqa: ARG001
    """Return the other operator of a task as the place of its drivers."""
    return ViaPlace(task.operator.via, task.operator.via_kwargs, task.operator, task.context)


def place_of_handle(handle: Handle) -> StartedPlace:  # noqa: ARG001
    """Return where a driver of another process runs."""
    return StartedPlace()


def _rule_of(operator: type) -> StartRule:
    """Return the rule of a class: its own and those of its parents."""
    rules = [RULES[parent.__name__] for parent in operator.__mro__ if parent.__name__ in RULES]
    return StartRule(
        {name: value for rule in reversed(rules) for name, value in rule.settings.items()},
        tuple(path for rule in rules for path in rule.tokens),
        {path: reason for rule in rules for path, reason in rule.refused.items()},
        next((rule.runner_at for rule in rules if rule.runner_at), ""),
        next((rule.s3_scheme for rule in rules if rule.s3_scheme), ""),
        all(rule.waits for rule in rules),
    )


def _values_at(kwargs: Mapping[str, Any], path: str) -> Iterator[Any]:
    """Return the value at a dotted path of nested dictionaries, if there is one."""
    name, _, rest = path.partition(".")
    if name not in kwargs:
        return
    if not rest:
        yield kwargs[name]
    elif isinstance(kwargs[name], Mapping):
        yield from _values_at(kwargs[name], rest)

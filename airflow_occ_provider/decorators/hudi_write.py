"""``@task.hudi_write``: a function as a safe concurrent writer of one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, _TaskDecorator

from airflow_occ_provider.attempts.jobs import Function, Job, refuse_context
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import budgeted

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

SESSION = "spark"
_NOT_ACCEPTED = ("application", "application_args", "java_class", "sql", "table_name")


class _HudiWriteDecoratedOperator(DecoratedOperator, HudiWriteOperator):  # type: ignore[misc]
    """Runs a function in a protected driver.

    :param python_callable: the function.
    :param op_args: its positional arguments. (templated)
    :param op_kwargs: its keyword arguments. (templated)
    """

    custom_operator_name = "@task.hudi_write"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *HudiWriteOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **HudiWriteOperator.template_fields_renderers,
    }

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        function = python_callable.__name__
        signature = inspect.signature(python_callable)
        if SESSION not in signature.parameters:
            raise TypeError(f"{function}: it needs a parameter {SESSION}, for the session")
        refused = [name for name in _NOT_ACCEPTED if kwargs.get(name)]
        if refused:
            raise TypeError(f"@task.hudi_write takes no {refused[0]}: the function is the job")
        named = _named(signature, op_args or ())
        refuse_context(signature.parameters, {*named, *(op_kwargs or {})})
        super().__init__(
            python_callable=python_callable,
            op_kwargs={SESSION: None, **named, **(op_kwargs or {})},
            application=inspect.getsourcefile(python_callable) or function,
            **kwargs,
        )

    def job(self, context: Context) -> Job:
        """Return the function, with its arguments and what it names of the context."""
        takes = inspect.signature(self.python_callable).parameters
        of_context = {key: value for key, value in context.items() if key in takes}
        arguments = {**of_context, **self.op_kwargs}
        del arguments[SESSION]
        source: str = self.get_python_source()  # type: ignore[no-untyped-call]
        return Function(self.python_callable.__name__, source, self.table, arguments)


class _HudiWriteTask(_TaskDecorator[..., Any, _HudiWriteDecoratedOperator]):
    """A decorated function, whose mapped tasks have the retries of the others."""

    def _expand(self, expand_input: Any, *, strict: bool) -> XComArg:
        refuse_context(inspect.signature(self.function).parameters, ())
        output = super()._expand(expand_input, strict=strict)
        # Airflow 3.3.2 gives a mapped function what was passed, without the defaults of its operator.
        arguments = cast("Any", output).operator.partial_kwargs
        arguments.update(budgeted(arguments))
        return output


def _named(signature: inspect.Signature, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return positional arguments by name; the session is none of them.

    :raises TypeError: for a parameter that has no name.
    """
    others = [parameter for parameter in signature.parameters.values() if parameter.name != SESSION]
    unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    if any(parameter.kind in unnamed for parameter in signature.parameters.values()):
        raise TypeError(f"{signature}: every parameter of a function for the driver needs a name")
    return dict(signature.replace(parameters=others).bind_partial(*arguments).arguments)


def hudi_write_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Run a function as a safe concurrent writer of one Hudi table.

    The function runs in the driver. It gets the session as ``spark``, its own arguments, and what it
    names of the context, such as ``ds`` or ``params``; Airflow's own objects, such as ``ti`` or
    ``dag_run``, are refused. It returns the DataFrame to upsert; or it writes itself, and
    returns nothing. Only its source text goes to the driver: it imports what it uses. The result is
    that of ``HudiWriteOperator``, and so is what a kill, a clear, a retry and a time-out do::

        @task.hudi_write(table="s3a://lake/trips", scope=["dt={{ ds }}"])
        def trips(spark, ds):
            return spark.read.json(f"s3a://raw/{ds}")

        trips()

    :param python_callable: the function.
    :param multiple_outputs: whether the result's facts are XComs of their own, too.
    :param kwargs: arguments of ``HudiWriteOperator``, such as ``table``.
    """
    outputs: dict[str, Any] = {} if multiple_outputs is None else {"multiple_outputs": multiple_outputs}

    def decorated(function: Callable[..., Any]) -> _HudiWriteTask:
        return _HudiWriteTask(
            function=function, operator_class=_HudiWriteDecoratedOperator, kwargs=kwargs, **outputs
        )

    task: Any = decorated if python_callable is None else decorated(python_callable)
    return cast("TaskDecorator", task)

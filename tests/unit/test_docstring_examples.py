"""Each public operator, sensor and decorator has an example in its docstring, and says how it ends."""

from __future__ import annotations

import inspect
import re
from textwrap import dedent

import pytest
from airflow.sdk import DAG, BaseOperator, task

import airflow_occ_provider
from airflow_occ_provider.decorators.hudi_write import hudi_write_task
from airflow_occ_provider.operators.lease import HudiKeepLeaseOperator, HudiReleaseLeaseOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

PUBLIC = {name: getattr(airflow_occ_provider, name) for name in airflow_occ_provider.__all__}
TASKS = [
    *(cls for cls in PUBLIC.values() if inspect.isclass(cls) and issubclass(cls, BaseOperator)),
    *(HudiKeepLeaseOperator, HudiReleaseLeaseOperator, hudi_write_task),
]


def example(documented):
    """Return the first literal block of a docstring."""
    (block,) = re.findall(r"::\n\n((?:    .*\n|\n)+)", inspect.getdoc(documented) + "\n")[:1]
    return dedent(block)


@pytest.mark.parametrize("documented", [*TASKS, HudiConflictRetryPolicy], ids=lambda cls: cls.__name__)
def test_the_example_of_a_docstring_makes_tasks(monkeypatch, documented):
    monkeypatch.setattr(task, "hudi_write", hudi_write_task, raising=False)
    with DAG("shown") as dag:
        exec(compile(example(documented), documented.__name__, "exec"), {**PUBLIC, "task": task})  # noqa: S102
    assert dag.tasks
    if documented in TASKS and inspect.isclass(documented):
        assert documented in map(type, dag.tasks)


@pytest.mark.parametrize("documented", TASKS, ids=lambda cls: cls.__name__)
def test_the_docstring_says_what_a_kill_a_clear_a_retry_and_a_time_out_do(documented):
    text = inspect.getdoc(documented)
    said = {word for word in ("kill", "clear", "retry", "time-out") if re.search(rf"\b{word}\b", text)}
    assert said == {"kill", "clear", "retry", "time-out"}

"""The examples in dags/: one for each family of operators and sensors, whole, and named in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from airflow_occ_provider.provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "dags").glob("example_*.py"))


@pytest.fixture(scope="module")
def dags():
    bag = DagBag(dag_folder=ROOT / "dags")
    assert bag.import_errors == {}
    return bag.dags


def test_each_file_has_the_dag_of_its_name_and_others_of_the_same_beginning(dags):
    assert {*dags} >= {"two_writers", *(path.stem for path in EXAMPLES)}
    assert all(Path(dag.fileloc).stem in dag_id for dag_id, dag in dags.items())


def test_each_module_of_operators_and_sensors_has_an_example(dags):
    info = get_provider_info()
    families = {name for kind in ("operators", "sensors") for name in info[kind][0]["python-modules"]}
    used = {
        task.operator_class if task.is_mapped else type(task)
        for dag in dags.values()
        for task in dag.tasks
    }
    assert {task.__module__ for task in used} >= families


def test_no_example_runs_by_itself(dags):
    kinds = {type(dag.timetable).__name__ for dag in dags.values()}
    assert kinds == {"NullTimetable", "AssetTriggeredTimetable"}


def test_no_param_has_the_name_of_a_method_of_dictionaries(dags):
    # {{ params.copy }} is that method, not the parameter.
    assert [name for dag in dags.values() for name in dag.params if hasattr(dict, name)] == []


def test_each_job_is_there(dags):
    tasks = [task for dag in dags.values() for task in dag.tasks]
    jobs = {
        task.partial_kwargs.get("application")
        if task.is_mapped
        else getattr(task, "application", None) or None  # of Hudi Streamer: packages
        for task in tasks
    }
    assert all(Path(job).is_file() for job in jobs - {None})
    named = {Path(job).name for job in jobs - {None}} | {"count_trips.py"}  # which the demo runs itself
    assert {path.name for path in (ROOT / "dags" / "jobs").iterdir() if path.is_file()} <= named


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_short_and_named_in_the_docs(path):
    assert len(path.read_text().splitlines()) <= 50
    pages = [page.read_text() for page in (ROOT / "docs" / "how-to").glob("*.md")]
    assert any(f"`dags/{path.name}`" in page for page in pages)

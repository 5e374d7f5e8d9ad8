from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def snippets(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(
    ("code", "tasks"),
    zip(
        snippets("python"),
        [
            ["write_trips"],
            ["lease", "lease_keep", "lease_release", "write_trips"],
            ["quiet", "clean"],
            ["clean"],
        ],
        strict=True,
    ),
)
def test_the_dags_are_short_and_whole(tmp_path, code, tasks):
    assert len([line for line in code.splitlines() if line.strip()]) <= 13
    dag_file = tmp_path / "shown.py"
    dag_file.write_text(code)
    bag = DagBag(dag_folder=dag_file)
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    assert list(dag.task_dict) == tasks


@pytest.mark.parametrize(
    "command", [c for text in snippets("bash") for c in text.replace("\\\n", "").splitlines()]
)
def test_every_command_exists(command):
    program, *arguments = shlex.split(command)
    if program == "docker":
        compose, _, file, _, service, program, *arguments = arguments
        assert compose == "compose"
        assert service in yaml.safe_load((ROOT / file).read_text())["services"]
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "airflow":
        assert get_parser().parse_args(arguments).func
    else:
        assert command == "pip install airflow-occ-provider"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(name):
    named = set(re.findall(r"`make ([a-z0-9-]+)", (ROOT / name).read_text()))
    made = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= made


def test_each_test_is_in_one_tier_and_one_folder(request):
    folders = {folder.name for folder in (ROOT / "tests").iterdir()}
    for item in request.session.items:
        markers = {mark.name for mark in item.iter_markers()}
        assert len(markers & {"quick", "rest"}) == 1, item
        assert item.path.parent.name in markers & folders, item


def test_ci_runs_both_tiers_the_quick_one_first():
    assert (ROOT / ".ci" / "run").read_text().endswith("\nmake test\nexec make test-rest\n")


def test_every_field_of_the_form_is_explained():
    for form in get_provider_info()["connection-types"]:
        section = README.split(f"**{form['hook-name']}**")[1].split("\n## ")[0]
        labels = [field["label"] for field in form["conn-fields"].values()]
        for label in [*labels, *form["ui-field-behaviour"]["relabeling"].values()]:
            assert f"| {label} |" in section


def test_the_table_of_arguments_names_real_ones():
    section = README.split("| argument |")[1].split("\n\n")[0]
    arguments = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    task = HudiWriteOperator(task_id="t", application="a", table="/t")
    assert len(arguments) == 15
    assert all(hasattr(task, argument) for argument in arguments)

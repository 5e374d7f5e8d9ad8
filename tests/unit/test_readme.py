from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
import yaml
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag

from airflow_occ_provider.leases import rules as lease_rules
from tests import rig

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
TUTORIAL = ROOT / "docs" / "tutorial.md"  # tests/system/test_tutorial.py runs all of it
RUN_BY_DEVELOPERS = (".venv/bin/python",)
OF_HADOOP = ("yarn",)
# The DAGs of each page, in its order, as the tasks that they have.
TASKS = {
    "README.md": [["write_trips"]],
    "docs/how-to/scopes.md": [["write_trips"], ["write_trips"], ["clean"], ["write_eu", "write_us"]],
    "docs/how-to/serializable-writes.md": [["merge"]],
    "docs/how-to/sql-and-other-jobs.md": [["merge"], ["trips"], ["ingest"], ["write"]],
    "docs/how-to/other-operators.md": [["write"]],
    "docs/how-to/leases.md": [["lease", "lease_keep", "lease_release", "write_trips"]],
    "docs/how-to/dead-writers.md": [["quiet", "clean"], ["clean"]],
    "docs/how-to/object-stores.md": [["write_trips"]],
    "docs/how-to/react-to-commits.md": [["trips_are_there"], ["write_trips"], ["show"], ["start"]],
    "docs/how-to/incremental-reads.md": [["read_trips"], ["ready", "read_trips"]],
    "docs/how-to/table-services.md": [["compact", "cluster"]],
}


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def snippets(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def dags(page):
    return [code for code in snippets(page, "python") if re.search(r"\bDAG\(|@dag\b", code)]


def commands():
    for page in PAGES:
        for text in snippets(page, "bash") if page != TUTORIAL else ():
            for command in filter(str.strip, text.replace("\\\n", "").splitlines()):
                yield pytest.param(command, id=f"{name_of(page)}: {command}")


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_guide_is_short_and_begins_with_a_test_that_fails():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(guide.splitlines()) <= 120
    _, test = snippets(ROOT / "CONTRIBUTING.md", "bash")[0].splitlines()
    assert (ROOT / test.split()[-1]).is_file()
    (diff,) = snippets(ROOT / "CONTRIBUTING.md", "diff")
    before, after = (line[1:] for line in diff.splitlines())
    rules = Path(lease_rules.__file__).read_text()
    assert rules.count(before) == 1
    changed = ModuleType(lease_rules.__name__)
    with patch.dict(sys.modules, {changed.__name__: changed}):
        exec(rules.replace(before, after), vars(changed))  # noqa: S102 - our own file
    for module, conflict in ((lease_rules, False), (changed, True)):
        shared = module.Scope.of("s3://lake/trips", None, module.Mode.SHARED)
        assert shared.conflicts_with(shared) is conflict


def test_every_page_with_a_dag_is_tested():
    assert {name_of(page) for page in PAGES if dags(page) and page != TUTORIAL} == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_the_dags_are_short_and_whole(tmp_path, name):
    for number, (code, tasks) in enumerate(zip(dags(ROOT / name), TASKS[name], strict=True)):
        assert len([line for line in code.splitlines() if line.strip()]) <= 13
        dag_file = tmp_path / f"shown_{number}.py"
        dag_file.write_text(code)
        bag = DagBag(dag_folder=dag_file)
        assert bag.import_errors == {}
        (dag,) = bag.dags.values()
        assert list(dag.task_dict) == tasks


@pytest.mark.parametrize("command", commands())
def test_every_command_exists(command):
    program, *arguments = shlex.split(command)
    if program == "docker":
        compose, _, file, _, service, program, *arguments = arguments
        assert compose == "compose"
        assert service in yaml.safe_load((ROOT / file).read_text())["services"]
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "airflow":
        arguments = arguments[: arguments.index(">")] if ">" in arguments else arguments
        assert get_parser().parse_args(arguments).func
    elif (program, arguments[0]) == ("python", "-m"):
        assert (ROOT / arguments[1].replace(".", "/") / "__main__.py").exists()
    elif program == "python":
        options = (ROOT / "docs" / "how-to" / arguments[0]).read_text()
        assert all(f'"{word}"' in options for word in arguments if word.startswith("--"))
    elif program not in (*RUN_BY_DEVELOPERS, *OF_HADOOP, "aws"):
        assert arguments[0] == "install"
        assert program == "pip"


def test_every_install_of_the_package_repeats_the_version_of_airflow():
    lines = [
        (name_of(page), line)
        for page in PAGES
        for line in page.read_text().replace("\\\n", "").splitlines()
        if re.search(r"\bpip3? install\b.*airflow[-_]occ[-_]provider", line)
    ]
    assert {name for name, _ in lines} >= {"README.md", "docs/tutorial.md"}
    # pip resolves Airflow anew for the package, and may replace the one that runs; with --no-deps it
    # resolves nothing.
    resolved = [line for line in lines if "--no-deps" not in line[1]]
    assert [line for line in resolved if "apache-airflow==" not in line[1]] == []


def test_the_first_commands_of_the_readme_are_the_demo_and_the_tests():
    assert snippets(ROOT / "README.md", "bash")[0] == "make demo\nmake test\n"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_make_target_that_is_named_exists(page):
    named = set(re.findall(r"`make ([a-z0-9-]+)", page.read_text()))
    made = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named or page in DOCS
    assert named <= made
    for names, name in re.findall(r'make rig NAME=(?:"(.+?)"|([\w.]+))', page.read_text()):
        assert all(map(rig.programs_of, (names or name).split()))


def test_each_test_is_in_one_tier_and_one_folder(request):
    folders = {folder.name for folder in (ROOT / "tests").iterdir()}
    for item in request.session.items:
        markers = {mark.name for mark in item.iter_markers()}
        assert len(markers & {"quick", "rest", "nightly"}) == 1, item
        assert item.path.parent.name in markers & folders, item


def test_ci_runs_both_tiers_the_quick_one_first():
    assert (ROOT / ".ci" / "run").read_text().endswith("\nmake test\nexec make test-rest\n")

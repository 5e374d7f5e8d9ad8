"""Shared by all tests: Airflow's home folder, the embedded services, markers for folders and tiers."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow_occ_tests_")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

pytest.register_assert_rewrite("tests.support")
pytest_plugins = [
    "airflow_occ_provider.embedded.pytest_plugin",
    "airflow_occ_provider.testing.lease_store",
    "pytester",
]

_QUICK = ("unit", "contract")
SMALL_TABLES = """
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.sql.adaptive.enabled false
"""


@pytest.fixture(scope="session")
def hudi_stack(hudi_stack):
    """The stack of the session, whose Spark compiles no code for a few rows."""
    with (hudi_stack.folder / "spark" / "conf" / "spark-defaults.conf").open("a") as conf:
        conf.write(SMALL_TABLES)
    return hudi_stack


@pytest.fixture(scope="session")
def embedded_yarn(tmp_path_factory):
    """A YARN with one node, of the session."""
    from tests.services.yarn import EmbeddedYarn

    with EmbeddedYarn(tmp_path_factory.mktemp("yarn")) as yarn:
        yield yarn


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark each test with its folder and its tier: ``quick`` (`make test`) or ``rest``.

    Those marked ``k8s`` or ``nightly`` have a lane of their own.

    A test of a slower folder joins the quick tier with ``@pytest.mark.quick``, and one of a quick folder
    leaves it with ``@pytest.mark.rest``.
    """
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        item.add_marker(folder)
        if folder != "unit" and _names_metastore(item):
            item.add_marker("metastore")
        if item.get_closest_marker("k8s") or item.get_closest_marker("nightly"):
            continue
        if not (item.get_closest_marker("quick") or item.get_closest_marker("rest")):
            slow = item.get_closest_marker("metastore") or item.get_closest_marker("yarn")
            quick = folder in _QUICK and not slow
            item.add_marker("quick" if quick else "rest")
    items.sort(key=_length)


def _length(item):
    """Return a test's place: side by side, the longest must not be the last."""
    kinds = ("yarn", "system", "real")
    return next((place for place, kind in enumerate(kinds) if item.get_closest_marker(kind)), len(kinds))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let one worker start an Airflow, a YARN or a Livy, for all tests that run side by side."""
    from xdist.scheduler import LoadScopeScheduling

    class ByService(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            alone = dict.fromkeys(("test_demo", "test_tutorial"), nodeid)  # each with its own Airflow
            services = {"yarn": "yarn", "livy": "livy", **alone, "tests/system/": "airflow"}
            return next((scope for part, scope in services.items() if part in nodeid), nodeid)

    return ByService(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    terminal = config.pluginmanager.get_plugin("terminalreporter")  # a worker of xdist has none
    if terminal:
        config.pluginmanager.register(_AtOnce(terminal))


class _AtOnce:
    """Tells of a failure and of a long test when it ends: a run may be cut off before its summary."""

    LONG_S = 60

    def __init__(self, terminal):
        self._terminal = terminal

    def pytest_runtest_logreport(self, report):
        if report.failed or report.duration > self.LONG_S:
            word = "FAILED" if report.failed else "long"
            self._terminal.write_line(f"\n{word} {report.nodeid} {report.when} {report.duration:.0f} s")
            if report.failed:
                self._terminal.write_line(report.longreprtext)


def _names_metastore(item):
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    fixtures = {"metastore", "embedded_metastore"}.intersection(item.fixturenames)
    return bool(fixtures) or any(isinstance(one, str) and one == "metastore" for one in parameters)


def pytest_unconfigure(config):
    import shutil

    shutil.rmtree(os.environ["AIRFLOW_HOME"], ignore_errors=True)

"""Which tables have a page, what tasks publish for it, and how the plugin is found."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import airflow
import jsonschema
import pytest
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_occ_provider.attempts.scope import HINTS
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.provider_info import get_provider_info
from airflow_occ_provider.task import database as task_instances
from airflow_occ_provider.task.table_link import (
    TABLE_KEY,
    HudiTableLink,
    page_path,
    show_table,
    table_key,
)
from airflow_occ_provider.ui import known_tables
from airflow_occ_provider.ui.known_tables import (
    TableSource,
    TaskKey,
    by_key,
    configured_tables,
    read_published,
    union,
)
from airflow_occ_provider.ui.plugin import HudiPlugin
from tests.unit import airflow_database
from tests.unit.airflow_database import OURS, THEIRS, push

ROOT = Path(__file__).parents[2]
TRIPS = {"table": "s3a://lake/trips/", "storage_conn_id": "lake", "lock_conn_id": "lock"}


@pytest.fixture
def database():
    airflow_database.create()
    yield
    airflow_database.drop()


@pytest.mark.parametrize("spelling", ["s3a://lake/Trips", "s3://lake/Trips/", "s3n://lake//Trips"])
def test_all_spellings_of_a_path_have_one_key(spelling):
    assert table_key(spelling) == table_key("s3://lake/Trips")
    assert table_key(spelling).startswith("trips-")


def test_keys_of_different_paths_differ():
    paths = [
        "s3://lake/trips",
        "s3://lake/other/trips",
        "/lake/trips",
        "/lake/trips b",
        "/ü",
        "s3://lake",
    ]
    assert len({table_key(path) for path in paths}) == len(paths)
    assert all(TableSource.of({"table": path}).key == table_key(path) for path in paths)


@pytest.mark.parametrize(
    "value",
    [
        {"table": "http://169.254.169.254/latest"},
        {"table": "trips"},
        {},
        None,
        {"table": "/t", "key": "../t"},
        {"table": "/t", "key": 7},
        {"table": "/t", "storage_conn_id": ["a"]},
    ],
)
def test_what_is_no_table_has_no_page(value):
    with pytest.raises(ConfigurationError):
        TableSource.of(value)


def test_wrong_entries_of_the_configuration_are_left_out(monkeypatch, caplog):
    entries = [{"table": "trips"}, {**TRIPS, "key": "trips"}]
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_TABLES", json.dumps(entries))
    assert configured_tables() == (TableSource("trips", "s3://lake/trips", "lake", "lock"),)
    assert "'trips' is not a path" in caplog.text
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_TABLES", "[")
    assert configured_tables() == ()
    assert "ui_tables is not JSON" in caplog.text


def queued(*tables, unknown=False):
    request = Request("r", Owner(("d", "r")), tuple(Scope.of(one, None) for one in tables), 1)
    return QueuedRequest(request, "n", (1,), unknown=unknown)


def test_a_path_is_known_once_and_the_configuration_comes_first():
    configured = TableSource("trips", "/t", "mine", None)
    published = TableSource.of({"table": "/t"}), TableSource.of({"table": "/u", "lock_conn_id": "lock"})
    queues = {"lock": [queued("/u", "/v"), queued("?", unknown=True)]}
    tables = union([configured, *published], queues)
    assert {
        one.path: (one.storage_conn_id, one.lock_conn_id, one.is_read) for one in tables.values()
    } == {
        "/t": ("mine", None, True),
        "/u": (None, "lock", True),
        "/v": (None, "lock", False),
    }
    assert by_key(tables, "trips") == by_key(tables, table_key("/t")) == configured
    assert by_key(tables, "/t") is None


def test_neither_a_hint_nor_a_node_without_a_path_is_a_table():
    tables = union([], {"lock": [queued("/t", f"/t{HINTS}"), queued("trips"), queued("/\ud800")]})
    assert [one.path for one in tables.values()] == ["/t"]


def test_a_task_that_runs_often_hides_no_other(database, monkeypatch):
    for module in (known_tables, task_instances):
        monkeypatch.setattr(module, "MOST_TASKS", 3)
    push(OURS, "r0", "daily", hudi_table={"table": "/daily"})
    for number in range(1, 6):
        push(OURS, f"r{number}", "busy", hudi_table={"table": f"/busy{number % 2}"})
    found = {one.path for one in read_published().tables.values()}
    assert found == {"/daily", "/busy0", "/busy1"}


def test_what_tasks_have_published_is_read_from_the_database(database):
    push(OURS, "r1", "t", hudi_table=TRIPS, hudi_instants=["1", "2"], return_value={"table": "/no"})
    push(THEIRS, "r1", "t", hudi_table={"table": "/other"}, hudi_instants=["3"])
    push(OURS, "r2", "odd", hudi_table="text", hudi_instants={"4": 4})
    push(OURS, "r3", "named", hudi_table={"table": "/u", "key": "trips"})
    found = read_published()
    assert {task.run_id: one.path for task, one in found.tables.items() if task.dag_id == OURS} == {
        "r1": "s3://lake/trips",
        "r3": "/u",
    }
    assert found.tables[TaskKey(OURS, "r3", "named", -1)].key == table_key("/u")
    signed = found.signed("s3://lake/trips")
    assert {time: (one.dag_id, one.run_id, one.task_id) for time, one in signed.items()} == {
        "1": (OURS, "r1", "t"),
        "2": (OURS, "r1", "t"),
    }


class Instance:
    def __init__(self, error=None):
        self.pushed, self._error = {}, error

    def xcom_push(self, key, value):
        if self._error:
            raise self._error
        self.pushed[key] = value


def task(table="s3a://lake/trips"):
    with DAG("d", schedule=None) as dag:
        made = HudiWriteOperator(
            task_id="t", application="j.py", table=table, lock_conn_id="lock", storage_conn_id="lake"
        )
    return dag, made


def test_a_task_publishes_its_table_and_its_link_at_its_start():
    ti, (_, made) = Instance(), task()
    show_table({"ti": ti, "task": made})
    assert TableSource.of(ti.pushed[TABLE_KEY]) == TableSource.of(TRIPS)
    link = next(link for link in made.operator_extra_links if link.name == "Hudi table")
    assert ti.pushed[link.xcom_key] == link.get_link(made, ti_key=None) == page_path("s3://lake/trips")


@pytest.mark.parametrize("context", [{}, {"ti": Instance(OSError("away")), "task": task()[1]}])
def test_a_task_runs_without_its_link(context):
    show_table(context)


def test_the_link_has_the_prefix_of_airflows_url(monkeypatch):
    assert page_path("/t") == f"/plugin/hudi/hudi/t/{table_key('/t')}"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://host/airflow/")
    assert page_path("/t") == f"/airflow/plugin/hudi/hudi/t/{table_key('/t')}"


def test_a_task_without_a_path_has_no_link():
    assert HudiTableLink().get_link(SimpleNamespace(table="trips"), ti_key=None) == ""


def test_the_links_survive_serialization():
    serialized = DagSerialization.from_dict(DagSerialization.to_dict(task()[0]))
    assert serialized.task_dict["t"].extra_links == ["Driver", "Hudi table"]


def test_the_plugin_is_an_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (named,) = project["entry-points"]["airflow.plugins"].values()
    module, _, name = named.partition(":")
    assert issubclass(getattr(import_module(module), name), AirflowPlugin)


def test_each_process_loads_the_plugin_without_the_app():
    app = {"fastapi", "starlette", "airflow_occ_provider.ui.app", "airflow_occ_provider.hooks"}
    code = (
        "import sys; from airflow_occ_provider.ui.plugin import HudiPlugin; "
        f"HudiPlugin().external_views; print({app} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_tab_of_task_instances_is_off_by_default(monkeypatch):
    assert [one["destination"] for one in HudiPlugin().external_views] == ["nav"]
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_ATTEMPTS_TAB", "True")
    views = HudiPlugin().external_views
    assert [one["destination"] for one in views] == ["nav", "task_instance"]
    assert all(ExternalViewResponse.model_validate(one).href.startswith("hudi/") for one in views)
    assert len({one["url_route"] for one in views}) == 2


def test_the_options_are_ones_that_airflow_documents():
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    given = get_provider_info()["config"]
    config = {**schema["properties"]["config"], "definitions": schema["definitions"]}
    jsonschema.validate(given, config)
    assert set(given["hudi_occ"]["options"]) == {
        *("site_id", "write_policy", "ui_enabled", "ui_idle_s", "ui_tables", "ui_attempts_tab")
    }


def test_without_the_pages_the_api_server_has_neither_an_entry_nor_a_process(monkeypatch):
    assert [view["name"] for view in HudiPlugin().external_views] == ["Hudi"]
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_ENABLED", "False")
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_ATTEMPTS_TAB", "True")
    assert (HudiPlugin().external_views, HudiPlugin().fastapi_apps) == ([], [])

"""What OpenLineage's own listener and client write of a task, to a file."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest
from airflow.providers.openlineage.plugins.listener import OpenLineageListener
from airflow.sdk import DAG
from airflow.sdk.api.datamodels._generated import DagRun, TIRunContext
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_occ_provider.assets.consumers import consumer_asset
from airflow_occ_provider.assets.table import hudi_asset
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.decorators.hudi_write import _HudiWriteDecoratedOperator
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task import lineage as lineage_module
from airflow_occ_provider.task.lineage import dataset_name, table_to_write, written_table
from tests.golden.table_archive import FOLDER, unpack
from tests.support.commit_triggers import T, complete
from tests.support.incremental_reads import AssetState, read
from tests.support.task_state import Store
from tests.support.write_runs import Write

LINEAGE = Path(lineage_module.__file__)
OPERATORS = sorted(LINEAGE.parents[1].glob("operators/hudi_*.py"))
NOW = datetime(2026, 11, 26, tzinfo=UTC)
ID = UUID("01936a7c-0000-7000-8000-000000000000")
RUN = {
    **dict.fromkeys(("logical_date", "run_after", "start_date", "data_interval_start"), NOW),
    **dict.fromkeys(("data_interval_end", "end_date", "partition_key")),
    "dag_id": "d",
    "run_id": "r",
    "run_type": "manual",
    "state": "running",
    "consumed_asset_events": [],
}
NAMES = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1, "max_tries": 1}


class Lineage:
    """OpenLineage's listener, called for a task as Airflow's task runner does.

    :param path: of the file of its transport.
    """

    def __init__(self, path, task):
        self._path, self._listener = path, OpenLineageListener()
        with DAG("d", schedule=None, start_date=NOW) as dag:
            dag.add_task(task)
        self._ti = RuntimeTaskInstance.model_construct(
            id=ID,
            task_id=task.task_id,
            dag_id="d",
            run_id="r",
            try_number=1,
            dag_version_id=ID,
            map_index=-1,
            task=task,
            start_date=NOW,
            max_tries=1,
            bundle_instance=SimpleNamespace(name="dags", version=None),
            _ti_context_from_server=TIRunContext(dag_run=DagRun(**RUN), max_tries=1),
        )

    def starts(self):
        self._listener.on_task_instance_running(None, self._ti)
        return self._event("START")

    def succeeds(self):
        self._listener.on_task_instance_success(None, self._ti)
        return self._event("COMPLETE")

    def fails(self, error):
        self._listener.on_task_instance_failed(None, self._ti, error)
        return self._event("FAIL")

    def _event(self, kind):
        event = json.loads(self._path.read_text().splitlines()[-1])
        assert event["eventType"] == kind
        return event


@pytest.fixture
def lineage(monkeypatch, tmp_path):
    path = tmp_path / "lineage.jsonl"
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT", "600")
    return lambda task: Lineage(path, task)


@pytest.fixture
def commit(tmp_path):
    """A commit of Hudi 1.2.0."""
    table = HudiTable(str(unpack(FOLDER / "1.2.0" / "cleaned.zip", tmp_path / "golden")))
    snapshot = table.snapshot()
    instant = snapshot.timeline.completed_writes()[-1]
    return Commit(instant, snapshot.reader.commit(instant))


@pytest.fixture
def without_openlineage(monkeypatch):
    """Make each import of OpenLineage's client and provider fail."""
    for name in ("openlineage", "airflow.providers.openlineage", *sys.modules):
        if name.startswith(("openlineage", "airflow.providers.openlineage")):
            monkeypatch.setitem(sys.modules, name, None)


class Writes(Write):
    """In the place of Spark: what the attempt has committed."""

    commit: Commit | None = None

    def _attempt(self, run, admitted):
        super()._attempt(run, admitted)
        return self.commit


@pytest.fixture
def write(folder, queue):
    task = Writes(task_id="t", application="job.py", table=f"{folder.parent}/")
    context = {"ti": SimpleNamespace(**NAMES), "task_state_store": Store()}
    return task, lambda: task.execute(context)


def datasets(event, side):
    return [(one["namespace"], one["name"]) for one in event[side]]


def facts(facet):
    return {key: value for key, value in facet.items() if not key.startswith("_")}


def test_a_write_is_told_with_its_commit(lineage, write, folder, commit):
    (task, execute), path = write, str(folder.parent)
    told = lineage(task)
    begun = told.starts()
    assert datasets(begun, "outputs") == [("file", path)]
    assert begun["outputs"][0]["facets"].keys() == {"storage"}
    assert "hudi_commit" not in begun["run"]["facets"]
    task.commit = commit
    execute()
    shutil.rmtree(path)  # what is told is known by now
    done = told.succeeds()
    assert datasets(done, "outputs") == [("file", path)]
    assert done["inputs"] == []
    output, time = done["outputs"][0], commit.instant.time
    told = {key: facts(facet) for key, facet in output["facets"].items()}
    assert told["version"] == {"datasetVersion": time}
    assert told["storage"] == {"storageLayer": "hudi", "fileFormat": "parquet"}
    columns = [(one["name"], one["type"]) for one in told["schema"]["fields"]]
    assert columns == [("id", "string"), ("p", "string"), ("ts", "long"), ("v", "string")]
    assert facts(output["outputFacets"]["outputStatistics"]) == {"rowCount": commit.metadata.records}
    run = facts(done["run"]["facets"]["hudi_commit"])
    assert len(run.pop("schemaVersion")) == 16
    assert run == {"table": path, "instant": time, "operation": "UPSERT"}


def test_a_write_of_nothing_has_no_output(lineage, write):
    task, execute = write
    told = lineage(task)
    assert len(told.starts()["outputs"]) == 1
    execute()
    done = told.succeeds()
    assert done["outputs"] == []
    assert "hudi_commit" not in done["run"]["facets"]


def test_a_failed_task_tells_of_a_commit_that_it_has_made(lineage, write, commit):
    task, execute = write
    told = lineage(task)
    assert told.fails("no driver")["outputs"] == []
    task.commit, task.outlets = commit, [hudi_asset(task.table)]
    with pytest.raises(KeyError, match="outlet_events"):  # of the context
        execute()
    failed = told.fails("no event")
    assert failed["outputs"][0]["facets"]["version"]["datasetVersion"] == commit.instant.time


def test_a_read_is_told_with_the_last_commit_of_its_window(lineage, folder, jobs):
    complete(folder, 1)
    complete(folder, 2)
    task = read(folder)
    told = lineage(task)
    begun = told.starts()
    assert datasets(begun, "inputs") == [("file", str(folder.parent))]
    assert begun["inputs"][0]["facets"].keys() == {"storage"}
    state = {consumer_asset("dwh"): AssetState()}
    task.execute({"asset_state_store": state, "task_state_store": Store()})
    done = told.succeeds()
    assert done["inputs"][0]["facets"]["version"]["datasetVersion"] == T[2]
    assert done["outputs"] == []


@pytest.mark.parametrize("kind", [HudiWriteOperator, HudiStreamerOperator, _HudiWriteDecoratedOperator])
def test_each_writer_tells_of_its_table(kind):
    assert kind.get_openlineage_facets_on_start is table_to_write
    assert kind.get_openlineage_facets_on_complete is written_table


@pytest.mark.parametrize(
    ("table", "namespace", "name"),
    [
        ("s3a://lake/raw/trips/", "s3://lake", "raw/trips"),
        ("s3n://lake", "s3://lake", "/"),
        ("gcs://lake/trips", "gs://lake", "trips"),
        (
            "wasbs://raw@lake.blob.core.windows.net/trips",
            "abfss://raw@lake.dfs.core.windows.net",
            "trips",
        ),
        ("hdfs://nn:8020/lake/trips", "hdfs://nn:8020", "/lake/trips"),
        ("file:///lake//trips", "file", "/lake/trips"),
    ],
)
def test_a_table_has_the_name_that_other_integrations_give_it(table, namespace, name):
    assert dataset_name(table) == (namespace, name)


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("", None),
        ("null", None),
        ("{", None),
        ('"string"', None),
        (
            json.dumps(
                {
                    "type": "record",
                    "name": "r",
                    "fields": [
                        {"name": "at", "type": ["null", {"type": "long", "logicalType": "date"}]},
                        {"name": "tags", "type": {"type": "array", "items": "string"}},
                        {"name": "any", "type": ["int", "string"]},
                        {"name": "old", "type": {"type": "fixed", "name": "f", "size": 8}},
                    ],
                }
            ),
            {"at": "date", "tags": "array", "any": "int or string", "old": "fixed"},
        ),
    ],
)  # fmt: skip
def test_the_columns_are_those_of_the_commits_schema(schema, columns):
    metadata = CommitMetadata("BULK_INSERT", extra={"schema": schema}, paths=("p/.f.log.1_0-1-2",))
    task = SimpleNamespace(table="/t", committed=Commit(SimpleNamespace(time="1"), metadata))
    lineage = written_table(task, None)
    facets = lineage.outputs[0].facets
    assert facets["storage"].fileFormat is None  # of a log file
    found = {one.name: one.type for one in facets["schema"].fields} if "schema" in facets else None
    assert found == columns
    assert (lineage.run_facets["hudi_commit"].schemaVersion is None) == (schema == "")


@pytest.mark.parametrize("path", [LINEAGE, *OPERATORS], ids=lambda path: path.stem)
def test_without_openlineage_a_module_is_imported(without_openlineage, path):
    assert "OperatorLineage" not in runpy.run_path(str(path))


def test_without_openlineage_a_task_writes(without_openlineage, write, commit):
    task, execute = write
    task.commit = commit
    assert execute()["instant"] == commit.instant.time
    with pytest.raises(ImportError):
        table_to_write(task)

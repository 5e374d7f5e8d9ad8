"""What OpenLineage is given of a task's table, as methods of the operators.

OpenLineage's listener calls them, if its provider is installed, in a process that it forks from the
task's: they read what the task has left on its operator, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.storage.address import canonical_table, fsspec_url, parse_table_path

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import DatasetFacet

_SCHEMA_KEY = "schema"  # of Hudi, in the extra metadata of a commit


def table_to_write(task: Any) -> OperatorLineage[Any, Any]:
    """Return the table of a task as its output."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import OutputDataset

    return OperatorLineage(outputs=[OutputDataset(*dataset_name(task.table), facets=_facets())])


def written_table(task: Any, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG001
    """Return the table of a task with the task's commit, and nothing without one."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import RunFacet, output_statistics_output_dataset

    commit: Commit | None = task.committed
    if commit is None:
        return OperatorLineage()
    schema = commit.metadata.extra.get(_SCHEMA_KEY, "")
    instant = commit.instant.time
    rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=commit.metadata.records
    )
    output = OutputDataset(
        *dataset_name(task.table),
        facets={**_facets(instant, commit.metadata.paths), **_schema(schema)},
        outputFacets={"outputStatistics": rows},
    )
    done = RunFacet().with_additional_properties(
        table=canonical_table(task.table),
        instant=instant,
        operation=commit.metadata.operation_type,
        schemaVersion=schema_version(schema),
    )
    return OperatorLineage(outputs=[output], run_facets={"hudi_commit": done})


def table_to_read(task: Any) -> OperatorLineage[Any, Any]:
    """Return the table of a task as its input, at the last commit of its window."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset

    commits = task.window.get("commits") or [""]
    return OperatorLineage(inputs=[InputDataset(*dataset_name(task.table), facets=_facets(commits[-1]))])


def dataset_name(table: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of a table.

    As OpenLineage's Spark listener has them: the key in an object store has no slash before it, and
    Azure's scheme is ``abfss``.
    """
    scheme, path = parse_table_path(table)
    if scheme == "file":
        return "file", canonical_table(table)
    # With the port as it was written, as Spark's listener has it.
    scheme, _, rest = fsspec_url(scheme, path).partition("://")
    authority, _, key = rest.partition("/")
    if scheme == "hdfs":
        return f"hdfs://{authority}", f"/{key}"
    return f"{'abfss' if scheme == 'abfs' else scheme}://{authority}", key or "/"


def schema_version(schema: str) -> str | None:
    """Return a digest of the schema that a commit names; ``None`` without one."""
    return sha256(schema.encode()).hexdigest()[:16] if schema else None


def _facets(instant: str = "", paths: Iterable[str] = ()) -> dict[str, DatasetFacet]:
    """Return the facets of a table at an instant, if one is known, that wrote some files."""
    from openlineage.client.facet_v2 import dataset_version_dataset, storage_dataset

    kind = "parquet" if any(path.endswith(".parquet") for path in paths) else None
    storage = storage_dataset.StorageDatasetFacet("hudi", fileFormat=kind)
    if not instant:
        return {"storage": storage}
    version = dataset_version_dataset.DatasetVersionDatasetFacet(instant)
    return {"storage": storage, "version": version}


def _schema(text: str) -> dict[str, DatasetFacet]:
    """Return the facet of the columns in a record's Avro schema; empty if it is none."""
    from openlineage.client.facet_v2 import schema_dataset

    try:
        schema = json.loads(text)
        columns = [(column["name"], _type_name(column["type"])) for column in schema["fields"]]
    except (ValueError, TypeError, KeyError):
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


def _type_name(avro: Any) -> str:
    """Return the name of a type, also of a nullable one."""
    if isinstance(avro, list):
        return " or ".join(_type_name(branch) for branch in avro if branch != "null")
    if isinstance(avro, dict):
        return avro.get("logicalType") or _type_name(avro["type"])
    return str(avro)

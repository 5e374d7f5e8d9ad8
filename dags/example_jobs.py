"""Jobs that are no PySpark files: a function makes a table, SQL changes it, Hudi Streamer adds to it."""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from airflow_occ_provider.operators.hudi_sql import HudiSqlOperator
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator

KEYS = {
    "hoodie.table.name": "fares",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "cents",
}

with DAG(
    "example_jobs",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={
        "table": Param("/tmp/airflow_occ/fares", type="string"),
        "source": Param("/tmp/airflow_occ/new_fares", type="string"),
    },
    default_args={"table": "{{ params.table }}", "driver_memory": "1g"},
) as dag:

    @task.hudi_write(hudi_options=KEYS, table="{{ params.table }}")
    def create(spark, number):
        return spark.range(number).selectExpr("id", "'rome' as city", "cast(id * 100 as int) as cents")

    raise_fares = HudiSqlOperator(
        task_id="raise_fares",
        sql="UPDATE fares SET cents = cents + 10 WHERE city = 'rome'",
        scope=["rome"],
    )
    ingest = HudiStreamerOperator(
        task_id="ingest",
        packages="org.apache.hudi:hudi-utilities-slim-bundle_2.12:1.2.0",
        target_table="fares",
        source_class="org.apache.hudi.utilities.sources.JsonDFSSource",
        source_ordering_field="cents",
        hudi_options={**KEYS, "hoodie.streamer.source.dfs.root": "{{ params.source }}"},
    )
    create(10) >> raise_fares >> ingest

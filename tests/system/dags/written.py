"""Mapped writes, each of a table that does not exist yet, by jobs with options of their own."""

from __future__ import annotations

from airflow.sdk import DAG, Asset, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

MODE = "hoodie.write.concurrency.mode"
VARIANTS = {
    "warn": ["--log-level", "WARN"],
    "info": ["--log-level", "INFO", "--option", "hoodie.parquet.max.file.size=1000000"],
    "nothing": ["--write-nothing"],
    "single": ["--option", f"{MODE}=single_writer"],
}

with DAG(
    "written",
    schedule=None,
    params={"job": Param("", type="string"), "folder": Param("", type="string")},
):
    HudiWriteOperator.partial(
        task_id="variants",
        application="{{ params.job }}",
        table="{{ params.folder }}/t{{ ti.map_index }}",
        driver_memory="1g",
        max_active_tis_per_dag=2,
        hudi_options={"hoodie.secret.token": "do-not-show-me"},
        outlets=[Asset("variants")],
    ).expand(
        application_args=[
            ["{{ params.folder }}/t{{ ti.map_index }}", *variant] for variant in VARIANTS.values()
        ]
    )
    HudiWriteOperator(
        task_id="single_writer_without_early_detection",
        application="{{ params.job }}",
        application_args=["{{ params.folder }}/single", "--jvm-option", f"{MODE}=single_writer"],
        table="{{ params.folder }}/single",
        driver_memory="1g",
        policy={"early_conflict_detection": False},
    )

"""Sensors and an asset watcher on a table's heartbeats, and operators that clean up after the dead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, Param, task

from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_table_service import HudiClusteringOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate", "instant")}
TABLE, INSTANT = "{{ params.table }}", "{{ params.instant }}"
INTERVAL_MS, MISSES = 1000, 15
BEATS: dict[str, Any] = {"interval_ms": INTERVAL_MS, "tolerable_misses": MISSES}
OPTIONS = {
    "hoodie.client.heartbeat.interval_in_ms": INTERVAL_MS,
    "hoodie.client.heartbeat.tolerable.misses": MISSES,
}

with DAG("watched", schedule=None, params=PARAMS):
    HudiHeartbeatSensor(
        task_id="from_trigger",
        table=TABLE,
        instants=INSTANT,
        until=["dead"],
        deferrable=True,
        start_from_trigger=True,
        timeout=600,
        **BEATS,
    )
    HudiHeartbeatSensor(
        task_id="from_worker", table=TABLE, until=["dead"], match="any", timeout=600, **BEATS
    )
    clean = HudiCleanOperator(
        task_id="clean",
        table=TABLE,
        instants=[INSTANT],
        driver_memory="1g",
        hudi_options=OPTIONS,
    )
    write = HudiWriteOperator(
        task_id="write",
        application="{{ params.job }}",
        application_args=[TABLE, "--partition", "2", "--writer", "w", "--gate", "{{ params.gate }}"],
        table=TABLE,
        driver_memory="1g",
        hudi_options={**OPTIONS, "hoodie.clean.automatic": "false"},  # the task `clean` does that
    )
    HudiHeartbeatSensor(
        task_id="own",
        table=TABLE,
        writer_task_id="write",
        until=["committed"],
        deferrable=True,
        timeout=600,
        **BEATS,
    )

    [clean, write] >> HudiClusteringOperator(
        task_id="cluster", table=TABLE, scope="2", driver_memory="1g", hudi_options=OPTIONS
    )

died = Asset(
    "died",
    watchers=[
        AssetWatcher(
            name="deaths",
            trigger=HudiHeartbeatTrigger(
                table=str(Path(os.environ["AIRFLOW_HOME"], "watched_table")),
                until=["dead"],
                match="any",
                **BEATS,
            ),
        )
    ],
)

with DAG("deaths", schedule=[died]):

    @task
    def list_events(triggering_asset_events: Any = None) -> list[Any]:
        """Return the payloads of the watcher's events."""
        return [event.extra for events in triggering_asset_events.values() for event in events]

    list_events()

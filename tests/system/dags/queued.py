"""Writers that are queued, and leases around other tasks."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator
from airflow_occ_provider.sensors.lease import HudiLeaseSensor

PARAMS = {name: Param("", type="string") for name in ("job", "table", "other", "gate", "scope")}
QUICK = "hudi_lock_quick"
NO_METADATA_TABLE = {"hoodie.metadata.enable": "false"}  # a quarter of what a driver costs
TABLE, OTHER = "{{ params.table }}", "{{ params.other }}"
_PATIENCE_S = 600
COMMON: dict[str, Any] = {
    "application": "{{ params.job }}",
    "table": TABLE,
    "lock_conn_id": QUICK,
    "driver_memory": "1g",
    "env_vars": {"WRITES": TABLE},
    "hudi_options": NO_METADATA_TABLE,
}
ARGUMENTS = [TABLE, "--partition", "1"]
BEATS = {
    "hoodie.client.heartbeat.interval_in_ms": 1000,
    "hoodie.client.heartbeat.tolerable.misses": 5,
}


def pass_gate(name: str, gate: str) -> None:
    """Report that a task has begun, and wait until the test opens the gate."""
    Path(gate, f"{name}.begun").touch()
    deadline = time.monotonic() + _PATIENCE_S
    while not Path(gate, f"{name}.go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(name)
        time.sleep(0.1)


@task
def first(params: dict[str, str]) -> None:
    """A task that works under a lease."""
    pass_gate("first", params["gate"])
    if Path(params["gate"], "first.fail").exists():
        raise RuntimeError("the test wants it to fail")


@task
def alone(params: dict[str, str]) -> None:
    """Work that fails if another task works on one of its tables."""
    busy = [Path(f"{params[name]}.busy") for name in ("table", "other")]
    for one in busy:
        one.touch(exist_ok=False)
    time.sleep(0.5)
    for one in busy:
        one.unlink()


with DAG("queued", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write",
        application_args=ARGUMENTS,
        scope=["{{ params.scope }}"],
        wait_timeout=timedelta(minutes=5),
        **COMMON,
    )

with DAG("elsewhere", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write", application_args=ARGUMENTS, **{**COMMON, "lock_conn_id": "hudi_lock_files"}
    )

LEARNS = {"learn_scope": True}
with DAG("learning", schedule=None, params=PARAMS):
    HudiWriteOperator(task_id="write", application_args=ARGUMENTS, policy=LEARNS, **COMMON)

with DAG("impatient", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write",
        application_args=ARGUMENTS,
        wait_timeout=timedelta(seconds=8),
        **COMMON,
    )

# The first one's lease must last until its retry, on a slow machine too.
for pause_s, lock in ((1, "hudi_lock_default"), (600, QUICK)):
    with DAG(f"killed_{pause_s}", schedule=None, params=PARAMS):
        HudiWriteOperator(
            task_id="write",
            application_args=[*ARGUMENTS, "--gate", "{{ params.gate }}"],
            scope=["1"],
            retry_delay=timedelta(seconds=pause_s),
            **{**COMMON, "lock_conn_id": lock, "hudi_options": {**NO_METADATA_TABLE, **BEATS}},
        )

with DAG("leased", schedule=None, params=PARAMS):
    lease = HudiLeaseOperator(task_id="lease", tables=[TABLE, OTHER], lock_conn_id=QUICK)
    with lease.held():
        first() >> HudiWriteOperator(task_id="write", application_args=ARGUMENTS, **COMMON)

with DAG("worked", schedule=None, params=PARAMS):
    lease = HudiLeaseOperator(task_id="lease", tables=TABLE, lock_conn_id=QUICK)
    with lease.held():
        first()

with DAG("beyond", schedule=None, params=PARAMS):
    lease = HudiLeaseOperator(task_id="lease", tables=TABLE, lock_conn_id=QUICK)
    with lease.held():
        HudiWriteOperator(
            task_id="write", application_args=ARGUMENTS, **{**COMMON, "table": OTHER}, scope="1"
        )

with DAG("wrong", schedule=None, params=PARAMS):
    HudiWriteOperator(task_id="scope", application_args=ARGUMENTS, scope="day=1", **COMMON)
    HudiWriteOperator(
        task_id="root", application_args=ARGUMENTS, **{**COMMON, "lock_conn_id": "hudi_lock_one_root"}
    )

with DAG("free", schedule=None, params=PARAMS):
    for deferrable in (False, True):
        HudiLeaseSensor(
            task_id=f"free_{deferrable}".lower(),
            table=TABLE,
            scope="{{ params.scope }}",
            lock_conn_id=QUICK,
            poke_interval=1,
            timeout=600,
            deferrable=deferrable,
        )

for name, tables, given in (
    ("one_way", [TABLE, OTHER], {}),
    ("other_way", [OTHER, TABLE], {}),
    ("one_at_a_time", [TABLE, OTHER], {"max_active_tis_per_dag": 1}),
    ("one_slot", [TABLE, OTHER], {"pool": "one_slot"}),
):
    with DAG(name, schedule=None, params=PARAMS, default_args=given):
        lease = HudiLeaseOperator(task_id="lease", tables=tables, lock_conn_id=QUICK)
        with lease.held():
            alone()

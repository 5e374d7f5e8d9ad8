"""Timelines of tables that a test makes by hand."""

from __future__ import annotations

import json

import pytest

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.record import TableBefore
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX
from tests.support.avro_metadata import RECORD, avro
from tests.unit.reports import fact

T0, T1, T2 = "20261121092507982", "20261121092529777", "20261121092543328"
C = "20261121092559999"
SIGNATURE = Signature("me", "dag", "run", "task", latest_instant=T0)
BEFORE = TableBefore(frozenset({T0}))


def add(folder, name, *, identity=None, operation="UPSERT"):
    extra = {f"{SIGNATURE_PREFIX}identity": identity} if identity else {}
    completed = "_" in name
    record = {**RECORD, "operationType": operation, "extraMetadata": extra}
    (folder / "timeline" / name).write_bytes(avro(record) if completed else b"")


def begin(folder, time):
    add(folder, f"{time}.commit.requested")
    add(folder, f"{time}.inflight")
    (folder / ".heartbeat" / time).touch()
    (folder / ".heartbeat" / f".{time}.crc").touch()


def log_of(*times):
    log = DriverLog()
    log.take(fact("protected"))
    for time in times:
        log.take(f"x INFO ActiveTimelineV2: Creating a new instant [==>{time}__commit__REQUESTED]")
    return log


def archive(folder, *instants):
    """Move completed instants of the timeline into the history, as Hudi's archival does."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    history, rows = folder / "timeline" / "history", []
    for instant in instants:
        (path,) = (folder / "timeline").glob(f"{instant}_*.commit")
        row = {"instantTime": instant, "completionTime": C, "action": "commit"}
        rows.append({**row, "metadata": path.read_bytes(), "plan": b""})
        path.unlink()
    name = f"{instants[0]}_{instants[-1]}_0.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), history / name)
    (history / "manifest_1").write_text(json.dumps({"files": [{"fileName": name, "fileLen": 1}]}))
    (history / "_version_").write_text("1")

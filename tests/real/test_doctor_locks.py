"""What ``airflow hudi doctor --lock-conn-id`` says of real writers, with a real ZooKeeper."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from airflow.cli.cli_parser import get_parser
from kazoo.client import KazooClient

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.doctor.finding import Severity
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperCommitLock
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.writers import LOCK_BASE_PATH, NO_METADATA_TABLE, Writer

pytestmark = [pytest.mark.real, pytest.mark.nightly]
GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
NEVER, ELSEWHERE = "/never/locks", "/elsewhere/locks"
BASE_PATH = "hoodie.write.lock.zookeeper.base_path"


@pytest.fixture
def connect(monkeypatch, embedded_zookeeper):
    def connect(base_path):
        value = {"conn_type": "hudi_zookeeper_lock", "host": embedded_zookeeper.hosts}
        value["extra"] = {"base_path": base_path, "lease_root": "/doctor/leases"}
        monkeypatch.setenv("AIRFLOW_CONN_DOCTORED", json.dumps(value))
        return lock_hook("doctored")

    return connect


def nodes(zookeeper):
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=15)
    try:
        return set(client.get_children("/"))
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("version", ["0.15.0", "1.0.2", "1.2.0"])
def test_a_lock_that_no_writer_took_is_found_and_not_created(
    version, tmp_path, connect, embedded_zookeeper, capsys
):
    table = unpack(GOLDEN / version / "unchecked.zip", tmp_path)
    before = nodes(embedded_zookeeper)
    connect(NEVER)
    args = ["hudi", "doctor", str(table), "--lock-conn-id", "doctored", "-o", "json"]
    parsed = get_parser().parse_args(args)
    with pytest.raises(SystemExit):
        parsed.func(parsed)
    found = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert found.keys() == {"unchecked_commit", "unused_lock"}
    assert found["unused_lock"]["severity"] == "notice"
    assert f"{NEVER}/unchecked does not exist" in found["unused_lock"]["evidence"]
    assert nodes(embedded_zookeeper) == before


def test_the_lock_of_a_protected_write_is_the_connections_and_another_is_not(
    hudi_stack, tmp_path, connect
):
    table = tmp_path / "t"
    for _ in range(2):
        writer = Writer(hudi_stack, table)
        assert writer.run().outcome is Outcome.COMMITTED, writer.log[-3000:]
    assert examine(HudiTable(str(table)), lock=connect(LOCK_BASE_PATH)) == ()
    (found,) = examine(HudiTable(str(table)), lock=connect(NEVER))
    assert (found.check, found.severity) == ("other_lock", Severity.NOTICE)
    assert "writes of HudiWriteOperator" in found.evidence


def test_a_lock_in_the_tables_properties_replaces_the_connections(hudi_stack, tmp_path, connect):
    table = tmp_path / "t"
    writer = Writer(hudi_stack, table)
    assert writer.run().outcome is Outcome.COMMITTED, writer.log[-3000:]
    with (table / ".hoodie" / "hoodie.properties").open("a") as properties:
        properties.write(f"{BASE_PATH}={ELSEWHERE}\n")
    (table / ".hoodie" / ".hoodie.properties.crc").unlink(missing_ok=True)  # Hadoop's checksum
    (found,) = examine(HudiTable(str(table)), lock=connect(LOCK_BASE_PATH))
    assert (found.check, found.severity) == ("other_lock", Severity.WARNING)
    assert f"{BASE_PATH}={ELSEWHERE}, and the connection has {LOCK_BASE_PATH}" in found.evidence
    access = ZookeeperAccess(hudi_stack.zookeeper.hosts)
    with closing(ZookeeperCommitLock(access, ELSEWHERE, "t")) as lock:
        before = lock.times_requested()
        again = Writer(hudi_stack, table, hudi_options=NO_METADATA_TABLE)
        again.run()
        assert lock.times_requested() > before, again.log[-3000:]

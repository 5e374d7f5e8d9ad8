from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import fsspec
import gcsfs
import hdfs_native.fsspec
import pytest
from airflow.sdk import BaseHook

from airflow_occ_provider.errors import ConfigurationError, HistoryUnreadableError, NotHudiTableError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook, storage_of
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.heartbeat import Liveness
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.table_properties import table_properties

TABLES = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"


@pytest.fixture
def hook(tmp_path):
    def hook(name):
        return HudiTableHook(str(unpack(TABLES / f"{name}.zip", tmp_path / name)))

    return hook


def test_a_live_writer_is_one_whose_heartbeat_ticks(hook):
    found = hook("live_direct")
    assert found.live_writers() == ()
    first, *_ = found.pending_writers()
    assert first.heartbeat.liveness is Liveness.DEAD
    Path(found.table, ".hoodie", ".heartbeat", first.operation.instant.time).touch()
    (live,) = found.live_writers()
    assert live.operation == first.operation.__class__(
        **{
            **{name: getattr(first.operation, name) for name in first.operation.__slots__},
            "live": True,
        }
    )


def test_pending_table_services(hook):
    kinds = {one.operation.operation_type for one in hook("clustering").pending_table_services()}
    assert kinds == {"CLUSTER"}
    kinds = {one.operation.operation_type for one in hook("compaction").pending_table_services()}
    assert kinds == {"COMPACT"}


def test_a_commit_is_found_by_its_identity_also_in_the_history(hook):
    found = hook("history")
    identity = "0" * 32
    assert found.find_commit(identity).instant.archived
    assert found.find_commit("f" * 32) is None


def test_the_async_forms_say_the_same(hook):
    found = hook("live_direct")
    time = found.timeline().pending_writes()[0].time

    async def ask():
        return (
            (await found.asnapshot()).timeline,
            await found.atimeline(),
            await found.alive_writers(),
            [one.operation for one in await found.apending_writers()],
            await found.apending_table_services(),
            await found.aconflicts(time),
            await found.afind_commit("f" * 32),
        )

    assert asyncio.run(ask()) == (
        found.timeline(),
        found.timeline(),
        found.live_writers(),
        [one.operation for one in found.pending_writers()],
        found.pending_table_services(),
        found.conflicts(time),
        None,
    )


def test_a_later_look_reads_only_what_is_new(hook, monkeypatch):
    found = hook("operations")
    snapshot = found.snapshot()
    for instant in snapshot.timeline.completed_writes():
        snapshot.reader.commit(instant)
    read = []
    folder = found.get_conn().files
    original = folder.read
    monkeypatch.setattr(folder, "read", lambda name: read.append(name) or original(name))
    later = found.snapshot()
    for instant in later.timeline.completed_writes():
        later.reader.commit(instant)
    assert read == []
    assert later.timeline == snapshot.timeline


@pytest.mark.parametrize("strategy", [None, Strategy.PREFER_WRITER])
@pytest.mark.parametrize("release", ["0.15.0", "1.2.0"])
def test_the_verdicts_read_no_file_twice_and_none_of_writes_that_were_seen(
    tmp_path, monkeypatch, release, strategy
):
    found = HudiTableHook(str(unpack(TABLES.parent / release / "live_server.zip", tmp_path)))
    pending = found.timeline().pending_writes()
    read = []
    folder = found.get_conn().files
    original = folder.read
    monkeypatch.setattr(folder, "read", lambda name: read.append(name) or original(name))
    judged = found.verdicts(strategy)
    assert list(judged) == [one.time for one in pending]
    assert len(read) == len(set(read)) > 0
    assert not any(
        f"/{one.time}" in name for name in read for one in found.timeline().completed_writes()
    )
    assert judged == {one.time: found.conflicts(one.time, strategy) for one in pending}


def test_verdicts_make_no_request_for_each_completed_file(folder, monkeypatch):
    properties = table_properties(version=6, layout=1)
    (folder / "hoodie.properties").write_text(properties)
    requests = []
    original = TableFolder.ask
    monkeypatch.setattr(
        TableFolder,
        "ask",
        lambda files, name, call: requests.append(name) or original(files, name, call),
    )

    def completed(*numbers):
        for number in numbers:
            for action in ("commit", "rollback"):
                write(f"202611210925{number:02}000.{action}", 1)

    def write(name, written_s):
        (folder / name).touch()
        os.utime(folder / name, (written_s, written_s))

    def asked():
        requests.clear()
        judged = HudiTableHook(str(folder.parent)).verdicts()
        assert list(judged) == ["20261121100000000"]
        return len(requests)

    for suffix in ("commit.requested", "inflight"):
        write(f"20261121100000000.{suffix}", 2)
    completed(1)
    few = asked()
    completed(*range(2, 50))
    assert asked() == few


def test_no_table_and_no_storage_are_clear_errors():
    with pytest.raises(NotHudiTableError, match="is not a Hudi table"):
        HudiTableHook("/nowhere").snapshot()
    with pytest.raises(ConfigurationError, match=r"storage_conn_id.*Remedy: install"):
        HudiTableHook("nosuch://lake/t", "conn").snapshot()


@pytest.mark.parametrize(
    ("table", "provider"),
    [
        ("s3a://lake/t", "amazon[s3fs]"),
        ("gs://lake/t", "google"),
        ("wasb://c@a.blob.core.windows.net/t", "microsoft-azure"),
    ],
)
def test_the_provider_that_a_connection_needs_is_named(table, provider, monkeypatch):
    monkeypatch.setattr("airflow.sdk.io.fs._register_filesystems", dict)
    with pytest.raises(ConfigurationError) as raised:
        HudiTableHook(table, "conn").snapshot()
    said = str(raised.value)
    assert f"connection 'conn' cannot be used for {table.partition(':')[0]} tables" in said
    assert f"apache-airflow-providers-{provider}" in said


def test_a_bucket_of_google_is_read_without_asking_its_kind(monkeypatch):
    """gcsfs asks by gRPC, for a minute where that does not get through, before each read."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    opened = fsspec.filesystem("gs", token="anon", project="mine", use_listings_cache=False)
    monkeypatch.setattr("airflow.sdk.io.fs._register_filesystems", lambda: {"gs": lambda *_: opened})
    for found in (storage_of("gs://lake/t", "conn"), HudiTable("gs://lake/t").files.file_system):
        assert type(found) is gcsfs.core.GCSFileSystem
    assert storage_of("gs://lake/t", "conn").storage_options == opened.storage_options


def test_hdfs_is_read_without_libhdfs():
    """hdfs-native refuses options that are no text."""
    client = HudiTable("hdfs://127.0.0.1:1/lake/t").files.file_system
    assert isinstance(client, hdfs_native.fsspec.HdfsFileSystem)
    assert (client.host, client.port) == ("127.0.0.1", 1)


@pytest.mark.parametrize("table", ["hdfs:///lake/t", "hdfs://cluster/lake/t"])
def test_an_hdfs_that_no_configuration_names_is_a_clear_error(table, monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"^table: hdfs:.*Remedy: .*set HADOOP_CONF_DIR"):
        HudiTable(table)


def test_the_package_that_hdfs_needs_is_named(monkeypatch):
    """Without it, fsspec takes pyarrow's client, which needs a libhdfs of the machine."""

    def looks_for_libhdfs(*_, **__):
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed")

    monkeypatch.setattr(fsspec.core, "url_to_fs", looks_for_libhdfs)
    remedy = r"Unable to load libjvm\. Remedy: install airflow-occ-provider with its extra hdfs"
    with pytest.raises(ConfigurationError, match=remedy):
        HudiTable("hdfs://127.0.0.1:1/lake/t")


def test_credentials_that_are_missing_are_not_taken_for_a_package(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigurationError, match=r"account_name with credentials.*storage_conn_id"):
        HudiTableHook("wasb://lake@devstoreaccount1/t").snapshot()


def test_an_unreadable_history_never_means_no_commit(tmp_path):
    archive = TABLES.parent / "1.0.2" / "upgraded.zip"
    with pytest.raises(HistoryUnreadableError, match="left Avro without a schema"):
        HudiTableHook(str(unpack(archive, tmp_path))).find_commit("f" * 32)


@pytest.fixture
def connected(monkeypatch):
    """Return a function that makes the connection ``trips``, and Airflow's hook of it."""

    def connect(host, conn_type="hudi_table", **extra):
        value = {"conn_type": conn_type, "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_TRIPS", json.dumps(value))
        return HudiTableHook(table_conn_id="trips")

    return connect


def test_the_test_button_reads_the_table_of_the_connection(connected, tmp_path):
    table = str(unpack(TABLES / "live_direct.zip", tmp_path / "t"))
    connected(table)
    hook = BaseHook.get_connection("trips").get_hook()
    assert isinstance(hook, HudiTableHook)
    works, message = hook.test_connection()
    assert works
    assert message.startswith(f"{table} is a Hudi table of version 9 with ")
    assert hook.timeline() == HudiTableHook(table).timeline()


def test_the_test_button_says_why_a_table_cannot_be_read(connected, tmp_path):
    works, message = connected(str(tmp_path)).test_connection()
    assert not works
    assert str(tmp_path) in message


@pytest.mark.parametrize(
    ("host", "conn_type", "saying"),
    [
        ("/lake/t", "ssh", "table_conn_id: connection 'trips' has the type 'ssh'"),
        ("", "hudi_table", "connection 'trips', base path: it is empty"),
    ],
)
def test_a_connection_that_names_no_table_is_refused(connected, host, conn_type, saying):
    with pytest.raises(ConfigurationError, match=rf"^{saying}"):
        connected(host, conn_type).get_conn()


def test_a_missing_connection_of_a_table_is_refused():
    with pytest.raises(ConfigurationError, match=r"^table_conn_id: connection 'none' does not exist"):
        HudiTableHook(table_conn_id="none").get_conn()


def test_a_table_has_the_storage_connection_of_its_own_connection(connected):
    hook = connected("s3a://lake/trips", storage_conn_id="lake")
    assert (hook.table, hook.storage_conn_id) == ("s3a://lake/trips", "lake")
    assert HudiTableHook(storage_conn_id="other", table_conn_id="trips").storage_conn_id == "other"
    assert HudiTableHook("/lake/t", table_conn_id="trips").storage_conn_id is None

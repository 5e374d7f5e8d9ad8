"""Real Spark and Hudi in object stores and HDFS: conflict and retry, both kinds of markers, a ghost."""

from __future__ import annotations

import psutil
import pytest
from airflow.cli.cli_parser import get_parser
from obstore.store import S3Store

from airflow_occ_provider.attempts.jobs import Sql
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.hudi.writer.early_detection import MARKERS_TYPE
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.objects import SupersededError
from airflow_occ_provider.storage.residue import residues
from airflow_occ_provider.storage.writers import pending_writers
from tests.conftest import SMALL_TABLES
from tests.services.ceph import Ceph
from tests.services.clouds import NEEDS_GO, NEEDS_NODE
from tests.support.real_jobs import MERGE, NEW_TABLE, checks_and_writes_nothing, function, returns_rows
from tests.support.stores import BUCKET, Lake, started_store
from tests.support.writers import (
    NO_METADATA_TABLE,
    Writer,
    commit_lock_held,
    has_markers,
    inflight,
    wait_for,
)

pytestmark = pytest.mark.real
DIRECT = {MARKERS_TYPE: "DIRECT"}


STORES = [
    "s3",
    pytest.param("gs", marks=[pytest.mark.nightly, NEEDS_GO]),
    pytest.param("wasb", marks=[pytest.mark.nightly, NEEDS_NODE]),
    pytest.param("ceph", marks=pytest.mark.nightly),
    pytest.param("hdfs", marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=STORES)
def lake(request, tmp_path_factory):
    if request.param == "ceph" and (reason := Ceph.why_not()):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("lake")
    with started_store(request.param, folder / "store") as store:
        yield Lake(folder, store)


@pytest.fixture(scope="module")
def start(hudi_stack, lake):
    """Start a writer whose Spark has the store's credentials; ours are those of a connection."""
    environment = spark_environment(lake.folder / "spark", store=lake.store)
    with (lake.folder / "spark" / "conf" / "spark-defaults.conf").open("a") as conf:
        conf.write(SMALL_TABLES)
    environment = {"SPARK_CONF_DIR": environment["SPARK_CONF_DIR"]}

    def start(path, *arguments, early=False, job=None, **options):
        files = lake.open(path).files
        return Writer(
            hudi_stack,
            path,
            arguments,
            environment=environment,
            early=early,
            job=job,
            file_system=files.file_system,
            hudi_options={**NO_METADATA_TABLE, **options},
        ).start()

    return start


@pytest.fixture
def airflow_hudi(capsys):
    def run(*arguments):
        args = get_parser().parse_args(["hudi", *arguments])
        args.func(args)
        return capsys.readouterr().out

    return run


def committed(writer):
    settlement = writer.wait()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-6000:]
    assert settlement.loss is None
    return settlement


def test_of_three_writers_one_commits_and_the_next_one_cleans_up(
    lake, start, hudi_stack, tmp_path, airflow_hudi
):
    path = lake.path("t")
    table = lake.open(path)
    committed(start(path))
    gate = ("--gate", str(tmp_path), "--writer")
    winner, ghost = start(path, *gate, "winner", early=True), start(path, *gate, "ghost", **DIRECT)
    loser = start(path, *gate, "loser")
    writers = (winner, ghost, loser)
    for name in ("winner", "ghost", "loser"):
        wait_for(name, (tmp_path / f"{name}.begun").exists, *writers)
    with commit_lock_held(hudi_stack.zookeeper.hosts):
        for name in ("winner", "ghost"):
            (tmp_path / f"{name}.go").touch()
        wait_for("two inflight instants", lambda: len(inflight(table)) == 2, *writers)
        instants = inflight(table)
        wait_for("markers", lambda: all(has_markers(table, one) for one in instants), *writers)
        _both_kinds_say_the_same(table, instants, _kinds_of_markers(lake.store))
        assert len(pending_writers(table, table.snapshot())) == 3
        assert all(one.live for one in pending_writers(table, table.snapshot()))
        assert not any(_shows_secret(lake.store, " ".join(words)) for words in commands())
        shown = airflow_hudi("writers", path, *(["--conn-id", lake.conn_id] if lake.conn_id else []))
        assert all(one in shown for one in instants)
        ghost.kill()
        assert ghost.wait().outcome is Outcome.KILLED, ghost.log[-3000:]
    won = committed(winner)
    assert not _shows_secret(lake.store, "".join(one.log for one in writers))
    (tmp_path / "loser.go").touch()
    lost = loser.wait()
    assert lost.outcome is Outcome.COMMIT_CONFLICT, loser.log[-6000:]
    assert lost.rival == won.instant
    committed(start(path))
    snapshot = table.snapshot()
    rolled_back = {time for _, times in snapshot.rollbacks() for time in times}
    assert rolled_back == {ghost.settlement.instant, lost.instant}
    assert not snapshot.timeline.pending_writes()
    assert not snapshot.heartbeats()
    assert residues(table) == ()


def _shows_secret(store, text):
    names = () if store.SCHEME == "gs" else ("SECRET", "KEY")
    secrets = [getattr(store, name, "") for name in names]
    return any(one and one in text for one in secrets if one != "embedded")


def commands():
    """Yield the command of each process, as all users of the machine see it."""
    for process in psutil.process_iter(["cmdline"]):
        yield process.info["cmdline"] or ()


def _kinds_of_markers(store):
    """Return whether the writers' markers are those of the timeline server; on HDFS Hudi has no such."""
    return {False} if store.SCHEME == "hdfs" else {True, False}


def _both_kinds_say_the_same(table, instants, expected):
    kinds = {"MARKERS.type" in table.files.below(f".hoodie/.temp/{one}") for one in instants}
    assert kinds == expected
    (groups,) = {frozenset(m.file_group for m in table.snapshot().markers(one)) for one in instants}
    assert {partition for partition, _ in groups} == {"0", "1"}


@pytest.mark.nightly
def test_a_lease_store_of_ceph_cannot_replace_its_object(tmp_path):
    """Ceph 16 compares the ETag of If-Match with its quotes, which no write then matches."""
    if reason := Ceph.why_not():
        pytest.skip(reason)
    with started_store("ceph", tmp_path) as server:
        shared = BucketObject(s3_client(server), "queue.json", "s3://lake/queue.json")
        tag = shared.write(b"1", "")
        with pytest.raises(SupersededError):
            shared.write(b"2", "")
        assert shared.read("") == (b"1", tag)
        with pytest.raises(SupersededError):
            shared.write(b"2", tag)


def s3_client(server):
    return S3Store(
        BUCKET,
        endpoint=server.url,
        region=server.REGION,
        access_key_id=server.KEY,
        secret_access_key=server.SECRET,
        client_options={"allow_http": True, "timeout": "10s", "connect_timeout": "2s"},
        retry_config={"max_retries": 0},
    )


@pytest.mark.nightly
def test_a_function_and_a_merge_write_a_table_there(lake, start):
    path = lake.path("jobs")
    committed(start(path, job=function(path, returns_rows, first=0, number=4), **NEW_TABLE))
    committed(start(path, job=Sql(MERGE, path)))
    rows = {"k0": 0, "k1": 11, "k2": 2, "k3": 3, "k;9": 9}
    job = function(path, checks_and_writes_nothing, expected={"table": path, "rows": rows})
    reader = start(path, job=job)
    assert reader.wait().outcome is Outcome.NOTHING_WRITTEN, reader.log[-6000:]

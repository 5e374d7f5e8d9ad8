"""Real Spark, Hudi and ZooKeeper: writers killed in each phase, then a lazy clean."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.cleaning import foresee, verify
from airflow_occ_provider.hudi.writer.fate import Fate, Kind
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.residue import residues
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.storage.writers import pending_writers
from tests.differential.session import compile_latches
from tests.support.rows import count_rows
from tests.support.writers import Writer, has_markers, inflight, wait_for

pytestmark = pytest.mark.real

# What a clean of Hudi's leaves: markers, which archival or a procedure removes, and heartbeats.
LEFT = {
    "requested": (),
    "inflight": (),
    "markers": (".hoodie/metadata/.hoodie/.heartbeat/{}",),
    "completed": (".hoodie/.temp/{}", ".hoodie/.heartbeat/{}"),
}
PHASES = tuple(LEFT)
JOBS = Path(__file__).parents[1] / "jobs"
RULE = HeartbeatRule(1000, 5)
HUDI_OPTIONS = {
    "hoodie.client.heartbeat.interval_in_ms": RULE.interval_ms,
    "hoodie.client.heartbeat.tolerable.misses": RULE.tolerable_misses,
    "hoodie.write.lock.zookeeper.session_timeout_ms": 4000,
}
SPARK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.ui.enabled": "false",
}
OLD, NEW = Counter(map(str, range(20))), Counter(map(str, range(30)))


class Cleaner:
    """A long-lived protected driver that cleans tables on request."""

    def __init__(self, stack, folder):
        folder.mkdir()
        self.folder, self.number, self.slowest_s = folder, 0, 0.0
        conf = {**SPARK, "spark.sql.warehouse.dir": str(folder / "warehouse")}
        conf["spark.sql.catalogImplementation"] = "in-memory"
        job = JOBS / "lazy_cleaner.py"
        arguments = (str(folder),)
        self.driver = Writer(
            *(stack, folder / "none", arguments), conf=conf, hudi_options=HUDI_OPTIONS, application=job
        )

    def clean(self, path):
        begun_s = time.monotonic()
        self.ask(clean=str(path))
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun_s)

    def ask(self, **order):
        self.number += 1
        path = self.folder / f"{self.number}.order"
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(order))
        draft.rename(path)
        answer = path.with_suffix(".answer")
        wait_for(f"the answer to {order}", answer.exists, self.driver)
        reply = json.loads(answer.read_text())
        assert reply["error"] is None, reply["error"]
        return reply["answer"]


class Reader(threading.Thread):
    """Counts the rows of all tables again and again."""

    def __init__(self, tables):
        super().__init__(daemon=True)
        self.tables, self.looks, self.wrong, self.over = tables, 0, [], threading.Event()

    def run(self):
        while not self.over.is_set():
            for phase, table in self.tables.items():
                try:
                    seen = count_rows(table)
                except Exception as error:  # noqa: BLE001 - what a reader meets is the finding
                    self.wrong.append((phase, repr(error)))
                    continue
                if seen != (NEW if phase == "completed" else OLD):
                    self.wrong.append((phase, seen))
            self.looks += 1
            self.over.wait(0.1)


@pytest.fixture
def cleaner(hudi_stack, tmp_path):
    cleaner = Cleaner(hudi_stack, tmp_path / "orders")
    cleaner.driver.start()
    yield cleaner
    (cleaner.folder / "stop").touch()
    cleaner.driver.wait()


def killed_writers(stack, folder):
    """Make four tables whose writers were killed together, each in a different phase."""
    gate = folder / "gate"
    gate.mkdir()
    tables = {phase: folder / phase for phase in PHASES}
    conf = {
        **SPARK,
        "spark.driver.extraClassPath": str(compile_latches(stack.hudi_version)),
        "spark.hadoop.fs.file.impl": "differential.LatchedFileSystem",
    }
    arguments = (str(gate), *map(str, list(tables.values())[1:]))
    writer = Writer(
        *(stack, tables["requested"], arguments, True, HUDI_OPTIONS),
        conf=conf,
        retire=False,
        application=JOBS / "phased_writes.py",
    ).start()
    wait_for("the writers' stops", (gate / "completed.reached").exists, writer)
    (instant,) = inflight(tables["markers"])
    wait_for("the markers", lambda: has_markers(tables["markers"], instant), writer)
    writer.kill()
    writer.wait()
    return tables


def names(folder):
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def ghost(table):
    """Return the requested time of the last write."""
    return max(name[:17] for name in names(table / ".hoodie" / "timeline") if name[0].isdigit())


def reached(table, instant):
    """Return the phase in which the writer was killed, judged by the files it left."""
    metadata = table / ".hoodie"
    endings = {name[17:] for name in names(metadata / "timeline") if name.startswith(instant)}
    assert instant in names(metadata / ".heartbeat")
    is_marked = has_markers(table, instant)
    if any(ending.startswith("_") for ending in endings):
        return "completed" if is_marked else "cleaned up"
    return "markers" if is_marked else "inflight" if ".inflight" in endings else "requested"


def traces(table, instant):
    """Return an instant's files in the metadata folder, those of the metadata table included."""
    metadata = table / ".hoodie"
    found = (
        path.relative_to(metadata) for path in metadata.rglob("*") if not path.name.endswith(".crc")
    )
    return {str(path) for path in found if path.name.startswith(instant)}


@pytest.mark.nightly
def test_hudi_cleans_writers_that_we_call_dead_after_the_tolerance_and_not_before(
    hudi_stack, tmp_path, cleaner
):
    tables = killed_writers(hudi_stack, tmp_path)
    wait_for("the cleaner", (cleaner.folder / "ready").exists, cleaner.driver)
    reader = Reader(tables)
    reader.start()
    for phase, path in tables.items():
        outlives_its_tolerance(cleaner, phase, path)
    reader.over.set()
    reader.join(30)
    assert reader.wrong == []
    assert reader.looks > 20
    for phase, path in tables.items():
        assert Counter(cleaner.ask(count=str(path))) == (NEW if phase == "completed" else OLD)


def outlives_its_tolerance(cleaner, phase, path):
    table, instant = HudiTable(str(path)), ghost(path)
    assert reached(path, instant) == phase
    expires_s = leaves_alone_before(cleaner, path, instant)
    fates = fates_around(table, instant, expires_s)
    if phase == "completed":
        assert fates == ({Fate.COMMITTED}, {Fate.COMMITTED})
        assert pending_writers(table, table.snapshot(), RULE) == ()
    else:
        assert Fate.LATE in fates[0] <= {Fate.ALIVE, Fate.LATE}
        assert fates[1] == {Fate.DEAD}
        assert [one.live for one in pending_writers(table, table.snapshot(), RULE)] == [False]
    shown = {f".hoodie/{name}" for name in traces(path, instant)}
    _, before = foresee(table, RULE)
    cleaner.clean(path)
    cleaning = verify(table, RULE, before)
    assert cleaning.losses == ()
    left = {residue.path for residue in cleaning.residues}
    assert left == {name.format(instant) for name in LEFT[phase]} & shown
    if phase == "completed":
        assert cleaning.rolled_back == cleaning.dead == ()
        removes_its_markers(cleaner, table, cleaning)
    else:
        assert cleaning.rolled_back == cleaning.dead == (instant,)
        assert {f".hoodie/{name}" for name in traces(path, instant)} == left
        assert list(path.glob(f"*/*{instant}*")) == []


def removes_its_markers(cleaner, table, cleaning):
    """Check that the remedy named for the markers removes them."""
    (remedy,) = (residue.remedy for residue in cleaning.residues if residue.kind is Kind.MARKERS)
    cleaner.ask(sql=f"CREATE TABLE t USING hudi LOCATION '{table.path}'")
    cleaner.ask(sql=remedy[remedy.index("CALL ") :])
    assert Kind.MARKERS not in {one.kind for one in residues(table, RULE)}


def leaves_alone_before(cleaner, path, instant):
    """Run a clean within the tolerance, which is then made to end soon; return when it ends.

    The clean gets ten times as long as the slowest one so far, so that a busy machine fails no test.
    """
    if not cleaner.slowest_s:
        beat(path, instant, 240)
        cleaner.ask(clean=str(path))  # the first one loads what the others need
        cleaner.clean(path)
    expires_s = beat(path, instant, 3 + 10 * cleaner.slowest_s)
    shown = traces(path, instant)
    cleaner.clean(path)
    assert time.time() < expires_s, "the clean did not end in time"
    assert traces(path, instant) == shown
    return beat(path, instant, 3)


def beat(path, instant, left_s):
    """Make a killed writer's last heartbeat expire in so many seconds, by its file's time."""
    expires_s = time.time() + left_s
    last_s = expires_s - RULE.interval_ms * RULE.tolerable_misses / 1000
    os.utime(path / ".hoodie" / ".heartbeat" / instant, (last_s, last_s))
    return expires_s


def fates_around(table, instant, expires_s):
    """Return the fates observed before a moment, and the first one observed after it."""
    watch, before = WriterWatch(table, RULE), set()
    while True:
        begun_s = time.time()
        fate = watch.observe().writer(instant).fate
        if begun_s > expires_s + 0.002:  # heartbeats are read in milliseconds
            return before, {fate}
        if time.time() < expires_s:
            before.add(fate)
        time.sleep(0.01)

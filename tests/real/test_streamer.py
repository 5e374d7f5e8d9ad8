"""Hudi Streamer itself beside a protected writer, where ``HUDI_UTILITIES_JAR`` names its jar.

The jar is Hudi's ``hudi-utilities-bundle``, or its classes compiled from Hudi's source.
"""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.jobs import Function, MainClass, streamer_arguments
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.embedded.bundle import _release_of, find_bundle
from airflow_occ_provider.in_driver.run_main import STREAMER
from airflow_occ_provider.storage.table import HudiTable
from tests.support.suspended import suspended
from tests.support.writers import NO_METADATA_TABLE, Writer, wait_for

JAR = os.environ.get("HUDI_UTILITIES_JAR", "")
pytestmark = pytest.mark.skipif(not JAR, reason="HUDI_UTILITIES_JAR does not name Hudi Streamer's jar")
SOURCES = "org.apache.hudi.utilities"
FIELDS = [{"name": "k", "type": "string"}, {"name": "p", "type": "string"}, {"name": "v", "type": "int"}]
WRITES = {
    **NO_METADATA_TABLE,
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
}


def returns_rows(spark, keys, value):
    return spark.createDataFrame([(one, "a", value) for one in keys], "k string, p string, v int")


def checks_and_writes_nothing(spark, table, rows):
    read = spark.read.format("hudi").load(table).select("k", "v").collect()
    found = sorted([row.k, row.v] for row in read)
    assert found == rows, found


class Lake:
    """A table, and the folder that Hudi Streamer reads."""

    def __init__(self, stack, folder):
        self.stack, self.table, self.raw = stack, folder / "t", folder / "raw"
        bundle = str(find_bundle(_release_of(Path(JAR))))
        path = os.pathsep.join([bundle, JAR])  # one loader has to load it all
        self.conf = {
            "spark.jars": bundle,
            "spark.driver.extraClassPath": path,
            "spark.executor.extraClassPath": path,
        }
        self.raw.mkdir()
        self.schema = folder / "schema.avsc"
        self.schema.write_text(json.dumps({"type": "record", "name": "row", "fields": FIELDS}))

    def give(self, name, rows):
        text = "".join(
            json.dumps({"k": key, "p": "a", "v": value}) + "\n" for key, value in rows.items()
        )
        (self.raw / f"{name}.json").write_text(text)

    def streamer(self, **more):
        options = {
            **WRITES,
            "hoodie.streamer.source.dfs.root": str(self.raw),
            "hoodie.streamer.schemaprovider.source.schema.file": str(self.schema),
            "hoodie.streamer.schemaprovider.target.schema.file": str(self.schema),
        }
        source = f"{SOURCES}.sources.JsonDFSSource"
        given = streamer_arguments(
            str(self.table), "t", "COPY_ON_WRITE", source=source, ordering="v", operation="upsert"
        )
        arguments = (*given, "--schemaprovider-class", f"{SOURCES}.schema.FilebasedSchemaProvider")
        job = MainClass(STREAMER, JAR, arguments)
        return Writer(self.stack, self.table, job=job, conf=self.conf, hudi_options=options, **more)

    def function(self, called, **arguments):
        job = Function(called.__name__, inspect.getsource(called), str(self.table), arguments)
        return Writer(self.stack, self.table, job=job, conf=self.conf, hudi_options=WRITES)

    def writer(self, keys, value):
        return self.function(returns_rows, keys=keys, value=value)

    def is_writing(self):
        """Whether a write has planned its files and not committed."""
        pending = HudiTable(str(self.table)).snapshot().timeline.pending_writes()
        return any(one.state.name == "INFLIGHT" for one in pending)

    def has(self, rows):
        """Check the rows by a function that writes nothing."""
        expected = sorted([key, value] for key, value in rows.items())
        reader = self.function(checks_and_writes_nothing, table=str(self.table), rows=expected)
        assert reader.run().outcome is Outcome.NOTHING_WRITTEN, reader.log[-6000:]


@pytest.fixture
def lake(hudi_stack, tmp_path):
    """A table of two rows, made by a round of Hudi Streamer."""
    one = Lake(hudi_stack, tmp_path)
    one.give("first", {"k0": 0, "k1": 0})
    made = one.streamer()
    assert made.run().outcome is Outcome.COMMITTED, made.log[-6000:]
    one.has({"k0": 0, "k1": 0})
    return one


def held_while_another_commits(lake, loser, winner):
    """The first writer's driver stands still from its inflight instant until the other has committed."""
    loser.start()
    wait_for("the write", lake.is_writing, loser)
    with suspended(loser.process.pid):
        won = winner.run()
    assert won.outcome is Outcome.COMMITTED, winner.log[-6000:]
    lost = loser.wait()
    assert lost.outcome is Outcome.COMMIT_CONFLICT, loser.log[-6000:]
    assert lost.rival == won.instant


def test_a_round_that_loses_is_repeated_and_each_record_is_there_once(lake):
    lake.give("second", {"k1": 5, "k2": 5})
    loser = lake.streamer()
    held_while_another_commits(lake, loser, lake.writer(["k1", "k3"], 3))
    again = lake.streamer(identity=loser.identity)
    assert again.run().outcome is Outcome.COMMITTED, again.log[-6000:]
    lake.has({"k0": 0, "k1": 5, "k2": 5, "k3": 3})


@pytest.mark.nightly
def test_a_writer_loses_to_a_round(lake):
    lake.give("second", {"k1": 5, "k2": 5})
    loser = lake.writer(["k1", "k3"], 7)
    held_while_another_commits(lake, loser, lake.streamer())
    again = lake.writer(["k1", "k3"], 7)
    assert again.run().outcome is Outcome.COMMITTED, again.log[-6000:]
    lake.has({"k0": 0, "k1": 7, "k2": 5, "k3": 7})

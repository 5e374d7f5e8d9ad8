"""Real Spark, Hudi and ZooKeeper: the job is protected or does not write at all."""

from __future__ import annotations

import zipfile

import pytest

from airflow_occ_provider.jobs.commit import find_commit
from airflow_occ_provider.jobs.outcome import Outcome
from airflow_occ_provider.storage.table import HudiTable
from tests.writers import Writer, commit_lock_held, has_markers, inflight, wait_for

pytestmark = pytest.mark.real
ROGUE = "hoodie.parquet.max.file.size=1000000\n"


def assert_protected(writer):
    settlement = writer.run()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-3000:]
    assert "airflow_occ_provider: protected" in writer.log
    assert settlement.commit.metadata.extra["_airflow_identity"] == writer.identity
    assert "Successfully resolved conflicts, if any" in writer.log
    return settlement


@pytest.fixture
def spark_conf(hudi_stack, tmp_path):
    """A copy of the stack's Spark conf folder that a test may add to."""
    folder = tmp_path / "conf"
    folder.mkdir()
    source = hudi_stack.folder / "spark" / "conf" / "spark-defaults.conf"
    (folder / "spark-defaults.conf").write_text(source.read_text())
    return folder


def test_a_defaults_file_in_sparks_conf_folder_hides_nothing(hudi_stack, spark_conf, tmp_path):
    (spark_conf / "hudi-defaults.conf").write_text(ROGUE)
    writer = Writer(hudi_stack, tmp_path / "t", environment={"SPARK_CONF_DIR": str(spark_conf)})
    assert_protected(writer)


def test_a_spark_env_that_exports_hudi_conf_dir_hides_nothing(hudi_stack, spark_conf, tmp_path):
    rogue = tmp_path / "rogue"
    rogue.mkdir()
    (rogue / "hudi-defaults.conf").write_text(ROGUE)
    (spark_conf / "spark-env.sh").write_text(f"export HUDI_CONF_DIR={rogue}\n")
    writer = Writer(hudi_stack, tmp_path / "t", environment={"SPARK_CONF_DIR": str(spark_conf)})
    assert_protected(writer)


def test_where_our_file_is_hidden_after_all_the_job_never_starts(hudi_stack, tmp_path):
    """User jars first on the classpath, and one of them brings a configuration of its own."""
    jar = tmp_path / "rogue.jar"
    with zipfile.ZipFile(jar, "w") as content:
        content.writestr("hudi-defaults.conf", ROGUE)
    bundle = (hudi_stack.folder / "spark" / "conf" / "spark-defaults.conf").read_text().split()[1]
    conf = {"spark.jars": f"{jar},{bundle}", "spark.driver.userClassPathFirst": "true"}
    writer = Writer(hudi_stack, tmp_path / "t", conf=conf)
    settlement = writer.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, writer.log[-3000:]
    assert writer.exit_code == 78
    assert "rogue.jar" in settlement.lines[0]
    assert not (tmp_path / "t").exists()


def test_every_kind_of_write_is_checked_and_signed(hudi_stack, tmp_path):
    """A quiet upsert with a harmless option, then three other kinds, each to a table of its own."""
    kinds = (
        "hoodie.datasource.write.operation=bulk_insert",
        "hoodie.datasource.write.operation=insert_overwrite",
        "hoodie.datasource.write.table.type=MERGE_ON_READ",
    )
    each = [part for kind in kinds for part in ("--each", kind)]
    quiet = ("--log-level", "ERROR", "--option", "hoodie.parquet.max.file.size=1000000")
    writer = Writer(hudi_stack, tmp_path / "t", (*quiet, *each), early=True)
    assert_protected(writer)
    checks = writer.log.count("Successfully resolved conflicts, if any")
    assert checks >= 1 + len(kinds)
    for number in range(len(kinds)):
        snapshot = HudiTable(f"{writer.table}-{number}").snapshot()
        assert find_commit(snapshot, writer.identity), kinds[number]


@pytest.mark.parametrize("retire", [True, False], ids=["ghost retired", "control: ghost left"])
def test_a_retry_does_not_collide_with_its_own_ghost(hudi_stack, tmp_path, retire):
    """SIGKILL while the instant is inflight with markers, then the same write again at once."""
    table = tmp_path / "t"
    Writer(hudi_stack, table, early=True).run()
    ghost = Writer(hudi_stack, table, early=True, retire=retire).start()
    wait_for("the write's files", lambda: inflight(table), ghost)
    with commit_lock_held(hudi_stack.zookeeper.hosts):
        wait_for("the markers", lambda: has_markers(table, inflight(table)[0]), ghost)
        (instant,) = inflight(table)
        ghost.kill()
        settlement = ghost.wait()
    assert settlement.outcome is Outcome.KILLED
    assert settlement.instant == instant
    assert settlement.retired == ((instant,) if retire else ())
    again = Writer(hudi_stack, table, early=True, identity=ghost.identity)
    expected = Outcome.COMMITTED if retire else Outcome.EARLY_CONFLICT
    assert again.run().outcome is expected, again.log
    found = find_commit(HudiTable(str(table)).snapshot(), ghost.identity)
    assert (found is not None) is retire

"""Real Spark, Hudi and ZooKeeper: the job is protected or does not write at all."""

from __future__ import annotations

import re
import stat
import zipfile
from pathlib import Path

import psutil
import pytest

from airflow_occ_provider.attempts.commit import find_commit
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.driver.contract import GRANT
from airflow_occ_provider.embedded.bundle import find_bundle
from airflow_occ_provider.storage.table import HudiTable
from tests.support.writers import (
    JOB,
    NO_METADATA_TABLE,
    QUIET,
    Writer,
    commit_lock_held,
    has_markers,
    inflight,
    served,
    wait_for,
)

pytestmark = pytest.mark.real
HARMLESS = "hoodie.parquet.max.file.size=1000000\n_site=kept\n"
CONTRADICTS = "hoodie.cleaner.policy.failed.writes=EAGER\n"
CHECKED = (
    'airflow_occ_provider: {"fact": "hudi", "logger": "TransactionUtils", '
    '"message": "Successfully resolved conflicts, if any", "thread": "'
)
SILENT = f"""{QUIET}logger.hudi.name = org.apache.hudi.client.utils.TransactionUtils
logger.hudi.level = off
logger.hudi.additivity = false
"""


def assert_protected(writer):
    settlement = writer.run()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-3000:]
    assert 'airflow_occ_provider: {"fact": "protected", ' in writer.log
    assert settlement.commit.metadata.extra["_airflow_identity"] == writer.identity
    assert CHECKED in writer.log
    return settlement


def assert_refused(writer, place):
    settlement = writer.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, writer.log[-3000:]
    assert writer.exit_code == 78
    (line,) = settlement.lines
    assert place in line
    assert "hoodie.cleaner.policy.failed.writes=EAGER: remove it, or set it to LAZY" in line
    assert not writer.table.exists()


class Places:
    """The places of a site's own configuration: what they hold, and how a message names them.

    Its logs have another layout, and leave out what the attempt is followed by. No file of it names
    Hudi's serializer.
    """

    def __init__(self, stack, folder):
        self._conf, self._own, self._jar = folder / "conf", folder / "own", folder / "own.jar"
        self._conf.mkdir()
        defaults = (stack.folder / "spark" / "conf" / "spark-defaults.conf").read_text()
        self._defaults = re.sub(r"(?m)^spark\.serializer .*\n", "", defaults)
        self.environment = {"SPARK_CONF_DIR": str(self._conf)}
        (self._conf / "spark-defaults.conf").write_text(self._defaults)
        (self._conf / "log4j2.properties").write_text(SILENT)

    def sparks_conf_folder(self, text):
        (self._conf / "hudi-defaults.conf").write_text(text)
        return {}, f"{self._conf}/hudi-defaults.conf"

    def spark_env(self, text):
        self._own.mkdir()
        (self._own / "hudi-defaults.conf").write_text(text)
        (self._conf / "spark-env.sh").write_text(f"export HUDI_CONF_DIR={self._own}\n")
        return {}, f"hudi-defaults.conf of {self._own}"

    def user_jar_first(self, text):
        """User jars first on the class path, and one of them brings a configuration of its own."""
        with zipfile.ZipFile(self._jar, "w") as content:
            content.writestr("hudi-defaults.conf", text)
        jars = f"{self._jar},{self._defaults.split()[1]}"
        return {"spark.jars": jars, "spark.driver.userClassPathFirst": "true"}, self._jar.name

    def spark_defaults(self, text):
        line = f"spark.{text.replace('=', ' ')}"
        (self._conf / "spark-defaults.conf").write_text(self._defaults + line)
        return {}, "Spark's own configuration"


@pytest.fixture
def places(hudi_stack, tmp_path):
    return Places(hudi_stack, tmp_path)


def test_a_job_is_read_by_its_url_in_client_mode(hudi_stack, tmp_path):
    """The URL is one of Hadoop's file systems; the worker has no such file."""
    with served(JOB.parent) as address:
        assert_protected(Writer(hudi_stack, tmp_path / "t", application=f"{address}/{JOB.name}"))


@pytest.mark.parametrize("place", ["sparks_conf_folder", "spark_env", "user_jar_first"])
def test_a_sites_own_configuration_stays_and_hides_nothing(hudi_stack, places, tmp_path, place):
    conf, _ = getattr(places, place)(HARMLESS)
    writer = Writer(hudi_stack, tmp_path / "t", conf=conf, environment=places.environment)
    assert assert_protected(writer).commit.metadata.extra["_site"] == "kept"


@pytest.mark.parametrize(
    "place", ["sparks_conf_folder", "spark_env", "user_jar_first", "spark_defaults"]
)
def test_what_only_the_driver_sees_contradict_never_starts(hudi_stack, places, tmp_path, place):
    conf, named = getattr(places, place)(CONTRADICTS)
    given = {"conf": conf, "environment": places.environment, "sees_site": False}
    assert_refused(Writer(hudi_stack, tmp_path / "t", **given), named)


def test_what_the_job_itself_contradicts_is_stopped_before_it_commits(hudi_stack, tmp_path):
    """Without early detection, with which Hudi itself would refuse the write."""
    option = ("--option", "hoodie.write.concurrency.mode=single_writer", "--catch", "ignore")
    writer = Writer(hudi_stack, tmp_path / "t", option, early=False)
    settlement = writer.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, writer.log[-3000:]
    assert writer.exit_code == 78
    (line,) = settlement.lines
    assert "the job's own write has hoodie.write.concurrency.mode=single_writer: remove it" in line
    assert "gated_write.py, line " in line
    assert not writer.table.exists()


@pytest.mark.parametrize("release", ["0.15.0", "1.0.2"])
def test_older_releases_are_protected_or_do_not_start(hudi_stack, places, tmp_path, release):
    bundle = str(find_bundle(release))  # 1.0.2 casts Avro records: one loader has to load it all
    conf = {"spark.jars": bundle, "spark.driver.extraClassPath": bundle}
    places.spark_env(HARMLESS)
    given = {"conf": conf, "environment": places.environment}
    settlement = assert_protected(Writer(hudi_stack, tmp_path / "t", **given))
    assert settlement.commit.metadata.extra["_site"] == "kept"
    _, named = places.sparks_conf_folder(CONTRADICTS)
    assert_refused(Writer(hudi_stack, tmp_path / "u", **given, sees_site=False), named)


def test_what_the_driver_is_given_is_seen_by_its_owner_alone(hudi_stack, tmp_path):
    """An option with several lines, and an argument, while the driver holds at its first row."""
    secret, several = "do-not-show-me", "a = b\n\tc"
    options = {**NO_METADATA_TABLE, "hoodie.of.mine.password": secret, "_several": several}
    arguments = ("--gate", str(tmp_path), "--option", f"hoodie.of.mine.token={secret}")
    writer = Writer(hudi_stack, tmp_path / "t", arguments, hudi_options=options).start()
    wait_for("the gate", (tmp_path / "w.begun").exists, writer)
    processes = [one.info for one in psutil.process_iter(["cmdline", "environ"])]
    folder = Path(writer.handle.facts["folder"])
    assert any(str(folder) in (one["cmdline"] or ()) for one in processes)
    assert secret not in str(processes)
    assert (folder / GRANT).exists()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = [*hudi_stack.folder.rglob("*"), *tmp_path.rglob("*"), *folder.rglob("*")]
    assert not [one for one in kept if one.is_file() and secret.encode() in one.read_bytes()]
    (tmp_path / "w.go").touch()
    settlement = writer.wait()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-3000:]
    assert settlement.commit.metadata.extra["_several"] == several
    assert secret not in writer.log
    assert not folder.exists()


def test_every_kind_of_write_is_checked_and_signed(hudi_stack, tmp_path):
    """An upsert with a harmless option and little logging, then three other kinds of write."""
    kinds = (
        "hoodie.datasource.write.operation=bulk_insert",
        "hoodie.datasource.write.operation=insert_overwrite",
        "hoodie.datasource.write.table.type=MERGE_ON_READ",
    )
    each = [part for kind in kinds for part in ("--each", kind)]
    quiet = ("--log-level", "ERROR", "--option", "hoodie.parquet.max.file.size=1000000")
    writer = Writer(hudi_stack, tmp_path / "t", (*quiet, *each), early=True)
    assert_protected(writer)
    checks = writer.log.count(CHECKED)
    assert checks >= 1 + len(kinds)
    for number in range(len(kinds)):
        snapshot = HudiTable(f"{writer.table}-{number}").snapshot()
        assert find_commit(snapshot, writer.identity), kinds[number]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "retire", [pytest.param(True, id="ghost retired"), pytest.param(False, id="control: ghost left")]
)
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

"""Real Spark, Hudi and ZooKeeper as job runs of EMR Serverless by moto: all files are on S3 by moto.

A job run is a ``spark-submit`` of this machine. Nothing here was run on AWS.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

import fsspec
import psutil
import pytest

from airflow_occ_provider.attempts.identity import new_identity
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.submitter import Ended, Handle
from airflow_occ_provider.embedded.bundle import find_bundle, pyspark_home, resolve_jars
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.storage.report import Report, RunFolder
from airflow_occ_provider.submitters.emr_serverless import EmrServerless
from airflow_occ_provider.submitters.emr_serverless_job import EmrApplication, job_run_request
from airflow_occ_provider.submitters.patience import Patience
from tests.emr import BUCKET, ROLE, EmulatedEmr, emulated_emr
from tests.livy import LivyWriter
from tests.writers import commit_lock_held, wait_for

pytestmark = pytest.mark.real
CHECKED = '"message": "Successfully resolved conflicts, if any"'
LOGS = f"s3://{BUCKET}/logs"
S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


@dataclass
class EmrWriter(LivyWriter):
    """One protected attempt as a job run, run in a thread."""

    hook: EmulatedEmr

    def _submitter(self, files):
        return EmrServerless(
            self.hook.client(),
            self.hook.application,
            open_report=lambda url: Report(url, file_system=files),
            log_uri=LOGS,
            open_log=lambda url: files.open(url, "rb"),
            poll_s=0.3,
            patience=Patience(60, "EMR Serverless"),
        )

    def _give(self, job):
        target = EmrApplication(self.hook.application, ROLE, LOGS)
        self.submitter.report = job.report
        conf = {"spark.driver.memory": "1g", **self.conf}
        self.submitter.request = job_run_request(target, job.application, job.arguments, conf)


@pytest.fixture(scope="module")
def emr(tmp_path_factory):
    """EMR Serverless whose driver has the files of S3, as AWS's images have."""
    folder = tmp_path_factory.mktemp("emr")
    amazon = [("org.apache.hadoop", "hadoop-aws", "3.3.4")]
    sdk = [("com.amazonaws", "aws-java-sdk-bundle", "1.12.262")]
    s3a = resolve_jars("hadoop-aws-3.3.4", [], alone=[*amazon, *sdk])
    variables = spark_environment(folder)
    served = {}

    def command(job, arguments, properties):
        own = {
            "spark.jars": str(find_bundle()),
            "spark.driver.extraClassPath": str(s3a / "*"),
            "spark.hadoop.fs.s3a.endpoint": served["url"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "k",
            "spark.hadoop.fs.s3a.secret.key": "s",
            "spark.hadoop.fs.s3.impl": S3A,
        }
        conf = [f"--conf={key}={value}" for key, value in {**own, **properties}.items()]
        submit = pyspark_home() / "bin" / "spark-submit"
        changed = [f"{key}={variables[key]}" for key in variables if key != "_"]
        return ["env", "-i", *changed, submit, "--master", "local[2]", *conf, job, *arguments]

    with emulated_emr(command) as one:
        served["url"] = one.url
        yield one


@pytest.fixture
def files(emr):
    return fsspec.filesystem("s3", key="k", secret="s", endpoint_url=emr.url, use_listings_cache=False)


@pytest.fixture
def writer(emr, files, embedded_zookeeper, tmp_path):
    def make(*arguments, **given):
        place = f"s3a://{BUCKET}/{tmp_path.name}"
        identity = given.pop("identity", None) or new_identity()
        folder = RunFolder(f"{place}/occ/{identity}", file_system=files)
        more = {"folder": folder, "identity": identity, "name": secrets.token_hex(4), **given}
        return EmrWriter(emr, embedded_zookeeper.hosts, f"{place}/t", arguments, **more)

    return make


def inflight(one):
    try:
        timeline = one.attempt.table.snapshot(missing_ok=True).timeline
    except TableUnreadableError:  # while Hudi creates it
        return []
    return [instant.time for instant in timeline.pending_writes()]


def drivers_of(one):
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or ())
        if one.identity in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def test_a_job_run_writes_under_protection_and_reports_while_it_runs(writer, files, embedded_zookeeper):
    one = writer().start()
    log = one.attempt.recorder.log
    wait_for("the instant", lambda: inflight(one), one)
    with commit_lock_held(embedded_zookeeper.hosts):
        (instant,) = inflight(one)
        wait_for("the instant in the report", lambda: instant in log.own_instants, one)
        assert log.protected
        assert one.settlement is None
    settlement = one.wait()
    assert settlement.outcome is Outcome.COMMITTED, one.log
    assert settlement.instant == instant
    assert settlement.commit.metadata.extra["_airflow_identity"] == one.identity
    assert CHECKED in one.log
    assert "the job goes on" in one.log  # of the log on S3, which the report does not have
    (kept,) = one.store.record["attempts"]
    assert (kept["log_read"], kept["end"]) == (True, "exit code 0")
    assert [name.rpartition("/")[2] for name in files.find(one.folder.url.replace("s3a", "s3"))] == [
        Path(kept["driver"]["report"]).name
    ]


@pytest.mark.nightly
def test_of_two_job_runs_one_loses_and_lands_at_its_next_try(writer, tmp_path):
    first = writer("--writer", "a", "--partition", "p")
    assert first.run().outcome is Outcome.COMMITTED, first.log
    gate = ("--gate", str(tmp_path), "--partition", "p")
    pair = [writer("--writer", name, *gate).start() for name in ("b", "c")]
    for one, name in zip(pair, ("b", "c"), strict=True):
        wait_for("the gate", (tmp_path / f"{name}.begun").exists, one)
    for name in ("b", "c"):
        (tmp_path / f"{name}.go").touch()
    outcomes = [one.wait().outcome for one in pair]
    assert sorted(outcomes) == sorted([Outcome.COMMITTED, Outcome.COMMIT_CONFLICT]), outcomes
    lost = pair[outcomes.index(Outcome.COMMIT_CONFLICT)]
    again = writer("--writer", "d", "--partition", "p", identity=lost.identity).run()
    assert again.outcome is Outcome.COMMITTED
    completed = lost.attempt.table.snapshot().timeline.completed_writes()
    assert len(list(completed)) == 3


@pytest.mark.nightly
def test_a_job_that_is_not_protected_does_not_start(writer):
    one = writer(conf={"spark.hoodie.cleaner.policy.failed.writes": "EAGER"})
    settlement = one.run()
    assert settlement.outcome is Outcome.MISCONFIGURATION, one.log
    assert settlement.exit_code == 78
    assert not inflight(one)


@pytest.mark.nightly
def test_a_cancelled_job_run_ends_all_of_the_driver(writer, emr, tmp_path):
    one = writer("--gate", str(tmp_path)).start()
    wait_for("the gate", (tmp_path / "w.begun").exists, one)
    assert drivers_of(one)
    handle = Handle.from_json(one.store.record["attempts"][0]["driver"])
    later = EmrServerless(emr.client(), emr.application)
    assert later.find(one.identity).facts["job_run"] == handle.facts["job_run"]
    one.submitter.killed.set()
    settlement = one.wait()
    assert settlement.outcome is Outcome.KILLED, one.log
    assert drivers_of(one) == []
    assert isinstance(later.poll(handle), Ended)
    assert later.find(one.identity) is None


@pytest.mark.nightly
def test_a_driver_that_dies_at_once_has_no_final_end(writer, tmp_path):
    one = writer("--gate", str(tmp_path)).start()
    wait_for("the gate", (tmp_path / "w.begun").exists, one)
    for process in drivers_of(one):
        process.kill()
    settlement = one.wait()
    assert settlement.outcome is Outcome.KILLED, one.log
    assert settlement.exit_code == -9
    (kept,) = one.store.record["attempts"]
    assert (kept["end"], kept["settled"]) == ("", False)
    assert settlement.retired == ()


def test_the_request_shows_no_option_of_the_lock(writer, emr, embedded_zookeeper):
    one = writer("--write-nothing")
    assert one.run().outcome is Outcome.NOTHING_WRITTEN, one.log
    assert embedded_zookeeper.hosts not in json.dumps(emr.requests[-1])

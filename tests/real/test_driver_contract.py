"""Real Spark: a driver runs only if it is granted, and ends itself by what its folder says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.submitter import Handle, Running
from airflow_occ_provider.driver import contract
from airflow_occ_provider.driver.attempt import LIFE_S, CompareAndSet, View, WriteGrant, next_grant_step
from airflow_occ_provider.driver.contract import (
    EXIT_REFUSED,
    FACTS,
    GRANT,
    LIFE,
    PAYLOAD,
    REVOKED,
    Hello,
    answer_to_bytes,
    digest,
    is_hello,
)
from airflow_occ_provider.driver.shipped import runner_source
from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.hudi.writer.options import RULES, SPARK_SETTINGS, job_rules
from airflow_occ_provider.in_driver import guard, session_rules
from airflow_occ_provider.in_driver.granted import ASKED_TO_STOP
from airflow_occ_provider.reading.saved_log import read_saved_log
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.place import StartedPlace
from tests.support.faulty_proxy import FaultyProxy
from tests.support.stores import BUCKET

pytestmark = pytest.mark.real
PATIENCE_S = 300
INSTALL_S = 900

GUARDED_JOB = """
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().range(3).count()
"""
SLEEPS_IN_JAVA = """
import pathlib, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
pathlib.Path(sys.argv[1]).touch()
spark.sparkContext._jvm.java.lang.Thread.sleep(600_000)
"""
ANSWERED = """
from pyspark.sql import SparkSession
jvm = SparkSession.builder.getOrCreate().sparkContext._jvm
of_namenode = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
answer = jvm.org.apache.hadoop.ipc.RemoteException(of_namenode, "Failed to create file /t")
jvm.java.util.concurrent.CompletableFuture.failedFuture(answer).join()
"""
WRITES = """
import pathlib, sys
from pyspark.sql import SparkSession
pathlib.Path(sys.argv[1]).touch()
spark = SparkSession.builder.getOrCreate()
rows = spark.createDataFrame([("a", "p", 1)], "id string, p string, ts long")
options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p", "hoodie.datasource.write.precombine.field": "ts"}
rows.write.format("hudi").options(**options).mode("append").save(sys.argv[2])
print("of the job")
sys.exit(3)
"""
LOGS_AS_HUDI = """
import pathlib, sys
from pyspark.sql import SparkSession
jvm = SparkSession.builder.getOrCreate().sparkContext._jvm
timeline = "org.apache.hudi.common.table.timeline.HoodieActiveTimeline"
pathlib.Path(sys.argv[1]).touch()
for second in range(600):
    jvm.org.slf4j.LoggerFactory.getLogger(timeline).info(f"Completed [{second}__commit__INFLIGHT]")
    jvm.java.lang.Thread.sleep(1000)
"""
CONFIGURES_LOG4J = """
from pyspark.sql import SparkSession
jvm = SparkSession.builder.getOrCreate().sparkContext._jvm
context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
context.reconfigure()
assert context.getConfiguration().getFilter() is None
while context.getConfiguration().getFilter() is None:
    jvm.java.lang.Thread.sleep(100)
timeline = "org.apache.hudi.common.table.timeline.HoodieActiveTimeline"
jvm.org.slf4j.LoggerFactory.getLogger(timeline).info("Completed [1__commit__INFLIGHT]")
"""
# No bundle of Hudi for them could be had: with that of Spark 3.5 the runner is tried, and no write.
OTHER_SPARKS = ("3.3.4", "3.4.4", "4.0.1", "4.1.0")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return spark_environment(tmp_path_factory.mktemp("spark"))


@pytest.fixture(params=OTHER_SPARKS)
def other_spark(request, environment):
    """The environment of another release of Spark, installed once."""
    folder = cache_folder() / f"pyspark-{request.param}"
    home = folder / "pyspark"
    if not home.is_dir():
        uv = [
            str(Path(sys.executable).with_name("uv")),
            "pip",
            "install",
            "--quiet",
            "--target",
            str(folder),
        ]
        subprocess.run([*uv, f"pyspark=={request.param}"], check=True, timeout=INSTALL_S)
    path = os.pathsep.join([str(home / "bin"), environment["PATH"]])
    return {**environment, "SPARK_HOME": str(home), "PYTHONPATH": str(folder), "PATH": path}


@dataclass
class Attempt:
    """The attempt's side: its folder, its payload and the drivers that it starts."""

    folder: AttemptFolder
    payload: bytes
    runner: Path

    def start(self, environment, *arguments, program=None):
        self.runner.write_bytes(runner_source())
        return subprocess.Popen(
            ["spark-submit", "--master", "local[1]", str(program or self.runner), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def hellos(self):
        names = filter(is_hello, self.folder.entries())
        return [Hello.from_bytes(name, self.folder.read(name) or b"") for name in names]

    def grant(self, payload=None, nonce=None):
        """Grant a driver as a process of the attempt does: payload first, then the grant."""
        hellos = tuple(hello for hello in self.hellos() if nonce in (None, hello.nonce))
        step = next_grant_step(View(hellos=hellos), digest(self.payload))
        assert isinstance(step, CompareAndSet)
        step = next_grant_step(View(step.entry, hellos), digest(self.payload))
        assert isinstance(step, WriteGrant)
        self.folder.write(PAYLOAD, self.payload if payload is None else payload)
        self.folder.write(GRANT, step.grant.to_bytes())

    def granted(self, environment, url):
        """Start a driver and grant it, once it waits for that."""
        driver = self.start(environment, url)
        wait_for(self.hellos, driver)
        self.grant()
        return driver

    def facts(self, kind=None):
        lines = (self.folder.read(FACTS) or b"").splitlines()
        facts = [json.loads(line) for line in lines]
        return [fact for fact in facts if kind in (None, fact["fact"])]

    def newest_tick(self):
        return max((tick["number"] for tick in self.facts("tick")), default=0)

    def answer(self):
        if self.newest_tick():
            self.folder.write(LIFE, answer_to_bytes(self.newest_tick()))


@pytest.fixture
def attempt(tmp_path):
    """Return an attempt whose job says that it has begun by a file, and writes to a table."""

    def of(code, folder=None, **more):
        job = tmp_path / "job.py"
        job.write_text(code)
        payload = {
            "application": str(job),
            "application_digest": digest(job.read_bytes()),
            "arguments": [str(tmp_path / "begun"), str(tmp_path / "t")],
            "options": {},
            "without": [],
            "rules": [rule._asdict() for rule in RULES],
            "spark": SPARK_SETTINGS,
            "session": {
                "program": Path(session_rules.__file__).read_text(),
                "rules": [rule._asdict() for rule in job_rules({})],
                "table": str(tmp_path / "t"),
                "may_read": False,
            },
            "classes": [],
            "pause_s": 3600,
            "ttl_s": None,
            **more,
        }
        local = tmp_path / "folder"
        local.mkdir()
        content = json.dumps(payload).encode()
        return Attempt(folder or AttemptFolder(str(local)), content, tmp_path / "run_job.py")

    return of


def wait_for(happened, *drivers):
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        for driver in drivers:
            assert driver.poll() is None, driver.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_of_two_drivers_the_granted_one_runs_and_reports_and_the_other_leaves(
    attempt, environment, tmp_path
):
    made = attempt(WRITES)
    by_path = made.start(environment, str(tmp_path / "folder"))
    by_url = made.start(
        environment, "--JOB_NAME", "x", "--airflow_occ_folder", f"file:{tmp_path}/folder"
    )
    wait_for(lambda: len(made.hellos()) == 2, by_path, by_url)
    (granted,) = [hello for hello in made.hellos() if hello.details["folder"].startswith("file:")]
    assert not (tmp_path / "begun").exists()
    made.grant(nonce=granted.nonce)
    printed, _ = by_url.communicate(timeout=PATIENCE_S)
    assert by_url.returncode == 3, printed
    others, _ = by_path.communicate(timeout=PATIENCE_S)
    assert by_path.returncode == EXIT_REFUSED, others
    (other,) = [hello for hello in made.hellos() if hello.nonce != granted.nonce]
    assert other.left == f"driver {granted.nonce} of the same attempt was granted"
    assert other.left in others

    assert PAYLOAD not in made.folder.entries()
    kinds = [fact["fact"] for fact in made.facts()]
    assert kinds[0] == "granted"
    assert kinds.index("protected") < kinds.index("hudi") < kinds.index("end") == len(kinds) - 1
    assert "followed_again" not in kinds
    (end,) = made.facts("end")
    assert end["exit_code"] == 3
    assert any("Completed [" in fact["message"] for fact in made.facts("hudi"))
    assert "of the job" in printed
    assert '"fact"' not in printed + others


def revoked_before_its_grant(made):
    made.folder.write(PAYLOAD, made.payload)
    made.folder.write(REVOKED, b"{}")


def granted_with_another_payload(made):
    made.grant(payload=made.payload + b" ")


@pytest.mark.parametrize("make", [revoked_before_its_grant, granted_with_another_payload])
def test_without_a_grant_of_its_payload_nothing_of_the_job_runs(attempt, environment, tmp_path, make):
    made = attempt(SLEEPS_IN_JAVA)
    driver = made.start(environment, str(tmp_path / "folder"))
    wait_for(made.hellos, driver)
    make(made)
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == EXIT_REFUSED, printed
    (hello,) = made.hellos()
    assert hello.left in printed
    assert hello.left
    assert not (tmp_path / "begun").exists()
    assert made.facts() == []


def test_a_shared_jvm_is_refused(attempt, environment, tmp_path):
    made = attempt(SLEEPS_IN_JAVA)
    session = tmp_path / "session.py"
    session.write_text(
        "import runpy, sys\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        f"sys.argv = ['runner.py', {str(tmp_path / 'folder')!r}]\n"
        "try:\n"
        f"    runpy.run_path({str(made.runner)!r}, run_name='__main__')\n"
        "except SystemExit as left:\n"
        "    print('left', left.code, 'rows', spark.range(3).count())\n"
    )
    driver = made.start(environment, program=session)
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert f"left {EXIT_REFUSED} rows 3" in printed  # the session goes on
    (hello,) = made.hellos()
    assert "already runs a Spark application" in hello.left


def test_a_revocation_ends_a_driver_whose_main_thread_is_in_java(attempt, environment, tmp_path):
    made = attempt(SLEEPS_IN_JAVA, poll_s=0.2)
    driver = made.granted(environment, f"file:{tmp_path}/folder")
    wait_for((tmp_path / "begun").exists, driver)
    made.folder.write(REVOKED, b"")
    printed, _ = driver.communicate(timeout=PATIENCE_S)  # until no process holds its output
    assert driver.returncode == -signal.SIGKILL, printed
    (end,) = made.facts("end")
    assert end["why"] == "the attempt was revoked"
    assert end["is_certain"] is False  # it has no guard


def test_a_driver_whose_life_is_no_longer_extended_ends_itself(attempt, environment, tmp_path):
    made = attempt(SLEEPS_IN_JAVA, ttl_s=15, tick_s=0.5, poll_s=0.2)
    driver = made.granted(environment, f"file:{tmp_path}/folder")

    def begun_while_ticks_are_answered():
        made.answer()
        return (tmp_path / "begun").exists()

    wait_for(begun_while_ticks_are_answered, driver)
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == -signal.SIGKILL, printed
    (end,) = made.facts("end")
    assert end["why"] == "its lease was not extended in time"


def test_hudi_is_heard_again_and_its_commits_filtered_once_log4j_is_configured_anew(
    attempt, environment, tmp_path
):
    guarded = {"program": Path(guard.__file__).read_text(), "tables": [str(tmp_path / "t")]}
    made = attempt(CONFIGURES_LOG4J, guard=guarded)
    driver = made.granted(environment, f"file:{tmp_path}/folder")
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0, printed
    assert len(made.facts("followed_again")) == 1
    assert [fact["message"] for fact in made.facts("hudi")] == ["Completed [1__commit__INFLIGHT]"]


@pytest.mark.nightly
def test_the_runner_hears_and_ends_a_job_on_another_release_of_spark(attempt, other_spark, tmp_path):
    made = attempt(LOGS_AS_HUDI, poll_s=0.2, spark={})
    driver = made.start(other_spark, f"file:{tmp_path}/folder")
    wait_for(made.hellos, driver)
    (hello,) = made.hellos()
    assert f"pyspark-{hello.details['pyspark']}" in other_spark["SPARK_HOME"]
    made.grant()
    wait_for((tmp_path / "begun").exists, driver)
    wait_for(lambda: made.facts("hudi"), driver)
    made.folder.write(REVOKED, b"")
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == -signal.SIGKILL, printed
    messages = Counter(fact["message"] for fact in made.facts("hudi"))
    assert set(messages.values()) == {1}
    assert not made.facts("not_followed")


@pytest.mark.parametrize("asked", [("jvm",), ("python",), ("python", "jvm")])
def test_a_driver_that_is_asked_to_stop_proves_its_end(attempt, environment, tmp_path, asked):
    """As by YARN, which signals both, by Kubernetes, which signals the JVM, and by people."""
    guarded = {"program": Path(guard.__file__).read_text(), "tables": [str(tmp_path / "t")]}
    made = attempt(SLEEPS_IN_JAVA, guard=guarded)
    driver = made.granted(environment, f"file:{tmp_path}/folder")
    wait_for((tmp_path / "begun").exists, driver)
    processes = {"jvm": driver.pid, "python": int(made.hellos()[0].details["pid"])}
    for process in asked:
        os.kill(processes[process], signal.SIGTERM)
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == -signal.SIGKILL, printed
    (end,) = made.facts("end")
    assert (end["why"], end["is_certain"]) == (ASKED_TO_STOP, True)


def test_a_guarded_driver_leaves_once_its_job_is_over(attempt, environment, tmp_path):
    guarded = {"program": Path(guard.__file__).read_text(), "tables": [str(tmp_path / "t")]}
    made = attempt(GUARDED_JOB, guard=guarded)
    driver = made.granted(environment, f"file:{tmp_path}/folder")
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0, printed
    (end,) = made.facts("end")
    assert (end["exit_code"], end["is_certain"]) == (0, True)


def test_a_remote_exception_is_reported_with_the_class_that_it_names(attempt, environment, tmp_path):
    made = attempt(ANSWERED)
    driver = made.granted(environment, f"file:{tmp_path}/folder")
    printed, _ = driver.communicate(timeout=PATIENCE_S)
    (fatal,) = made.facts("fatal")
    remote = fatal["causes"][-1]
    assert remote["type"].endswith("RemoteException"), printed
    assert remote["message"].endswith(".AlreadyBeingCreatedException: Failed to create file /t")
    log = DriverLog()
    for fact in made.facts():
        log.take(fact)
    assert log.read(1).outcome is Outcome.COMMIT_CONFLICT
    assert read_saved_log(printed.splitlines(), 1).outcome is Outcome.COMMIT_CONFLICT


@pytest.fixture
def bucket(embedded_s3):
    """Return a function that opens a folder of a bucket through a server."""
    embedded_s3.make_bucket(BUCKET)

    def opened(server):
        files = fsspec.filesystem(
            "s3",
            key=embedded_s3.KEY,
            secret=embedded_s3.SECRET,
            endpoint_url=server.url,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        return AttemptFolder(f"s3a://{BUCKET}/a/1", files)

    return opened


@pytest.mark.nightly
def test_a_driver_on_s3_costs_at_most_twenty_requests_a_minute(attempt, bucket, embedded_s3, tmp_path):
    """Both halves together, once the driver runs; its trigger looks each ten seconds."""
    environment = spark_environment(tmp_path / "spark", store=embedded_s3)
    defaults = tmp_path / "spark" / "conf" / "spark-defaults.conf"
    with FaultyProxy(embedded_s3.url) as of_driver, FaultyProxy(embedded_s3.url) as of_attempt:
        defaults.write_text(defaults.read_text().replace(embedded_s3.url, of_driver.url))
        made = attempt(SLEEPS_IN_JAVA, bucket(embedded_s3), ttl_s=LIFE_S)
        driver = made.start(environment, made.folder.url)
        wait_for(made.hellos, driver)
        made.grant()
        nonce = made.hellos()[0].nonce
        facts = {"folder": made.folder.url, "nonce": nonce, "payload": digest(made.payload)}
        handle, follower = (
            Handle("via", nonce, facts),
            FolderDriver(lambda _: bucket(of_attempt), StartedPlace()),
        )
        wait_for(lambda: (tmp_path / "begun").exists() and made.newest_tick(), driver)
        follow(follower, handle, minutes=1)
        for side in (of_driver, of_attempt):
            side.counted()
        follow(follower, handle, minutes=3)
        requests = {"driver": of_driver.counted(), "attempt": of_attempt.counted()}
        for side, counted in requests.items():
            print(side, len(counted) / 3, Counter(request.method for request in counted))
        assert made.newest_tick() > 1
        assert contract.answer_from_bytes(made.folder.read(LIFE)) >= made.newest_tick() - 1
        assert sum(map(len, requests.values())) <= 3 * 20, requests
        follower.end(handle)
        printed, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == -signal.SIGKILL, printed
    assert made.facts("end")[0]["why"] == "the attempt was revoked"


def follow(follower, handle, minutes):
    """Look at a driver as a trigger does."""
    for _ in range(6 * minutes):
        time.sleep(10)
        assert follower.poll(handle) == Running()
        follower.read(handle, 0)

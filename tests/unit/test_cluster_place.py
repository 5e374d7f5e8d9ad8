"""What all clusters share to which ``spark-submit`` submits: here one that a test decides."""

from __future__ import annotations

import os
import secrets
import threading
from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.site import NO_LIMIT, StartLimit
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, Submission
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import NotSubmittedError, SubmitterUnreachableError
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters import cluster_place
from airflow_occ_provider.submitters.cluster_place import ClusterPlace
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.processes import processes_of
from tests.support.observed import until
from tests.unit.folder_drivers import FolderDriverOfTest


class Launched:
    """A command of the shell in place of ``spark-submit``."""

    environment = os.environ

    def __init__(self, script, start_limit=NO_LIMIT):
        self.script, self.start_limit, self.conf = script, start_limit, None

    def command(self, conf):
        self.conf = conf
        return ["sh", "-c", self.script]


class Elsewhere(ClusterPlace):
    """A cluster whose answers are set."""

    name = "elsewhere"

    def __init__(self, script, start_limit=NO_LIMIT):
        self.launched = Launched(script, start_limit)
        super().__init__(self.launched)
        self.why, self.ended, self.questions = "", [], 0

    def conf(self, folder):
        return {"folder": folder}

    def failure(self, folder):
        self.questions += 1
        if isinstance(self.why, Exception):
            raise self.why
        return self.why

    def end(self, handle, folder):
        self.ended.append((handle, folder))
        raise SubmitterUnreachableError("the cluster does not answer", remedy="wait")


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(cluster_place, "_PERIOD_S", 0.0)
    monkeypatch.setattr(cluster_place, "_LOOK_S", 0.01)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / secrets.token_hex(4)
    path.mkdir()
    return path


def offering(folder, place):
    return FolderDriver(
        AttemptFolder, place, Submission("run_job.py", AttemptFolder(str(folder)), b"{}")
    )


def test_a_driver_that_says_hello_is_granted_and_the_wait_for_it_ends(folder):
    place, driver = (
        Elsewhere(f"echo the lines; echo ${IDENTITY_VARIABLE}"),
        FolderDriverOfTest(folder, "n"),
    )
    submitter = offering(folder, place)
    driver.start()
    handle = submitter.submit(lambda _: None)
    driver.join()
    assert place.launched.conf == {"folder": str(folder)}
    lines = []
    until(lambda: lines.extend(submitter.read(handle, 0.01)) or len(lines) == 2, "spark-submit's lines")
    assert lines == ["the lines\n", f"{folder}\n"]
    until(lambda: submitter._start.returned_s, "the end of the wait")
    assert place.ended == []


def test_a_spark_submit_that_fails_is_an_error_with_its_last_lines(folder):
    place = Elsewhere("for n in $(seq 30); do echo line $n; done; exit 5")
    with pytest.raises(NotSubmittedError, match=r"exit code 5:\nline 11\n[^$]*line 30\n") as raised:
        offering(folder, place).submit(lambda _: None)
    assert "the start of the driver failed" not in str(raised.value)
    assert (folder / "revoked").exists()
    assert place.ended == [(None, str(folder))], "it may have submitted something"


def test_a_submission_that_the_cluster_ends_before_a_driver_is_there_is_an_error(folder):
    place = Elsewhere("true")
    place.why = "the queue does not exist"
    with pytest.raises(NotSubmittedError, match="no driver came: the queue does not exist"):
        offering(folder, place).submit(lambda _: None)


def test_a_cluster_that_does_not_answer_leaves_it_to_the_folder(folder):
    place, driver = Elsewhere("true"), FolderDriverOfTest(folder, "n")
    place.why = SubmitterUnreachableError("no answer", remedy="wait")

    def late():
        until(lambda: place.questions > 2, "the cluster is asked")
        driver.start()

    threading.Thread(target=late, daemon=True).start()
    assert offering(folder, place).submit(lambda _: None)
    driver.join()


def test_a_spark_submit_that_hangs_is_ended_and_the_error_says_why(folder):
    place = Elsewhere("echo resolving; sleep 600", StartLimit.of(timedelta(0)))
    with pytest.raises(NotSubmittedError, match="has not begun within 0:00:00"):
        offering(folder, place).submit(lambda _: None)
    assert processes_of(str(folder)) == []


def test_a_kill_ends_spark_submit_and_what_it_has_submitted(folder):
    place = Elsewhere("sleep 600; true")
    submitter = offering(folder, place)

    def kill():
        until(lambda: processes_of(str(folder)), "spark-submit")
        submitter.killed.set()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(NotSubmittedError, match="asked to stop"):
        submitter.submit(lambda _: None)
    until(lambda: not processes_of(str(folder)), "its end")
    assert place.ended == [(None, str(folder))]


def test_a_kill_asks_for_the_end_of_a_driver_of_another_process(folder):
    place, handle = Elsewhere("true"), Handle("elsewhere", "a driver")
    place.kill(handle)
    assert place.ended == [(handle, "")]


def test_a_kill_before_anything_was_submitted_asks_for_nothing():
    place = Elsewhere("true")
    place.kill(None)
    assert place.ended == []


def test_who_is_there_is_named_by_the_nonce():
    assert Elsewhere("true").identify(Hello("n1")) == ("driver n1", {})

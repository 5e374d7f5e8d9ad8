"""Every message that Hudi's multi-writer classes can log is judged on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from airflow_occ_provider.attempts.log.facts import Cause
from airflow_occ_provider.attempts.log.hudi_failures import Diagnosis, diagnose
from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome
from tests.golden.record_hudi_messages import MESSAGES, RELEASES

GENERAL = Path(MESSAGES).with_name("hudi_messages_general.txt")
T = "20261121092507982"
PACKAGES = {
    "IOException": "java.io",
    "FileNotFoundException": "java.io",
    "ConcurrentModificationException": "java.util",
}
FRAME = "at org.apache.hudi.client.X.y(X.java:1)"


class Message(NamedTuple):
    releases: str
    exception: str
    text: str

    @property
    def diagnosis(self) -> Diagnosis:
        of_java = self.exception.startswith(("Illegal", "Null", "Runtime", "Unsupported", "Assertion"))
        package = PACKAGES.get(self.exception, "java.lang" if of_java else "org.apache.hudi.exception")
        text = self.text.replace("{}", T)
        return diagnose([Cause(f"{package}.{self.exception}", text, jvm=True, frames=[FRAME])])


RECORDED = [Message(*line.split("\t")) for line in MESSAGES.read_text().splitlines()]
REVIEWED = {tuple(line.split("\t")) for line in GENERAL.read_text().splitlines()}


@pytest.mark.parametrize("release", RELEASES)
def test_the_messages_of_every_release_are_recorded(release):
    assert sum(release in message.releases.split(",") for message in RECORDED) > 150


def test_every_message_has_a_row_or_was_reviewed_for_the_general_rule():
    general = {(one.exception, one.text) for one in RECORDED if not one.diagnosis.by_row}
    assert general - REVIEWED == set()  # new messages: add a row, or review them
    assert REVIEWED - general == set()  # they have a row by now, or no release has them


def test_no_message_of_hudis_own_is_the_jobs_error_without_a_row():
    wrong = [
        one
        for one in RECORDED
        if one.diagnosis.outcome is Outcome.JOB_ERROR and not one.diagnosis.by_row
    ]
    assert wrong == []


def test_every_remedy_is_complete():
    remedies = [one.diagnosis.remedy or MEANINGS[one.diagnosis.outcome].remedy for one in RECORDED]
    assert all(remedy.endswith((".", ")")) and "{" not in remedy for remedy in remedies)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Could not mark an already completed instant as complete again {}", Outcome.UNKNOWN),
        ("Found in-flight commits after time :{}, please rollback greater", Outcome.MISCONFIGURATION),
        ("Cannot execute instant {} due to heartbeat by concurrent", Outcome.COMMIT_CONFLICT),
        ("Unable to acquire the lock. Current lock owner", Outcome.LOCK_TIMEOUT),
        ("Detected incompatible concurrent schema evolution", Outcome.COMMIT_CONFLICT),
        ("Found pending restore in active timeline", Outcome.UNKNOWN),
        ("Heartbeat for instant {} has expired", Outcome.HEARTBEAT_EXPIRED),
        ("Spark speculative execution is enabled", Outcome.MISCONFIGURATION),
        ("Early conflict detected but cannot resolve", Outcome.EARLY_CONFLICT),
    ],
)
def test_the_reader_of_class_files_finds_the_messages_that_matter(text, outcome):
    found = [one for one in RECORDED if one.text.startswith(text)]
    assert found
    assert {one.diagnosis.outcome for one in found} == {outcome}

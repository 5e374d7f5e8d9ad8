"""The recorded messages of Hudi are those of its bundle: a new release is to be recorded."""

from __future__ import annotations

from airflow_occ_provider.embedded.bundle import HUDI_VERSION, find_bundle
from tests.golden.record_hudi_messages import MESSAGES, recorded_from


def test_the_recorded_messages_are_those_of_the_bundle():
    of_bundle = recorded_from([find_bundle(HUDI_VERSION)])
    lines = (line.split("\t") for line in MESSAGES.read_text().splitlines())
    assert {
        (exception, text) for releases, exception, text in lines if HUDI_VERSION in releases
    } == of_bundle

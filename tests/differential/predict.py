"""The only use of the code under test: our writer's fate as predicted from a snapshot alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Verdict
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.storage.conflicts import Setup, verdicts
from airflow_occ_provider.storage.table import HudiTable
from tests.differential.observation import Observation

_STRATEGIES = {
    "simple": Strategy.SIMPLE,
    "bucket": Strategy.BUCKET_INDEX,
    "prefer_writer": Strategy.PREFER_WRITER,
}


@dataclass(frozen=True, slots=True)
class Prediction:
    """The verdict on our writer, and its evidence."""

    verdict: Literal["certain", "possible", "none"]
    evidence: str


def predict(observation: Observation) -> Prediction:
    """Return the verdict on our writer, from the snapshot alone.

    :param observation: the recorded pair; neither its results nor later files may be used.
    """
    major, minor, *_ = map(int, observation.pair.hudi.split("."))
    early = observation.pair.early
    setup = Setup(
        _STRATEGIES[observation.pair.strategy],
        (major, minor),
        EarlyDetection.OFF if early == "off" else EarlyDetection.SIMPLE_DIRECT,
        check_commits=early == "commits",
        writing=observation.snapshot_at != "commit",
    )
    verdict = _verdict(observation, setup)
    by_default = Strategy.BUCKET_INDEX if observation.pair.template.bucket else Strategy.SIMPLE
    if setup.strategy is by_default:
        inferred = _verdict(observation, replace(setup, strategy=None, release=None))
        agrees = inferred.certainty in (verdict.certainty, Certainty.POSSIBLE)
        assert agrees, f"inferred: {_evidence(inferred)}; given: {_evidence(verdict)}"
    return Prediction(verdict.certainty.value, _evidence(verdict))


def _verdict(observation: Observation, setup: Setup) -> Verdict:
    table = HudiTable(str(observation.snapshot))
    instant = observation.instant
    found = verdicts(table, table.snapshot(), setup, only=instant, now_ms=observation.snapshot_ms)
    assert instant in found, f"{instant} is not pending in {observation.snapshot}"
    return found[instant]


def _evidence(verdict: Verdict) -> str:
    return "; ".join(
        f"{c.certainty} with {c.rival.instant} ({c.rival.operation_type}) "
        f"on {sorted(c.file_groups)}: {c.reason}"
        for c in (*verdict.conflicts, *verdict.early)
    )

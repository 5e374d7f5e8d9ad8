"""The seam to the code under test: what a snapshot alone says of our writer's fate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_occ_provider.hudi.conflict import Verdict
from airflow_occ_provider.hudi.early_detection import EarlyDetection
from airflow_occ_provider.hudi.strategy import Strategy
from airflow_occ_provider.storage.conflicts import conflicts
from airflow_occ_provider.storage.table import HudiTable
from tests.differential.observation import Observation

_STRATEGIES = {
    "simple": Strategy.SIMPLE,
    "bucket": Strategy.BUCKET_INDEX,
    "prefer_writer": Strategy.PREFER_WRITER,
}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of our writer, and why."""

    verdict: Literal["certain", "possible", "none"]
    evidence: str


def predict(observation: Observation) -> Prediction:
    """Return the verdict on our writer, from the snapshot alone.

    :param observation: what was recorded; neither its results nor later files may be used.
    """
    snapshot = HudiTable(str(observation.snapshot)).snapshot()
    major, minor, *_ = map(int, observation.pair.hudi.split("."))
    strategy = _STRATEGIES[observation.pair.strategy]
    early = observation.pair.early
    verdict = conflicts(
        snapshot,
        observation.instant,
        strategy,
        (major, minor),
        early=EarlyDetection.OFF if early == "off" else EarlyDetection.SIMPLE_DIRECT,
        check_commits=early == "commits",
        writing=observation.snapshot_at != "commit",
        now_ms=observation.snapshot_ms,
    )
    assert verdict is not None, f"{observation.instant} is not pending in {observation.snapshot}"
    return Prediction(verdict.certainty.value, _evidence(verdict))


def _evidence(verdict: Verdict) -> str:
    return "; ".join(
        f"{c.certainty} with {c.rival.instant} ({c.rival.kind}) on {sorted(c.file_groups)}: {c.reason}"
        for c in (*verdict.conflicts, *verdict.early)
    )

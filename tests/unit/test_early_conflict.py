from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.conflict.verdict import Certainty, judge_early
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from tests.support.operations import AFTER, BEFORE, F, G, completed, ours, pending

DIRECT, SERVER = EarlyDetection.SIMPLE_DIRECT, EarlyDetection.TIMELINE_SERVER
CERTAIN, POSSIBLE, NONE = Certainty.CERTAIN, Certainty.POSSIBLE, Certainty.NONE
BOTH = frozenset({F, G})


@pytest.mark.parametrize(
    ("own", "rival", "detection", "expected"),
    [
        (ours(), pending(BEFORE, F, marked=frozenset({F})), DIRECT, CERTAIN),
        (ours(), pending(BEFORE, F, marked=frozenset({F})), EarlyDetection.TRANSACTION_DIRECT, CERTAIN),
        (ours(), pending(BEFORE, F), DIRECT, NONE),
        (ours(), pending(AFTER, F, marked=frozenset({F})), DIRECT, NONE),
        (ours(), pending(BEFORE, F, marked=frozenset({F}), live=False), DIRECT, NONE),
        (ours(marked=frozenset({F})), pending(BEFORE, F, marked=frozenset({F})), DIRECT, NONE),
        (ours(), pending(BEFORE, F, action="replacecommit", marked=frozenset({F})), DIRECT, NONE),
        (ours(action="replacecommit"), pending(BEFORE, F, marked=frozenset({F})), DIRECT, NONE),
        (ours(), completed(AFTER, 300, F), DIRECT, CERTAIN),
        (ours(), completed(AFTER, 150, F), DIRECT, POSSIBLE),
        (ours(), completed(BEFORE, 50, F, at=BEFORE), DIRECT, NONE),
        (ours(), completed(AFTER, 300, G), DIRECT, NONE),
        (ours(marked=frozenset({F})), completed(AFTER, 300, F), DIRECT, NONE),
        (ours(), completed(AFTER, 300, F), SERVER, NONE),
        (ours(), pending(BEFORE, F, marked=frozenset({F})), SERVER, POSSIBLE),
        (
            ours(existing=BOTH, marked=frozenset({F})),
            pending(BEFORE, marked=frozenset({F})),
            SERVER,
            CERTAIN,
        ),
        (ours(marked=frozenset({F})), pending(BEFORE, F, marked=frozenset({F})), SERVER, NONE),
    ],
)
def test_what_early_detection_will_refuse(own, rival, detection, expected):
    verdict = judge_early(own, [rival], detection)
    assert verdict.certainty is expected
    assert bool(verdict.conflicts) is (expected is not NONE)

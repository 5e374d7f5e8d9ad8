"""A lease passes worker -> triggerer -> worker, beside a rival: a slice of ``tests.handovers``."""

from __future__ import annotations

import pytest

from tests.handovers.rig import hand_over

CASES = 30


@pytest.mark.real
def test_nobody_is_granted_what_is_handed_over_and_the_dead_are_removed_in_time(embedded_zookeeper):
    counts, broken = hand_over(embedded_zookeeper.hosts, range(CASES), seed=7)
    assert broken == []
    assert counts["handed over"] + counts["taken over"] + counts["freed"] >= CASES
    assert min(counts["handed over"], counts["taken over"], counts["freed"]) > 0
    assert counts["looks of a rival"] > 20 * CASES

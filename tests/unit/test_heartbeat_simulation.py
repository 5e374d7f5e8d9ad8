from __future__ import annotations

from tests.bench.simulation import Odds, simulate

HARD = Odds(beats=8, killed=0.1, slow=0.02, frozen=0.02)


def test_no_live_writer_is_called_dead_and_each_dead_one_is_at_the_next_observation():
    found = [simulate(seed, 300, writers=(2, 20)[seed % 2], odds=HARD) for seed in range(6)]
    assert [one.false for one in found] == [[]] * 6
    assert [one.overlooked for one in found] == [0] * 6
    assert sum(one.reported for one in found) > 10

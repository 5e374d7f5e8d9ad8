"""How the fault rig of contending tasks times the end of a driver that early stop has ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_occ_provider.hudi.conflict.operation import Times
from tests.faults.contended.stops import Seen, summary

OWN, RIVAL = "20261125184044291", "20261125184043189"


def seen(*instants):
    """Return what was seen of instants, each with the seconds of its profile and its completion.

    Each was requested two seconds before its profile.
    """
    found = {time: Times(*ms(seconds[0] - 2, *seconds)) for time, *seconds in instants}
    timeline = [SimpleNamespace(time=time) for time in found]
    snapshot = SimpleNamespace(timeline=timeline, times=lambda one: found[one.time])
    one = Seen(SimpleNamespace(snapshot=lambda **_: snapshot))
    one.look()
    return one


def ms(*seconds):
    return [None if one is None else one * 1000 for one in seconds]


def line(second, text):
    return {"timestamp": f"1970-01-01T00:00:{second:02}Z", "event": text}


def log(verb):
    return [
        {"event": "::group::"},
        line(20, f"{OWN} {verb} {RIVAL}, and more."),
        line(23, "26/11/25 18:40:44 INFO ShutdownHookManager: Shutdown hook called"),
        line(30, "Queued behind another writer."),
    ]


@pytest.mark.parametrize(
    ("verb", "delay_s"), [("gives way to the earlier", 8), ("can no longer commit:", 4)]
)
def test_a_stop_is_timed_from_its_evidence_to_the_drivers_last_line(verb, delay_s):
    assert seen((OWN, 15, None), (RIVAL, 12, 19)).delays_s(log(verb)) == [delay_s]


@pytest.mark.parametrize("instants", [(), ((OWN, 15, None), (RIVAL, 12, None)), ((RIVAL, 12, 19),)])
def test_without_both_times_nothing_is_said(instants):
    assert seen(*instants).delays_s(log("can no longer commit:")) == []


def test_a_log_without_a_driver_or_a_stop_has_no_delay():
    whole = log("gives way to the earlier")
    assert seen((OWN, 15, None), (RIVAL, 12, 19)).delays_s(whole[:2]) == []
    assert seen((OWN, 15, None), (RIVAL, 12, 19)).delays_s(whole[2:]) == []


@pytest.mark.parametrize(
    ("rivals", "delays_s"),
    [
        ([(16, 19)], [4]),  # its profile is younger: in vain once it has completed
        ([(12, 19)], [8]),  # older: in vain since there were two profiles
        ([(16, 19), (12, 19)], [8]),
        ([(1, 12)], []),  # completed before the write began
        ([(16, None)], []),
    ],
)
def test_a_refused_write_is_timed_from_the_first_evidence(rivals, delays_s):
    others = [(f"{number}", *rival) for number, rival in enumerate(rivals)]
    found = seen((OWN, 15, None), *others)
    assert found.delays_of_refused_s(log("was refused:"), OWN) == delays_s
    assert seen(*others).delays_of_refused_s(log("was refused:"), OWN) == []


def test_the_slowest_of_twenty_does_not_count():
    assert summary([]) == "0 drivers wrote in vain"
    assert summary([3.0] * 99 + [60.0]) == (
        "100 drivers wrote in vain: p50 3.0 s, p95 3.0 s after the evidence"
    )
    assert summary([3.0] * 9 + [60.0]).endswith("more than 12 s")

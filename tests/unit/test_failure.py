from __future__ import annotations

import random
import string
from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.outcome import (
    LIMIT,
    UNSIGNED,
    Failure,
    Outcome,
    brief,
    is_sentence,
    sentence,
    wasted,
)

OWN, RIVAL = "20261122091720286", "20261122091721756"
CONFLICT = Failure(
    Outcome.COMMIT_CONFLICT,
    instant=OWN,
    rival=RIVAL,
    writer=("two_writers", "write_b"),
    partitions=("city-0", "city-1"),
    file_groups=2,
    seconds=48.5,
    next_try="queued on those partitions",
)


LOST = f"{OWN} lost to {RIVAL}"


@pytest.mark.parametrize(
    ("changed", "begin", "end"),
    [
        (
            {},
            f"Conflict: {LOST} (two_writers / write_b) in city-0 and city-1 (2 file groups). ",
            "48.5 s wasted. Next try: queued on them.",
        ),
        (
            {"partitions": ("city-0",), "file_groups": 1, "writer": ("d", "t"), "next_try": ""},
            f"Conflict: instant {LOST}, written by d / t, in city-0 (1 file group). ",
            "48.5 s of Spark time wasted.",
        ),
        (
            {"writer": UNSIGNED, "partitions": (), "file_groups": 0, "next_try": "", "seconds": 36000.0},
            f"Conflict: instant {LOST}, an unsigned commit. ",
            "10.0 h of Spark time wasted.",
        ),
        (
            {"writer": "", "partitions": ("",), "file_groups": 3, "seconds": 1500.0},
            f"Conflict: instant {LOST} in 3 file groups. ",
            "25 min of Spark time wasted. Next try: queued on those partitions.",
        ),
        (
            {"outcome": Outcome.EARLY_CONFLICT, "rival": None, "next_try": "none"},
            f"Early conflict: instant {OWN} met another writer of the same files. ",
            "48.5 s of Spark time wasted. Next try: none.",
        ),
    ],
)
def test_a_conflict_in_one_line(changed, begin, end):
    assert sentence(replace(CONFLICT, **changed)) == begin + end


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            Failure(Outcome.LOCK_TIMEOUT, OWN, cause=": org.apache.hudi.x.HoodieLockException: busy"),
            f"Lock time-out: instant {OWN}: HoodieLockException: busy.",
        ),
        (
            Failure(Outcome.JOB_ERROR, seconds=3, cause="KeyError: 'x'"),
            "Job error: KeyError: 'x'. 3.0 s of Spark time wasted.",
        ),
        (Failure(Outcome.KILLED, cause="exit code 137"), "Killed: exit code 137."),
        (Failure(Outcome.MISCONFIGURATION), "Misconfiguration: no reason was logged."),
    ],
)
def test_other_failures_name_their_cause_without_packages(failure, expected):
    assert sentence(failure) == expected


def _word(chance, most):
    letters = string.ascii_letters + string.digits + "-_=./: %é\n"
    return "".join(chance.choices(letters, k=chance.randint(0, most)))


@pytest.mark.parametrize("seed", range(300))
def test_the_line_is_short_and_recognised_whatever_the_names(seed):
    chance = random.Random(seed)
    most = chance.choice((8, 60, 400))
    failure = Failure(
        outcome=chance.choice([one for one in Outcome if one.name.endswith(("CONFLICT", "ERROR"))]),
        instant=chance.choice((None, OWN)),
        rival=chance.choice((None, RIVAL)),
        writer=chance.choice(((_word(chance, most), _word(chance, most)), UNSIGNED, "")),
        partitions=tuple(_word(chance, most) for _ in range(chance.choice((0, 1, 2, 5000)))),
        file_groups=chance.choice((0, 1, 2, 123_456)),
        seconds=chance.uniform(0, 10**6),
        next_try=chance.choice(("", "none", "queued on those partitions", "queued for the whole table")),
        cause=_word(chance, most),
    )
    line = sentence(failure)
    assert len(line) < LIMIT
    assert "\n" not in line
    assert is_sentence(line)
    assert not failure.next_try or "Next try: " in line
    assert not failure.rival or RIVAL in line


def test_a_text_of_any_length_is_cut_to_one_line():
    assert brief("a\n b") == "a b"
    assert len(brief("x" * 1000)) == LIMIT - 1


def test_what_was_wasted_is_what_the_sentence_says():
    line = sentence(Failure(Outcome.COMMIT_CONFLICT, "1", "2", seconds=48.5))
    assert wasted(line) == "48.5 s"
    assert wasted(sentence(Failure(Outcome.KILLED, seconds=36_000.0, cause="exit code 137"))) == "10.0 h"
    assert wasted("48.5 s of Spark time wasted.") == ""  # no sentence of ours

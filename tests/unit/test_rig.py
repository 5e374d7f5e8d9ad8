from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import pytest

from tests import rig


@pytest.mark.parametrize("module", dict.fromkeys(program.module for program in rig.PROGRAMS))
def test_each_program_can_be_run(module):
    spec = find_spec(f"tests.{module}")
    assert spec
    assert spec.submodule_search_locations is None or find_spec(f"tests.{module}.__main__")


def words(*names, runs=60, options=()):
    commands = rig.commands(names, runs, 3, options)
    assert {(*command[:2],) for command in commands} == {(sys.executable, "-m")}
    return [" ".join(command[2:]) for command in commands]


def test_a_question_runs_all_its_programs_and_a_name_one_of_them():
    assert words("outages") == ["tests.outages --times 10", "tests.outages --lag --times 10"]
    assert {*words("outages")} < {*words("queue")}
    assert words("faulty_s3", "stopped") == [
        "tests.faulty_s3 --runs 12 --seed 3",
        "tests.stopped --runs 60 --seed 3",
    ]


def test_runs_scale_each_size():
    assert words("faults.yarn", runs=6) == [
        "tests.faults.yarn --runs 6 --seed 3",
        "tests.faults.yarn --only unrecorded_task --runs 2 --seed 3",
    ]
    assert words("faulty_s3", runs=1) == ["tests.faulty_s3 --runs 1 --seed 3"]


def test_options_are_those_of_one_program_which_runs_once():
    assert words("model", options=("--backend", "s3")) == [
        "tests.model --steps 200000 --seed 3 --backend s3"
    ]
    for names in (["queue"], ["model", "handovers"]):
        with pytest.raises(SystemExit, match="name one program"):
            words(*names, options=("--seed", "1"))


def test_a_smoke_run_is_short_where_a_program_has_one(monkeypatch):
    monkeypatch.setenv("SMOKE", "1")
    assert words("corpus", "early_stop") == [
        "tests.corpus --smoke",
        "tests.early_stop --races 500 --seed 3",
    ]


def test_an_unknown_name_is_answered_with_all_that_there_are():
    with pytest.raises(SystemExit, match=r"'fault'.*queue, once, truth, cost, model,.*faults\.yarn"):
        words("fault")


def test_all_run_though_one_fails(monkeypatch, capfd):
    ends = [[sys.executable, "-c", f"raise SystemExit({code})"] for code in (0, 3, 0)]
    monkeypatch.setattr(rig, "commands", lambda *_: ends)
    monkeypatch.setattr(sys, "argv", ["rig", "once"])
    assert rig.main() == 1
    lines = capfd.readouterr().out.splitlines()
    assert re.findall(r"exit code (\d)", "\n".join(lines)) == ["0", "3", "0"]
    assert lines[-1] == "failed: -c raise SystemExit(3)"

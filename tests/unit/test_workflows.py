"""What CI and pre-commit call are make targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from tests import rig
from tests.golden import HUDI_RELEASES

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_is_an_action_with_a_version_or_a_make_target(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
            else:
                program, target, *_ = step["run"].split()
                assert program == "make"
                assert target in TARGETS


def test_each_night_runs_every_rig_and_one_benchmark():
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yaml").read_text())
    names = re.search(r'rig NAME="(.+)"', MAKEFILE)[1].split()
    modules = dict.fromkeys(program.module for name in names for program in rig.programs_of(name))
    assert nightly["jobs"]["rig"]["strategy"]["matrix"]["rig"] == list(modules)
    assert {"queue", "once", "truth"} < {*names}


def test_each_older_release_of_the_page_of_versions_has_a_lane_of_its_own():
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yaml").read_text())
    lanes = nightly["jobs"]["releases"]["strategy"]["matrix"]["hudi"]
    assert [*lanes, HUDI_VERSION] == [*HUDI_RELEASES]


def test_pre_commit_calls_make_targets():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    assert {hook["entry"] for hook in repo["hooks"]} == {"make lint", "make types"}

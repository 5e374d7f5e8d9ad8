"""``airflow hudi timeline | writers | conflicts``, on tables that real Hudi wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from airflow.cli.cli_parser import get_parser

from airflow_occ_provider.cli.output import print_rows
from airflow_occ_provider.cli.prospects import prospect_rows
from tests.golden.table_archive import unpack

TABLES = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
LIVE = "live_direct"
FORMATS = ("table", "json", "yaml", "plain")


@pytest.fixture
def table(tmp_path):
    return lambda name: str(unpack(TABLES / f"{name}.zip", tmp_path / name))


@pytest.fixture
def run(capsys):
    def run(*arguments):
        args = get_parser().parse_args(["hudi", *arguments])
        args.func(args)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", ["history", "version_6_history"])
def test_the_timeline_as_json_has_one_object_an_instant(run, table, name):
    path = table(name)
    found = json.loads(run("timeline", path, "--archived", "--files", "--output", "json"))
    assert list(found[0]) == [
        *("time", "action", "state", "completion_time", "operation", "written", "replaced", "planned"),
        *("markers", "heartbeat", "extra", "archived", "damage", "task"),
    ]
    active = json.loads(run("timeline", path, "--output", "json"))
    assert [one["time"] for one in found if not one["archived"]] == [one["time"] for one in active]
    assert any(one["archived"] for one in found)
    assert "written" not in active[0]


def test_the_timeline_as_a_table_is_readable(run, table):
    printed = run("timeline", table("rollbacks"))
    assert "rollback" in printed
    assert "REQUESTED" in printed
    assert max(map(len, printed.splitlines())) < 130


def test_writers_shows_which_writers_are_alive(run, table):
    path = table(LIVE)
    found = json.loads(run("writers", path, "--output", "json"))
    assert {one["heartbeat"] for one in found} == {"dead"}  # recorded long ago
    assert all(one["margin_ms"] < 0 for one in found)
    assert "UPSERT" in run("writers", path)


@pytest.mark.parametrize(
    "command",
    [("timeline", "--archived"), ("writers",), ("conflicts",), ("ghosts",)],
    ids=lambda it: it[0],
)
def test_every_format_shows_the_same(run, table, command):
    name, *options = command
    printed = {form: run(name, table(LIVE), *options, "--output", form) for form in FORMATS}
    described = json.loads(printed["json"])
    assert described
    assert without_ages(yaml.safe_load(printed["yaml"])) == without_ages(described)
    key = "instant" if name == "ghosts" else "time"
    for form in ("table", "plain"):
        assert all(str(one[key]) in printed[form] for one in described)
    assert "|" not in printed["plain"]
    assert "===" not in printed["plain"]


def without_ages(described):
    """Leave out what depends on the moment."""
    ages = ("margin_ms", "dead_in_ms", "proof")
    return [{key: one[key] for key in one if key not in ages} for one in described]


def test_conflicts_name_the_rival_and_the_file_groups(run, table):
    path = table(LIVE)
    dead = json.loads(run("conflicts", path, "--output", "json"))
    assert {(each["verdict"], len(each["conflicts"])) for each in dead} == {("dead", 0)}
    for heartbeat in Path(path, ".hoodie", ".heartbeat").iterdir():
        heartbeat.touch()
    found = json.loads(run("conflicts", path, "--output", "json"))
    (one, other) = (each for each in found if each["outlook"] == "contested")
    assert one["contest"] == {"writes": 2, "can_commit": 1}
    assert one["conflicts"][0]["rival"] == other["time"]
    assert one["conflicts"][0]["file_groups"] == other["conflicts"][0]["file_groups"] != []
    assert one["verdict"] == "certain"
    (alone,) = json.loads(run("conflicts", path, "--instant", one["time"], "--output", "json"))
    assert alone == one
    assert one["conflicts"][0]["rival"] in run("conflicts", path)


def test_names_that_look_like_markup_are_printed_as_they_are(capsys):
    names = ["tag=[red]x", "[/y]", "dt=:smile:", "[link=z]"]
    print_rows({"partition": name} for name in names)
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


def test_a_write_that_was_rolled_back_says_so_beside_its_conflicts():
    conflict = {"rival": "1", "operation": "UPSERT", "state": "COMPLETED", "certainty": "certain"}
    conflict |= {"task": None, "reason": "both wrote it", "file_groups": [["p", "f"]]}
    told = {"time": "2", "outlook": "loses", "verdict": "certain", "rolled_back_by": "3"}
    told |= {
        "task": None,
        "conflicts": [conflict],
        "duplicates": [],
        "rivals": {"certain": 1},
        "contest": None,
    }
    assert [row["reason"] for row in prospect_rows(told)] == ["rolled back by 3", "both wrote it"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("timeline", "trips"), "'trips' is not a path"),
        (("writers", "/nowhere"), "is not a Hudi table"),
        (("conflicts", "{live}", "--instant", "2026"), "has no pending write 2026"),
        (("conflicts", "{live}", "--hudi-version", "new"), "not a version"),
    ],
)
def test_errors_are_one_line_with_a_remedy(run, table, arguments, message):
    with pytest.raises(SystemExit) as caught:
        run(*(table(LIVE) if one == "{live}" else one for one in arguments))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1

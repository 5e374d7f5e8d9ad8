"""``airflow hudi checkpoints``, on a state backend in memory."""

from __future__ import annotations

import json

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_occ_provider.assets.consumers import consumer_state
from airflow_occ_provider.cli import checkpoints
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, CommitPosition, Order
from tests.support.commit_triggers import C, T, complete


class Backend(dict):
    def get(self, scope, key):
        return super().get((scope.asset_id, key))

    def set(self, scope, key, value):
        self[scope.asset_id, key] = value


@pytest.fixture
def backend(monkeypatch):
    found = Backend()
    monkeypatch.setattr(checkpoints, "get_state_backend", lambda: found)
    monkeypatch.setattr(checkpoints, "_consumers", lambda: {"dwh": 1, "new": 2})
    return found


def run(*arguments):
    args = get_parser().parse_args(["hudi", "checkpoints", *arguments])
    args.func(args)


def kept(backend):
    return json.loads(backend[1, "hudi_checkpoint"])


def test_the_consumers_are_listed(backend, capsys):
    read = Checkpoint(Order.COMPLETED, "", (CommitPosition(T[1], C[1]),))
    backend[1, "hudi_checkpoint"] = json.dumps(consumer_state("/t", read))
    run("list", "--output", "json")
    first, second = json.loads(capsys.readouterr().out)
    assert first == {
        "consumer": "dwh",
        "table": "/t",
        "order": "completion_time",
        "read_up_to": C[1],
        "newest_commit": T[1],
    }
    assert (second["consumer"], second["table"]) == ("new", None)
    run("list", "--output", "plain")
    assert "dwh" in capsys.readouterr().out


@pytest.mark.parametrize(("at", "time"), [("latest", C[2]), (T[1], C[1])])
def test_one_is_set(backend, folder, at, time):
    complete(folder, 1)
    complete(folder, 2)
    run("set", "dwh", str(folder.parent), "--at", at, "--yes")
    assert kept(backend)["table"] == str(folder.parent)
    assert Checkpoint.from_json(kept(backend)["checkpoint"]).time == time


def test_one_may_begin_anew(backend, folder):
    run("set", "dwh", str(folder.parent), "--at", "earliest", "--yes")
    complete(folder, 1)
    run("set", "dwh", str(folder.parent), "--at", "earliest", "--yes")
    assert Checkpoint.from_json(kept(backend)["checkpoint"]).is_empty


def test_nothing_is_set_without_a_yes(backend, folder, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "n")
    with pytest.raises(SystemExit, match="Nothing was set"):
        run("set", "dwh", str(folder.parent), "--at", "earliest")
    assert backend == {}


@pytest.mark.parametrize(
    ("consumer", "at", "message"),
    [("typo", "earliest", "known: dwh, new"), ("dwh", "yesterday", "'yesterday' is not earliest")],
)
def test_what_is_wrong_is_named(backend, folder, consumer, at, message):
    with pytest.raises(SystemExit, match=message):
        run("set", consumer, str(folder.parent), "--at", at, "--yes")

"""``airflow hudi ghosts``: what dead writers left in a table, with remedies."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from airflow_occ_provider.attempts.cleaning import foresee, pending_residue
from airflow_occ_provider.cli.output import Rows, print_described, task_text
from airflow_occ_provider.cli.signers import signers
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.reading.described import describe_task
from airflow_occ_provider.spelling import spell_span

_NOTHING = "No pending writes and no residue of dead writers."


@exit_on_error
def ghosts(args: argparse.Namespace) -> None:
    """Print the pending writes, then the residue of dead writers."""
    described = _described(args)
    print_described(described, args.output, partial(_print_text, described))


def _print_text(described: list[dict[str, Any]], show: Callable[[Rows], None]) -> None:
    if described:
        show(map(_row, described))
    else:
        print(_NOTHING)


def _described(args: argparse.Namespace) -> list[dict[str, Any]]:
    rule = HeartbeatRule(args.heartbeat_interval_ms, args.tolerable_misses)
    table = HudiTableHook(args.table, args.conn_id, timeout_s=args.timeout).get_conn()
    cleaning, observation = foresee(table, rule)
    pending = [
        {
            **pending_residue(observation, writer).to_json(),
            "fate": writer.fate.value,
            "dead_in_ms": max(0, writer.margin_ms or 0),
        }
        for writer in observation.pending.values()
    ]
    residues = [{**residue.to_json(), "fate": None, "dead_in_ms": None} for residue in cleaning.residues]
    shown: list[dict[str, Any]] = [*pending, *residues]
    tasks = signers(args, observation.snapshot, (residue["instant"] for residue in shown))
    return [residue | {"task": describe_task(tasks.get(residue["instant"]))} for residue in shown]


def _row(described: dict[str, Any]) -> dict[str, str]:
    dead_in_ms = described["dead_in_ms"]
    return {
        "what": described["kind"],
        "instant": described["instant"],
        "task": task_text(described),
        "dead in": "-" if dead_in_ms is None else spell_span(dead_in_ms),
        "proof": described["proof"],
        "remedy": described["remedy"],
    }

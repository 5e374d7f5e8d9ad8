"""``airflow hudi checkpoints list | set``: how far consumers have read."""

from __future__ import annotations

import argparse
import json
from typing import Any

from airflow.models.asset import AssetActive, AssetModel
from airflow.state import AssetScope, get_state_backend
from airflow.utils.session import create_session

from airflow_occ_provider.assets.consumers import (
    CHECKPOINT_KEY,
    CONSUMER_PREFIX,
    consumer_state,
    read_checkpoint,
)
from airflow_occ_provider.cli.output import print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.reading.new_commits import beginning
from airflow_occ_provider.storage.address import canonical_table


@exit_on_error
def checkpoints_list(args: argparse.Namespace) -> None:
    """Print the consumers with their checkpoints."""
    described = [_described(name, asset_id) for name, asset_id in sorted(_consumers().items())]
    print_described(described, args.output, lambda show: show(map(_row, described)))


@exit_on_error
def checkpoints_set(args: argparse.Namespace) -> None:
    """Set a checkpoint, after a question."""
    consumers = _consumers()
    if args.consumer not in consumers:
        raise SystemExit(
            f"airflow hudi checkpoints set: no DAG that Airflow has parsed reads as {args.consumer!r}; "
            f"known: {', '.join(sorted(consumers)) or 'none'}"
        )
    checkpoint = _checkpoint(args)
    shown = f"all up to {checkpoint.time}" if checkpoint.time else "nothing"
    print(f"{args.consumer} will have read {shown} of {args.table}.")
    if not args.yes and input("Set it? [y/N] ").strip().lower() not in ("y", "yes"):
        raise SystemExit("Nothing was set.")
    value = consumer_state(canonical_table(args.table), checkpoint)
    scope = AssetScope(asset_id=consumers[args.consumer])
    get_state_backend().set(scope, CHECKPOINT_KEY, json.dumps(value))


def _checkpoint(args: argparse.Namespace) -> Checkpoint:
    if not (args.at in ("earliest", "latest") or args.at.isdecimal()):
        raise SystemExit(f"--at: {args.at!r} is not earliest, latest, or an instant's requested time")
    snapshot = open_table(args.table, args.conn_id, timeout_s=args.timeout).snapshot()
    return beginning(snapshot, args.at)


def _consumers() -> dict[str, int]:
    """Return the ids of the consumers' assets, of which DAGs refer to."""
    with create_session() as session:
        assets = (
            session.query(AssetModel.name, AssetModel.id)
            .join(AssetActive, AssetActive.name == AssetModel.name)
            .filter(AssetModel.name.startswith(CONSUMER_PREFIX, autoescape=True))
        )
        return {name.removeprefix(CONSUMER_PREFIX): asset_id for name, asset_id in assets}


def _described(name: str, asset_id: int) -> dict[str, Any]:
    state_json = get_state_backend().get(AssetScope(asset_id=asset_id), CHECKPOINT_KEY)
    state = json.loads(state_json) if state_json else {"table": None, "checkpoint": None}
    checkpoint = read_checkpoint(name, state)
    newest = max((commit.requested for commit in checkpoint.read), default=None) if checkpoint else None
    return {
        "consumer": name,
        "table": state["table"],
        "order": checkpoint.order.value if checkpoint else None,
        "read_up_to": checkpoint.time if checkpoint else None,
        "newest_commit": newest,
    }


def _row(described: dict[str, Any]) -> dict[str, str]:
    return {key.replace("_", " "): str(value or "-") for key, value in described.items()}

"""``airflow hudi leases list | release``: the queue of a table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import Any, NoReturn

from airflow_occ_provider.cli.output import Rows, print_described
from airflow_occ_provider.cli.table import exit_on_error
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL
from airflow_occ_provider.leases.rules import Blocker, Owner, QueuedRequest, blockers
from airflow_occ_provider.reading.described import describe_owner, describe_renewal, renewal
from airflow_occ_provider.spelling import spell_time
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.task.database import record_release, releaser, task_states

_SHOWN = 5
_STOP_S = 10.0
_UNKNOWN = "not known"
_RISK = """\
Its owner may be writing now, and notices the release only at its next renewal. --force waits for that,
but not until a driver has ended. Then a rival may write beside it. Hudi's commit check still refuses the
second of two writers that touched the same file groups. Only the lease protects writers with
isolation='serializable' from duplicates of new keys and lost updates. Release a request only if its
owner is gone."""


@exit_on_error
def leases_list(args: argparse.Namespace) -> None:
    """Print the requests of one table, or of all tables, oldest first."""
    table = canonical_table(args.table) if args.table else None
    with closing(lock_hook(args.lock_conn_id).leases()) as service:
        # Of all tables: a request may be blocked in another one of its tables.
        queue = service.requests()
    described = list(_described(queue, table, task_states(queued.request.owner for queued in queue)))
    print_described(described, args.output, partial(_print_text, described))


@exit_on_error
def leases_release(args: argparse.Namespace) -> None:
    """Remove a request by force."""
    table = canonical_table(args.table)
    with closing(lock_hook(args.lock_conn_id).leases()) as service:
        requests = [
            queued
            for queued in service.requests()
            if queued.request.id == args.id and (queued.unknown or table in queued.request.tables)
        ]
        if not requests:
            _end(f"no request {args.id} is in the queue of {table}")
        queued = requests[0]
        owner = queued.request.owner
        state = task_states([owner]).get(owner, _UNKNOWN)
        is_fresh = queued.is_fresh(now_ms := round(time.time() * 1000))
        if is_fresh and not args.force:
            _end(
                f"request {args.id} of {owner} (task: {state}) {', '.join(renewal(queued, now_ms))}, so "
                f"its process lives, or died just now. Wait {queued.request.ttl_ms // 1000} s and look "
                "again, or end the task; --force releases it nevertheless"
            )
        if not args.yes:
            _confirm(queued, state)
        account = releaser()
        is_revoked = is_fresh and service.revoke(queued, f"{account} at {spell_time(now_ms)}")
        if is_revoked:
            _wait_for_owner(queued)
        # After that the owner may have removed the request itself, to be queued anew.
        if not (service.evict(queued) or is_revoked):
            _end(f"request {args.id} is no longer in the queue")
    is_recorded = record_release(owner, args.id, table, account)
    place = "recorded in" if is_recorded else "not recorded: no answer of"
    print(f"released {args.id} of {owner} as {account} ({place} Airflow's audit log)")


def _wait_for_owner(queued: QueuedRequest) -> None:
    """Wait until a living owner has read that its request was released, before the next one begins.

    Nothing in the queue shows that it has: its renewals end, and it leaves the request alone.
    """
    seconds = queued.request.ttl_ms / 1000 / RENEWALS_PER_TTL + _STOP_S
    print(f"The owner reads at its next renewal that its request was released: waiting {seconds:.0f} s.")
    time.sleep(seconds)


def _confirm(queued: QueuedRequest, state: str) -> None:
    request = queued.request
    words = ", ".join(renewal(queued, round(time.time() * 1000)))
    scopes = "".join(f"\n  {scope}" for scope in request.scopes)
    since = spell_time(queued.since_ms)
    print(f"Request {request.id} of {request.owner}, queued since {since}:{scopes}")
    print(f"Task: {state}. {words[:1].upper()}{words[1:]}.")
    print(_RISK)
    print("Release it? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        _end("nothing was released")


def _end(message: str) -> NoReturn:
    raise SystemExit(f"airflow hudi leases release: {message}")


def _described(
    queue: Sequence[QueuedRequest], table: str | None, states: Mapping[Owner, str]
) -> Iterator[dict[str, Any]]:
    """Describe each request once for each of its tables."""
    pairs = sorted((name, queued.order, queued) for queued in queue for name in queued.request.tables)
    places: dict[tuple[str, str], int] = {}
    for name, group in groupby(pairs, key=lambda pair: pair[0]):
        places |= {(name, queued.name): place for place, (_, _, queued) in enumerate(group, start=1)}
    for name, _, queued in pairs:
        if queued.unknown or table in (None, name):
            yield _request(queued, name, queue, places) | {
                "task_state": states.get(queued.request.owner)
            }


def _request(
    queued: QueuedRequest,
    table: str,
    queue: Iterable[QueuedRequest],
    places: Mapping[tuple[str, str], int],
) -> dict[str, Any]:
    request = queued.request
    waits_for = blockers(queued, queue)
    return {
        "table": table,
        "place": places[table, queued.name],
        "owner": describe_owner(request.owner),
        "holds": not waits_for,
        # All blockers of every waiter would grow with the square of the queue.
        "waits_for": [_blocker(blocker, places) for blocker in waits_for[:_SHOWN]],
        "waits_for_more": max(len(waits_for) - _SHOWN, 0),
        "since_ms": queued.since_ms,
        **describe_renewal(queued, round(time.time() * 1000)),
        "scopes": [
            {"mode": scope.mode.value, "partitions": scope.partitions and list(scope.partitions)}
            for scope in request.scopes
            if scope.table == table
        ],
        "token": ".".join(map(str, queued.order)),
        "id": request.id,
    }


def _blocker(blocker: Blocker, places: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    earlier, table = blocker.queued, blocker.theirs.table
    place = places[table, earlier.name]
    owner = describe_owner(earlier.request.owner)
    return {"table": table, "place": place, "owner": owner, "id": earlier.request.id}


def _print_text(described: Sequence[dict[str, Any]], show: Callable[[Rows], None]) -> None:
    if not described:
        print("The queue is empty.")
    for table, group in groupby(described, key=lambda line: line["table"]):
        print(table)
        show(_row(line) for line in group)


def _row(described: dict[str, Any]) -> dict[str, str]:
    scopes = described["scopes"]
    return {
        "place": str(described["place"]),
        "owner": described["owner"]["text"],
        "state": "\n".join((_state(described), f"task: {described['task_state'] or _UNKNOWN}")),
        "since": "\n".join((spell_time(described["since_ms"]), *described["renewal"])),
        "mode": "\n".join(scope["mode"] for scope in scopes),
        "partitions": "\n".join(_some(scope["partitions"] or ["the whole table"]) for scope in scopes),
        "token": described["token"],
        "id": described["id"],
    }


def _state(described: dict[str, Any]) -> str:
    places = [
        str(blocker["place"])
        if blocker["table"] == described["table"]
        else f"{blocker['place']} of {blocker['table']}"
        for blocker in described["waits_for"]
    ]
    if described["waits_for_more"]:
        places.append(f"and {described['waits_for_more']} more")
    return f"waits for {', '.join(places)}" if places else "holds"


def _some(shown: Sequence[str]) -> str:
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return "\n".join([*shown[:_SHOWN], *more])

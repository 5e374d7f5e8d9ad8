"""What a task without a scope changes each time, learned from its last runs."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.outcome import listed
from airflow_occ_provider.attempts.record import LearnedScope, TaskRecord
from airflow_occ_provider.attempts.scope import Claim
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.leases.rules import digest
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

LEAST_RUNS, MOST_RUNS = 2, 3
MOST_READ = 30
"""Of the table's newest commits: each is one request to the storage."""
MOST_GROUPS = 100
"""In a request to the lock service, which all waiting tasks read."""
_SHOWN = 5


def with_hint(claim: Claim, record: TaskRecord) -> Claim:
    """Return a claim with what its task run is expected to change.

    That is what it was about to write when it gave way, and what it has learned, if it learns.
    """
    scope = record.learned
    learned = scope.paths if claim.learns and scope and scope.table == claim.table else ()
    return replace(claim, hint=(*learned, *record.gave_way))


def learn(
    claim: Claim,
    options: Mapping[str, str],
    run: Journal,
    table: HudiTable,
    *,
    sign: Callable[[Snapshot], Signature],
    log: Any,
) -> None:
    """Record what a claim learns, once per task run.

    Only where Hudi's own check finds conflicts: a guess must not be the only protection.

    :param options: the job's effective Hudi options.
    :param sign: returns the signature that the task would write.
    """
    learned = run.record.learned
    if not claim.learns or not claim.is_fenced(options) or (learned and learned.table == claim.table):
        return
    steady: frozenset[FileGroupId] = frozenset()
    try:
        snapshot = table.snapshot(missing_ok=True)
        runs = changed_by_runs(_newest(snapshot), sign(snapshot))
        steady = steady_groups(runs)
        says = _found(steady, len(runs))
    except TableUnreadableError as error:
        says = f"nothing was learned of earlier runs: {error.message}"
    log.info("No scope was given; %s.", says)
    run.learn(LearnedScope(claim.table, paths_of(steady)))


def changed_by_runs(
    newest_first: Iterable[Commit], signature: Signature
) -> list[frozenset[FileGroupId]]:
    """Return what each of the last runs of a signature's task changed.

    A run may commit several times. New file groups do not count: no other writer has them. An overwrite
    makes new ones each time: the partitions that it replaced stand for them, with an empty file id.
    """
    runs: dict[str, frozenset[FileGroupId]] = {}
    for commit in newest_first:
        signed = Signature.from_extra(commit.metadata.extra)
        if signed is None or signed.task != signature.task or commit.metadata.wrote_nothing:
            continue
        if signed.identity not in runs and len(runs) == MOST_RUNS:
            break
        runs[signed.identity] = runs.get(signed.identity, frozenset()) | _changed(commit)
    return list(runs.values())


def steady_groups(runs: Sequence[frozenset[FileGroupId]]) -> frozenset[FileGroupId]:
    """Return the file groups that each of some runs changed; a single run shows none."""
    return frozenset.intersection(*runs) if len(runs) >= LEAST_RUNS else frozenset()


def paths_of(groups: Collection[FileGroupId]) -> tuple[str, ...]:
    """Return the paths of file groups, with hashed ids; empty if they are too many."""
    if len(groups) > MOST_GROUPS:
        return ()
    named = (posixpath.join(partition, digest(file) if file else "") for partition, file in groups)
    return tuple(sorted(named))


def _changed(commit: Commit) -> frozenset[FileGroupId]:
    replaced = commit.metadata.replaced
    changed = commit.metadata.changed(commit.instant.time) - replaced
    return changed.union((partition, "") for partition, _ in replaced)


def _newest(snapshot: Snapshot) -> Iterator[Commit]:
    for instant in islice(reversed(snapshot.timeline.completed_writes()), MOST_READ):
        metadata = snapshot.reader.commit(instant)
        # A table service copies the labels of the write that ran it. Other commits were archived since.
        if metadata is not None and not metadata.is_table_service:
            yield Commit(instant, metadata)


def _found(steady: frozenset[FileGroupId], runs: int) -> str:
    if runs < LEAST_RUNS:
        count = "none" if runs == 0 else "only one"
        return f"{count} of this task's runs is among the table's newest {MOST_READ} commits"
    each = f"each of the last {runs} runs of this task"
    if not steady:
        return f"no file group was changed by {each}"
    if len(steady) > MOST_GROUPS:
        return f"{each} changed the same {len(steady)} file groups, too many to be queued for"
    partitions = sorted({partition for partition, _ in steady})
    where = f" of {listed(partitions, _SHOWN, 40)}" if any(partitions) else ""
    return f"{each} changed the same files{where}: it is queued with other tasks that change them"

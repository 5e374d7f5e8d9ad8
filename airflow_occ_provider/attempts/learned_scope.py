"""What a task without a scope changes, learned from its last commits."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.failure import listed
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.record_parts import LearnedScope
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

LEAST_COMMITS, MOST_COMMITS = 2, 3
MOST_READ = 30
"""Of the table's newest commits: each is one request to the storage."""
MOST_PATHS = 100
"""In a request to the lock service, which all waiting tasks read."""
_SHOWN = 5


def with_hint(claim: Claim, learned: LearnedScope | None) -> Claim:
    """Return a claim with what its task run has learned, if it learns."""
    if not claim.learns or learned is None or learned.table != claim.table:
        return claim
    return replace(claim, hint=learned.paths)


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
    known = run.record.learned
    if not claim.learns or not claim.is_fenced(options) or (known and known.table == claim.table):
        return
    steady: frozenset[FileGroupId] = frozenset()
    try:
        snapshot = table.snapshot(missing_ok=True)
        commits = last_commits(_newest(snapshot), sign(snapshot))
        steady = steady_groups(commits)
        says = _found(steady, len(commits))
    except TableUnreadableError as error:
        says = f"nothing was learned of its last commits: {error.message}"
    log.info("No scope was given; %s.", says)
    run.learn(LearnedScope(claim.table, paths_of(steady)))


def last_commits(newest_first: Iterable[Commit], signature: Signature) -> list[Commit]:
    """Return the last writes of a signature's task, in any of its runs."""
    return list(islice((one for one in newest_first if _is_of(one.metadata, signature)), MOST_COMMITS))


def steady_groups(commits: Sequence[Commit]) -> frozenset[FileGroupId]:
    """Return the file groups that each of some commits changed.

    A single commit shows none. An overwrite makes new file groups each time: the partitions that it
    replaced stand for them, with an empty file id. New file groups do not count: no other writer has
    them.
    """
    if len(commits) < LEAST_COMMITS:
        return frozenset()
    return frozenset.intersection(*map(_changed, commits))


def paths_of(groups: Iterable[FileGroupId]) -> tuple[str, ...]:
    """Return the paths of file groups, or of their partitions if there are too many.

    None if there are too many partitions, too: a request would hold up most other writers.
    """
    groups = frozenset(groups)
    for some in (groups, frozenset((partition, "") for partition, _ in groups)):
        if len(some) <= MOST_PATHS:
            return tuple(sorted(posixpath.join(*one).rstrip("/") for one in some))
    return ()


def _changed(commit: Commit) -> frozenset[FileGroupId]:
    replaced = commit.metadata.replaced
    changed = commit.metadata.changed(commit.instant.time) - replaced
    return changed.union((partition, "") for partition, _ in replaced)


def _newest(snapshot: Snapshot) -> Iterator[Commit]:
    for instant in islice(reversed(snapshot.timeline.completed_writes()), MOST_READ):
        metadata = snapshot.reader.commit(instant)
        if metadata is not None:  # else it was archived since
            yield Commit(instant, metadata)


def _is_of(commit: CommitMetadata, signature: Signature) -> bool:
    # A table service copies the labels of the write that ran it.
    signed = Signature.from_extra(commit.extra)
    return signed is not None and signed.task == signature.task and not commit.is_table_service


def _found(steady: frozenset[FileGroupId], commits: int) -> str:
    if commits < LEAST_COMMITS:
        return f"of the table's newest {MOST_READ} commits {commits or 'none'} is of this task"
    each = f"each of the last {commits} commits of this task"
    if not steady:
        return f"no file group was changed by {each}"
    partitions = sorted({partition for partition, _ in steady})
    where = f" of {listed(partitions, _SHOWN, 40)}" if any(partitions) else ""
    if not paths_of(steady):
        return f"{each} changed the same {len(partitions)} partitions, too many to queue for"
    return f"{each} changed the same file groups{where}: it is queued with other tasks that do so"

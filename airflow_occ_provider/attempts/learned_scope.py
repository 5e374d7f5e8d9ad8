"""The scope that a task learns from its last commits, where none was declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.record_parts import LearnedScope
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.leases.rules import Scope
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

COMMITS = 3
MOST_READ = 30
"""Of the table's newest commits: each is one request to the storage."""
MOST_PARTITIONS = 100
"""A task that touches more would hold up most other writers for a guess."""


def with_hint(claim: Claim, learned: LearnedScope | None) -> Claim:
    """Return a claim with the scope that its task run has learned, if it learns."""
    if not claim.learns or learned is None or learned.table != claim.table:
        return claim
    return replace(claim, hint=learned.partitions or None)


def learn(
    claim: Claim,
    options: Mapping[str, str],
    run: Journal,
    table: HudiTable,
    *,
    sign: Callable[[Snapshot], Signature],
    log: Any,
) -> None:
    """Record the scope that a claim learns, once per task run.

    Only where Hudi's own check finds conflicts: a guess must not be the only protection.

    :param options: the job's effective Hudi options.
    :param sign: returns the signature that the task would write.
    """
    known = run.record.learned
    if not claim.learns or not claim.is_fenced(options) or (known and known.table == claim.table):
        return
    learned, says = LearnedScope(claim.table), ""
    try:
        snapshot = table.snapshot(missing_ok=True)
        commits = last_commits(_newest(snapshot), sign(snapshot))
        says = unusable(commits)
        if not says:
            learned = replace(learned, partitions=changed(commits))
            log.info("%s", _found(learned, len(commits)))
    except TableUnreadableError as error:
        says = error.message
    if says:
        log.info("No scope was given, and none was learned: %s.", says)
    run.learn(learned)


def last_commits(newest_first: Iterable[Commit], signature: Signature) -> list[Commit]:
    """Return the last writes of a signature's task, in any of its runs."""
    return list(islice((one for one in newest_first if _is_of(one.metadata, signature)), COMMITS))


def changed(commits: Iterable[Commit]) -> tuple[str, ...]:
    """Return the partitions in which commits changed file groups, sorted.

    No other writer has new ones: a task that only adds files loses to none.
    """
    return tuple(sorted({partition for one in commits for partition in one.changed_partitions}))


def unusable(commits: Sequence[Commit]) -> str:
    """Return why commits give no scope; empty if they give one."""
    partitions = changed(commits)
    if not commits:
        return f"none of the table's newest {MOST_READ} commits is of this task"
    if any(one.metadata.operation_type == "INSERT_OVERWRITE_TABLE" for one in commits):
        return "its last commits overwrote the whole table"
    if not all(partitions):
        return "the table is not partitioned"
    if not partitions:
        return "its last commits changed no file group"
    if len(partitions) > MOST_PARTITIONS:
        return f"its last commits changed {len(partitions)} partitions"
    return ""


def _newest(snapshot: Snapshot) -> Iterator[Commit]:
    for instant in islice(reversed(snapshot.timeline.completed_writes()), MOST_READ):
        metadata = snapshot.reader.commit(instant)
        if metadata is not None:  # else it was archived since
            yield Commit(instant, metadata)


def _is_of(commit: CommitMetadata, signature: Signature) -> bool:
    # A table service copies the labels of the write that ran it.
    signed = Signature.from_extra(commit.extra)
    return signed is not None and signed.task == signature.task and not commit.is_table_service


def _found(learned: LearnedScope, number: int) -> str:
    last = "last commit" if number == 1 else f"last {number} commits"
    extent = Scope.of(learned.table, learned.partitions).extent
    return f"No scope was given; the {last} of this task changed {extent}: requests these."

"""The scope that a writer requests before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.partition_path import rejection_reason
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, is_process_local
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Scope

_INDEX_OPTION = "hoodie.index.type"
_GLOBAL_INDEXES = frozenset(
    {"GLOBAL_BLOOM", "GLOBAL_SIMPLE", "HBASE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"}
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the user declared about a write.

    :param table: the table's canonical base path.
    :param partitions: what it will touch; ``None`` if that is not known.
    :param key_safe: whether two writers must not insert the same new key.
    :param reads_table: whether the job reads the table that it writes.
    """

    table: str
    partitions: tuple[str, ...] | None
    key_safe: bool
    reads_table: bool

    def refuse_impossible(self, table: TableConfig) -> None:
        """Refuse a partition that the table cannot have.

        :param table: its configuration; empty if there is no table yet.
        :raises ConfigurationError: with the path.
        """
        for path in self.partitions or ():
            found = rejection_reason(path, table) if table.exists else None
            if found:
                raise ConfigurationError(
                    "scope", f"{path!r} {found}", remedy="name partitions as they stand in the table"
                )

    def is_fenced(self, options: Mapping[str, str]) -> bool:
        """Whether Hudi's own check finds conflicts, so the lease only saves time.

        :param options: the job's effective Hudi options.
        """
        return not (
            self.key_safe or self.reads_table or is_process_local(options.get(LOCK_PROVIDER, ""))
        )

    def scope(self, options: Mapping[str, str], escalation: Sequence[str] | None) -> Scope:
        """Return the scope to request.

        :param options: the job's effective Hudi options.
        :param escalation: what an attempt that lost was about to write, empty for the whole table;
            ``None`` if none has lost.
        """
        if is_process_local(options.get(LOCK_PROVIDER, "")):
            return Scope.of(self.table, None)
        if self.key_safe and options.get(_INDEX_OPTION, "").upper() in _GLOBAL_INDEXES:
            return Scope.of(self.table, None)
        if not self.is_fenced(options):
            return Scope.of(self.table, self.partitions)
        if escalation is not None:
            partitions = (*(self.partitions or ()), *escalation) if escalation else None
            return Scope.of(self.table, partitions)
        mode = Mode.SHARED if self.partitions is None else Mode.EXCLUSIVE
        return Scope.of(self.table, self.partitions, mode)

    def beside(self, asked: Scope) -> tuple[Scope, ...]:  # noqa: ARG002
        """Return the other scopes of the same request.

        :param asked: the scope.
        """
        return ()

    def declared(self, options: Mapping[str, str]) -> Scope | None:
        """Return what is certainly written; ``None`` if it was not declared.

        :param options: the job's effective Hudi options.
        """
        return self.scope(options, None) if self.partitions else None


def inherited(
    scope: Scope, declared: Scope | None, owner: Owner, line: Sequence[QueuedRequest]
) -> Scope:
    """Return the scope that a writer requests under its run's own lease, if any.

    :param scope: what it would request without that lease.
    :param declared: what it declared that it writes; without a declaration it takes the lease's scope.
    :param owner: the writer.
    :param line: the requests of the writer's run for the table.
    """
    for one in line:
        if not _is_above(one, owner):
            continue
        held = [own for own in one.request.scopes if own.table == scope.table]
        if declared is None:
            return held[0] if held else scope
        return scope if any(own.covers(scope) for own in held) else declared
    return scope


def is_under_lease(owner: Owner, line: Sequence[QueuedRequest]) -> bool:
    """Whether a task's run has a lease of its own, which admits the task."""
    return any(_is_above(one, owner) for one in line)


def _is_above(one: QueuedRequest, owner: Owner) -> bool:
    return owner.is_within(one.request.owner) and owner.path != one.request.owner.path


def known_options(
    hudi: Mapping[str, str], spark: Mapping[str, object], table: TableConfig
) -> dict[str, str]:
    """Return the Hudi options of a job as far as they are known before it runs.

    :param hudi: every Hudi option that its driver receives.
    :param spark: Spark's settings, of which those with ``spark.hoodie.`` reach SQL writers.
    :param table: its configuration; a table with a record index is assumed to use it.
    """
    named = {key.removeprefix("spark."): str(value) for key, value in spark.items()}
    of_spark = {key: value for key, value in named.items() if key.startswith("hoodie.")}
    indexed = "record_index" in table.metadata_partitions
    of_table = {_INDEX_OPTION: "RECORD_INDEX"} if indexed else {}
    return {**of_table, **of_spark, **hudi}

"""The scope that a writer or a table service requests before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.conflict.strategy import INDEX_OPTION, STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.format.table_config import TableConfig, rejection_reason
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, is_process_local
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Scope

_UNHURT_SINCE = 9
_GLOBAL_INDEXES = frozenset(
    {"GLOBAL_BLOOM", "GLOBAL_SIMPLE", "HBASE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"}
)
_OPERATION = "hoodie.datasource.write.operation"
_SQL_OVERWRITE = "hoodie.datasource.overwrite.mode"
_OVERWRITES = frozenset({"insert_overwrite", "insert_overwrite_table"})
HINTS = "/.hoodie/hints"
"""What the path of a scope ends with that is a hint: it excludes only other hints of the table."""


class Isolation(StrEnum):
    """What a write is kept apart from.

    ``SNAPSHOT`` is Hudi's commit check, which compares file groups. It sees neither two inserts of the
    same new key nor a commit between a job's read and its write. A ``SERIALIZABLE`` write has its scope
    to itself.
    """

    SNAPSHOT = "snapshot"
    SERIALIZABLE = "serializable"


@dataclass(frozen=True, slots=True)
class Claim:
    """What the user declared about a write.

    Its methods take the job's effective Hudi options.

    :param partitions: what it will touch; ``None`` if that is not known.
    :param is_declared: whether the user named them; if not, the run's partition key does.
    :param isolation: from other writers of the table.
    :param learns: whether the last commits of the task may say more than an unknown scope.
    :param hint: paths that it is expected to change: file groups that each of its runs changed, and
        partitions of a write of this run that gave way; empty if none are known.
    :param overwrites: whether the job is known to overwrite partitions.
    """

    table: str
    partitions: tuple[str, ...] | None
    _: KW_ONLY
    is_declared: bool = True
    isolation: Isolation = Isolation.SNAPSHOT
    learns: bool = False
    hint: tuple[str, ...] = ()
    overwrites: bool = False

    def refuse_impossible(self, table: TableConfig) -> None:
        """Refuse a partition that the table cannot have.

        :param table: its configuration; empty if there is no table yet.
        """
        for path in (self.partitions or ()) if self.is_declared else ():
            problem = rejection_reason(path, table) if table.exists else None
            if problem:
                raise ConfigurationError(
                    "scope", f"{path!r} {problem}", remedy="name partitions as they stand in the table"
                )

    @property
    def is_serializable(self) -> bool:
        """Whether no other writer may commit to its scope while it runs."""
        return self.isolation is Isolation.SERIALIZABLE

    def is_fenced(self, options: Mapping[str, str]) -> bool:
        """Whether Hudi's own check finds conflicts, so the lease only saves time."""
        return not (self.is_serializable or is_process_local(options.get(LOCK_PROVIDER, "")))

    def scope(self, options: Mapping[str, str], escalation: Sequence[str] | None) -> Scope:
        """Return the scope to request.

        :param escalation: what an attempt that lost was about to write, empty for the whole table;
            ``None`` if none has lost.
        """
        if is_process_local(options.get(LOCK_PROVIDER, "")):
            return Scope.of(self.table, None)
        # Another partition may insert a key that a global index keeps unique.
        if self.is_serializable and options.get(INDEX_OPTION, "").upper() in _GLOBAL_INDEXES:
            return Scope.of(self.table, None)
        if not self.is_fenced(options):
            return Scope.of(self.table, self.partitions)
        if escalation is not None:
            partitions = (*(self.partitions or ()), *escalation) if escalation else None
            return Scope.of(self.table, partitions)
        # Hudi lets two overwrites of a partition commit side by side if it was empty, and keeps the rows
        # of both (1.2.0): what an overwrite of unknown scope replaces may be any partition.
        overwrites = self._overwrites(options)
        if overwrites and not self.is_declared:
            return Scope.of(self.table, None)
        shared = self.partitions is None and not overwrites
        return Scope.of(self.table, self.partitions, Mode.SHARED if shared else Mode.EXCLUSIVE)

    def _overwrites(self, options: Mapping[str, str]) -> bool:
        operation = options.get(_OPERATION, "").strip().lower()
        mode = options.get(_SQL_OVERWRITE, "").strip()
        return self.overwrites or bool(mode) or operation in _OVERWRITES

    def beside(self, scope: Scope) -> tuple[Scope, ...]:
        """Return the other scopes of the same request: a hint excludes only other hints."""
        is_hint = self.hint and scope.mode is Mode.SHARED
        return (Scope.of(f"{self.table}{HINTS}", self.hint),) if is_hint else ()

    def declared(self, options: Mapping[str, str]) -> Scope | None:
        """Return what is certainly written; ``None`` if it was not declared."""
        return self.scope(options, None) if self.partitions and self.is_declared else None


def service_mode(service: Service, *, prefers_writers: bool, table_version: int) -> Mode:
    """Return whether a table service may run beside writers of unknown scope.

    A clustering commits unchecked, and writers of its file groups are refused or lose. It checks, and
    yields, only if all prefer writers (Hudi 1.2.0, ``isPreCommitRequired``). A compaction always
    commits unchecked. From Hudi 1.1 on, whose tables have version 9, writers ignore it
    (``getCandidateInstantsV8AndAbove``); older writers, and those that prefer writers, lose to a
    compaction that was planned after they had begun.
    """
    if service is Service.CLUSTERING:
        return Mode.SHARED if prefers_writers else Mode.EXCLUSIVE
    unhurt = table_version >= _UNHURT_SINCE and not prefers_writers
    return Mode.SHARED if unhurt else Mode.EXCLUSIVE


@dataclass(frozen=True, slots=True)
class ServiceClaim(Claim):
    """A ``Claim`` of a table service."""

    service: Service
    table_version: int

    def scope(self, options: Mapping[str, str], escalation: Sequence[str] | None) -> Scope:
        """Return the scope to request; a service that has lost runs alone next time."""
        if is_process_local(options.get(LOCK_PROVIDER, "")):
            return Scope.of(self.table, None)
        mode = service_mode(
            self.service,
            prefers_writers=prefers_writers(options),
            table_version=self.table_version,
        )
        return Scope.of(self.table, self.partitions, mode if escalation is None else Mode.EXCLUSIVE)

    def beside(self, scope: Scope) -> tuple[Scope, ...]:
        """Return a scope that excludes only other services of the same kind.

        It is empty if the service runs alone. Two services that ran one plan would delete each other's
        files: Hudi rolls an inflight clustering back without a check whether a process runs it
        (1.2.0, ``BaseHoodieTableServiceClient.cluster``).
        """
        if scope.mode is Mode.EXCLUSIVE:
            return ()
        return (Scope.of(f"{self.table}/.hoodie/{self.service}", None),)

    def declared(self, options: Mapping[str, str]) -> Scope | None:
        """Return what is certainly touched.

        A compaction cannot be limited to a part of its table.
        """
        scope = self.scope(options, None)
        whole = self.service is Service.COMPACTION and scope.mode is Mode.EXCLUSIVE
        return scope if whole or self.partitions else None


def prefers_writers(options: Mapping[str, str]) -> bool:
    """Whether options choose the strategy by which services yield to writers."""
    return options.get(STRATEGY_OPTION) == Strategy.PREFER_WRITER.class_name


def inherited(scope: Scope, declared: Scope | None, leases: Sequence[QueuedRequest]) -> Scope:
    """Return the scope that a writer requests under its run's own lease, if any.

    :param scope: what it would request without that lease.
    :param declared: what it declared that it writes; without a declaration it takes the lease's scope.
    """
    if not leases:
        return scope
    held = [lease_scope for lease_scope in leases[0].request.scopes if lease_scope.table == scope.table]
    if declared is None:
        return held[0] if held else scope
    return scope if any(lease_scope.covers(scope) for lease_scope in held) else declared


def leases_above(owner: Owner, table: str, of_run: Iterable[QueuedRequest]) -> list[QueuedRequest]:
    """Return the leases of a task's run on a table that admit the task."""
    owners = ((lease, lease.request.owner) for lease in of_run if table in lease.request.tables)
    return [lease for lease, above in owners if owner.is_within(above) and owner.path != above.path]


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
    of_table = {INDEX_OPTION: "RECORD_INDEX"} if table.has_record_index else {}
    return {**of_table, **of_spark, **hudi}

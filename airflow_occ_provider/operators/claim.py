"""What a writer asks for before it starts: which partitions of the table, and whether alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.options import LOCK_PROVIDER, excludes_nobody
from airflow_occ_provider.hudi.partition_path import objection
from airflow_occ_provider.leases.rules import Mode, Owner, Scope, Standing

_INDEX_OPTION = "hoodie.index.type"
_GLOBAL_INDEXES = frozenset(
    {"GLOBAL_BLOOM", "GLOBAL_SIMPLE", "HBASE", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"}
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the user said of a write.

    :param table: the table's canonical base path.
    :param partitions: what it will touch; ``None`` where nobody knows.
    :param key_safe: whether new keys must not come twice.
    :param reads_table: whether the job reads the table that it writes.
    """

    table: str
    partitions: tuple[str, ...] | None
    key_safe: bool
    reads_table: bool

    def refuse_impossible(self, properties: Mapping[str, str]) -> None:
        """Refuse a partition that the table cannot have.

        :param properties: of the table, empty where there is none yet.
        :raises ConfigurationError: with the path.
        """
        for path in self.partitions or ():
            found = objection(path, properties) if properties else None
            if found:
                raise ConfigurationError(
                    "scope", f"{path!r} {found}", remedy="name partitions as they stand in the table"
                )

    def is_fenced(self, options: Mapping[str, str]) -> bool:
        """Whether Hudi's own check would find a conflict, so that the lease only saves time.

        :param options: the job's effective Hudi options.
        """
        return not (self.key_safe or self.reads_table or excludes_nobody(options.get(LOCK_PROVIDER, "")))

    def scope(self, options: Mapping[str, str], escalation: Sequence[str] | None) -> Scope:
        """Return what to ask for.

        :param options: the job's effective Hudi options.
        :param escalation: what an attempt that lost was about to write, empty for the whole table;
            ``None`` where none has lost.
        """
        if excludes_nobody(options.get(LOCK_PROVIDER, "")):
            return Scope.of(self.table, None)
        if self.key_safe and options.get(_INDEX_OPTION, "").upper() in _GLOBAL_INDEXES:
            return Scope.of(self.table, None)
        if self.partitions is not None or not self.is_fenced(options):
            return Scope.of(self.table, self.partitions)
        if escalation is not None:
            return Scope.of(self.table, escalation or None)
        return Scope.of(self.table, None, Mode.SHARED)


def inherited(scope: Scope, owner: Owner, line: Sequence[Standing]) -> Scope:
    """Return the scope of the run's own lease on the table, for a writer that named none.

    :param scope: what the writer would ask for.
    :param owner: the writer.
    :param line: who stands in line for the table.
    """
    for one in line:
        if owner.is_within(one.request.owner) and owner.path != one.request.owner.path:
            return next((own for own in one.request.scopes if own.table == scope.table), scope)
    return scope

"""What a table service asks for before it runs: decided by who would lose to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, is_process_local
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.leases.rules import Mode, Scope
from airflow_occ_provider.operators.claim import Claim

_UNHURT_SINCE = 9


def service_mode(service: Service, *, prefers_writers: bool, table_version: int) -> Mode:
    """Return whether a table service may run beside writers of unknown scope.

    A clustering commits unchecked, and writers of its file groups are refused or lose; only
    where all prefer writers does it check, and yield (Hudi 1.2.0, ``isPreCommitRequired``). A compaction
    always commits unchecked. From Hudi 1.1 on, whose tables have version 9, writers pass over it
    (``getCandidateInstantsV8AndAbove``); older ones, and those that prefer writers, lose to one that
    was planned after they had begun.

    :param service: the service.
    :param prefers_writers: whether the conflict resolution strategy is the preferring one.
    :param table_version: ``hoodie.table.version``.
    """
    if service is Service.CLUSTERING:
        return Mode.SHARED if prefers_writers else Mode.EXCLUSIVE
    unhurt = table_version >= _UNHURT_SINCE and not prefers_writers
    return Mode.SHARED if unhurt else Mode.EXCLUSIVE


@dataclass(frozen=True, slots=True)
class ServiceClaim(Claim):
    """A ``Claim`` of a table service.

    :param service: the service.
    :param table_version: ``hoodie.table.version``.
    """

    service: Service
    table_version: int

    def scope(self, options: Mapping[str, str], escalation: Sequence[str] | None) -> Scope:
        """Return what to ask for; a service that has lost runs alone the next time.

        :param options: the driver's effective Hudi options.
        :param escalation: whatever an attempt that lost was about to write; ``None`` where none has.
        """
        if is_process_local(options.get(LOCK_PROVIDER, "")):
            return Scope.of(self.table, None)
        mode = service_mode(
            self.service,
            prefers_writers=prefers_writers(options),
            table_version=self.table_version,
        )
        return Scope.of(self.table, self.partitions, mode if escalation is None else Mode.EXCLUSIVE)

    def beside(self, asked: Scope) -> tuple[Scope, ...]:
        """Return a place that only one service of a kind has at a time, where writers run beside it.

        Two that ran one plan would delete each other's files: Hudi rolls an inflight clustering back
        without a look whether somebody runs it (1.2.0, ``BaseHoodieTableServiceClient.cluster``).

        :param asked: the scope.
        """
        if asked.mode is Mode.EXCLUSIVE:
            return ()
        return (Scope.of(f"{self.table}/.hoodie/{self.service}", None),)

    def declared(self, options: Mapping[str, str]) -> Scope | None:
        """Return what surely is touched: a compaction cannot be kept to a part of its table.

        :param options: the driver's effective Hudi options.
        """
        asked = self.scope(options, None)
        whole = self.service is Service.COMPACTION and asked.mode is Mode.EXCLUSIVE
        return asked if whole or self.partitions else None


def prefers_writers(options: Mapping[str, str]) -> bool:
    """Whether options choose Hudi's strategy by which table services yield to writers."""
    return options.get(STRATEGY_OPTION) == Strategy.PREFER_WRITER.class_name

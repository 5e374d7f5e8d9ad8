"""The scopes that a table service requests, by which side would lose a conflict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, is_process_local
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.leases.rules import Mode, Scope

_UNHURT_SINCE = 9


def service_mode(service: Service, *, prefers_writers: bool, table_version: int) -> Mode:
    """Return whether a table service may run beside writers of unknown scope.

    A clustering commits unchecked, and writers of its file groups are refused or lose. It checks, and
    yields, only if all prefer writers (Hudi 1.2.0, ``isPreCommitRequired``). A compaction always
    commits unchecked. From Hudi 1.1 on, whose tables have version 9, writers ignore it
    (``getCandidateInstantsV8AndAbove``); older writers, and those that prefer writers, lose to a
    compaction that was planned after they had begun.

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
        """Return the scope to request; a service that has lost runs alone next time.

        :param options: the driver's effective Hudi options.
        :param escalation: what an attempt that lost was about to write; ``None`` if none has lost.
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
        """Return a scope that excludes only other services of the same kind.

        It is empty if the service runs alone. Two services that ran one plan would delete each other's
        files: Hudi rolls an inflight clustering back without a check whether a process runs it
        (1.2.0, ``BaseHoodieTableServiceClient.cluster``).

        :param asked: the scope.
        """
        if asked.mode is Mode.EXCLUSIVE:
            return ()
        return (Scope.of(f"{self.table}/.hoodie/{self.service}", None),)

    def declared(self, options: Mapping[str, str]) -> Scope | None:
        """Return what is certainly touched.

        A compaction cannot be limited to a part of its table.

        :param options: the driver's effective Hudi options.
        """
        asked = self.scope(options, None)
        whole = self.service is Service.COMPACTION and asked.mode is Mode.EXCLUSIVE
        return asked if whole or self.partitions else None


def prefers_writers(options: Mapping[str, str]) -> bool:
    """Whether options choose the strategy by which services yield to writers."""
    return options.get(STRATEGY_OPTION) == Strategy.PREFER_WRITER.class_name

"""``WriteSpec``: what a user wrote of a task, rendered and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.choices import choice
from airflow_occ_provider.attempts.claim import Claim, Isolation, ServiceClaim
from airflow_occ_provider.attempts.jobs import Job
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.write_policy import WritePolicy
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.retry import DEFAULT_BUDGETS
from airflow_occ_provider.storage.address import canonical_table, named_partitions
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """One task's work on a table, and how it is protected.

    Choices may be given by their names, and ``partitions`` as one path.

    :param table: base path of the table, as the user wrote it.
    :param job: what runs in the driver.
    :param partitions: the partitions that it will touch; ``None`` if they are unknown.
    :param isolation: whether Hudi's commit check decides, or the lease alone.
    :param service: the table service that it is, if it is one.
    :param policy: how it behaves beside other writers.
    :param is_queued: whether it holds a lease while it runs.
    :param wait_timeout: the longest wait in the queue, for rivals outside it, and for the driver of an
        earlier try.
    :param commits: how many commits the job makes.
    :param require_commit: whether a job that writes nothing fails; if ``None``, one that writes other
        tables only.
    :param is_deferrable: whether no process has to watch a driver that outlives it.
    :param deaths: how many tries may die together with their worker before the task fails.
    :param hudi_options: further Hudi options.
    :param conf: Spark's settings.
    :raises ConfigurationError: if a choice or a partition is none.
    """

    table: str
    job: Job
    _: KW_ONLY
    partitions: tuple[str, ...] | None = None
    isolation: Isolation = Isolation.SNAPSHOT
    service: Service | None = None
    policy: WritePolicy = field(default_factory=WritePolicy)
    is_queued: bool = True
    wait_timeout: timedelta = timedelta(hours=12)
    commits: Commits = Commits.ONE
    require_commit: bool | None = None
    is_deferrable: bool = True
    deaths: int = DEFAULT_BUDGETS["worker"]
    hudi_options: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What judges them compares by identity: a name would silently be another choice.
        object.__setattr__(self, "isolation", choice("isolation", Isolation, self.isolation))
        object.__setattr__(self, "commits", choice("commits", Commits, self.commits))
        object.__setattr__(self, "partitions", named_partitions(self.partitions))

    def claim(self, table: HudiTable, log: Any) -> Claim:
        """Return the claim of the task before it writes, with what its job implies.

        :raises ConfigurationError: if the job reads what it writes, and the task is not queued.
        """
        path = canonical_table(self.table)
        if self.service:
            return ServiceClaim(path, self.partitions, self.service, table.config().version)
        isolation = self._isolation(table, log)
        refuse_unqueued(isolation, is_queued=self.is_queued)
        useless = self._why_not_learned(isolation) if self.policy.learn_scope else ""
        if useless:
            log.info("learn_scope has no effect: %s.", useless)
        return Claim(
            path,
            self.partitions,
            isolation=isolation,
            learns=self.policy.learn_scope and not useless,
            overwrites=self.job.overwrites(table),
        )

    def _isolation(self, table: HudiTable, log: Any) -> Isolation:
        """Return the isolation, which a job that reads its table implies."""
        if self.isolation is Isolation.SERIALIZABLE or not (reason := self.job.reads(table)):
            return self.isolation
        log.info("isolation='serializable' is implied: %s. The task runs exclusively.", reason)
        return Isolation.SERIALIZABLE

    def _why_not_learned(self, isolation: Isolation) -> str:
        if self.partitions is not None:
            return "scope is given"
        if not self.job.signs:
            return "the job's commits are not signed"
        if isolation is Isolation.SERIALIZABLE:
            return "isolation='serializable' needs a scope that is certain"
        return "" if self.is_queued else "the task is not queued"


def refuse_unqueued(isolation: Isolation | str, *, is_queued: bool) -> None:
    """Refuse a writer that needs the queue and is not queued.

    :raises ConfigurationError: then.
    """
    if not is_queued and isolation == Isolation.SERIALIZABLE:
        raise ConfigurationError(
            "admission",
            "off, and isolation='serializable': only the queue keeps such a writer apart from others",
            remedy="leave admission out",
        )

"""What a user wrote of a task: its choices, its policy, and all as one value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.jobs import Job
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.scope import Claim, Isolation, ServiceClaim
from airflow_occ_provider.attempts.typed_values import duration, has_template, refuse_template, switch
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.conflict.strategy import INDEX_OPTION, STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.format.table_config import TableConfig, partition_of
from airflow_occ_provider.hudi.writer import early_detection
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.retry import DEFAULT_BUDGETS
from airflow_occ_provider.storage.address import canonical_table, named_partitions
from airflow_occ_provider.storage.table import HudiTable

Choice = TypeVar("Choice", bound=StrEnum)
_ELSEWHERE = (
    "would follow the driver beside the task, which follows and ends it itself",
    "leave it out",
)
_UNFIT = {
    "post_submit_commands": (
        "would run after every submission, also of a clean before the job, and before the table is read",
        "run them in a task after this one, with trigger_rule='all_done'",
    ),
    "track_driver_via_k8s_api": _ELSEWHERE,
    "yarn_track_via_rm_api": _ELSEWHERE,
}
_OWN = {
    "hoodie.write.concurrency.early.conflict": "early_conflict_detection",
    STRATEGY_OPTION: "conflict_resolution",
}


class AdmissionMode(StrEnum):
    """Whether a writer is queued for its table."""

    QUEUE = "queue"
    OFF = "off"


_OF_BOOL: dict[type[StrEnum], tuple[StrEnum, StrEnum]] = {
    AdmissionMode: (AdmissionMode.OFF, AdmissionMode.QUEUE),
    EarlyDetection: (EarlyDetection.OFF, EarlyDetection.ON),
    EarlyStop: (EarlyStop.OFF, EarlyStop.ACT),
}


def choice(field: str, choices: type[Choice], argument: object) -> Choice:
    """Return the choice that an argument of an operator names.

    :param argument: a choice or its name; of a choice that is a switch, also ``True`` and ``False``,
        or their text.
    :raises ConfigurationError: for anything else.
    """
    refuse_template(field, argument)
    if choices in _OF_BOOL and str(argument).strip().lower() in ("true", "false"):
        argument = _OF_BOOL[choices][switch(field, argument)]
    try:
        return choices(str(argument))
    except ValueError as error:
        names = ", ".join(repr(member.value) for member in choices)
        raise ConfigurationError(
            field, f"{argument!r} is not known", remedy=f"use one of {names}"
        ) from error


def resolution_choice(argument: object) -> Strategy | None:
    """Return the named conflict resolution strategy; ``None`` leaves it to Hudi."""
    return None if argument is None else choice("conflict_resolution", Strategy, argument)


def constant_options(argument: object) -> dict[str, Any]:
    """Return the Hudi options that are known when the DAG is parsed.

    Templates and XComs are not known by then.
    """
    options = argument if isinstance(argument, Mapping) else {}
    constant = (str, int, float)
    return {
        str(key): value
        for key, value in options.items()
        if isinstance(value, constant) and not has_template((key, value))
    }


def refuse_foreign(names: Iterable[str], foreign: Iterable[str], why: str) -> None:
    """Refuse arguments that an operator sets itself, or does not use.

    :raises ConfigurationError: with the first of them.
    """
    refused = sorted(set(foreign).intersection(names))
    if refused:
        raise ConfigurationError(refused[0], why, remedy="leave it out")


def refuse_unfit(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of ``SparkSubmitOperator`` that cannot be made safe.

    They exist from version 6.1 of the Spark provider on.

    :raises ConfigurationError: with the first of them, and the remedy.
    """
    for name, (why, remedy) in _UNFIT.items():
        if arguments.get(name):
            raise ConfigurationError(name, why, remedy=remedy)


@dataclass(frozen=True, slots=True, init=False)
class WritePolicy:
    """How a writer behaves beside the other writers of its table.

    One value serves all writers of a table::

        TRIPS = WritePolicy(conflict_resolution="prefer_writer", early_stop="observe")

    :param early_conflict_detection: whether Hudi looks for rivals while it writes, not only when it
        commits: ``"off"``, ``"on"`` (the strategy that suits the storage), or one of Hudi's own:
        ``"simple_direct"``, ``"transaction_direct"``, ``"timeline_server"``.
    :param conflict_resolution: Hudi's conflict resolution strategy: ``"simple"``, ``"bucket_index"``,
        or ``"prefer_writer"``, which all writers and table services of the table must share; by default
        the one that Hudi infers from the index.
    :param early_stop: what happens once it is certain that Hudi will refuse the commit, because a rival
        has completed, or once another task's earlier write turns out to overlap: ``"act"`` (the driver
        is ended, and the task queued), ``"observe"`` (it is logged, and compared with what Hudi then
        does), or ``"off"``. A trigger that watches the driver looks for completed rivals only.
    :param admission: ``"queue"`` to be queued for the table before the job runs, without a worker slot,
        or ``"off"`` to run at once.
    :param learn_scope: whether a task without ``scope`` is queued with other tasks that learn, if the
        last runs of each changed the same file groups. Hudi's check still decides. Not used with
        ``isolation="serializable"`` or a lock of one process.
    :param partition_key: whether the run's partition key, if it has one, is the scope of a task without
        ``scope``, where the table shows which partition it is.
    :param preflight_timeout: how long to wait at most, before the driver starts, for pending writes of
        others and clusterings in the job's partitions that it would lose to; then it starts all the
        same. ``timedelta(0)`` to start at once.
    :param standby: whether the driver of the next task in the queue is started while it waits, and warms
        up with a small write of its own. It takes a worker slot meanwhile. The job gets its session by
        ``SparkSession.builder.getOrCreate()``, and no static setting that it names there. In client
        mode, and not for a main class.
    """

    early_conflict_detection: EarlyDetection
    conflict_resolution: Strategy | None
    early_stop: EarlyStop
    admission: AdmissionMode
    learn_scope: bool
    partition_key: bool
    preflight_timeout: timedelta
    standby: bool

    def __init__(
        self,
        *,
        early_conflict_detection: EarlyDetection | bool | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        early_stop: EarlyStop | bool | str = EarlyStop.ACT,
        admission: AdmissionMode | bool | str = AdmissionMode.QUEUE,
        learn_scope: bool | str = False,
        partition_key: bool | str = True,
        preflight_timeout: timedelta | float = timedelta(hours=1),
        standby: bool | str = False,
    ) -> None:
        values = {
            "early_conflict_detection": choice(
                "early_conflict_detection", EarlyDetection, early_conflict_detection
            ),
            "conflict_resolution": resolution_choice(conflict_resolution),
            "early_stop": choice("early_stop", EarlyStop, early_stop),
            "admission": choice("admission", AdmissionMode, admission),
            "learn_scope": switch("learn_scope", learn_scope),
            "partition_key": switch("partition_key", partition_key),
            "preflight_timeout": duration("preflight_timeout", preflight_timeout),
            "standby": switch("standby", standby),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)  # frozen

    @classmethod
    def of(cls, value: WritePolicy | Mapping[str, Any] | None, site: Mapping[str, Any]) -> WritePolicy:
        """Return the policy that an argument names.

        :param value: a policy, which stands for itself; or single fields, or none, of which the site's
            policy has the others.
        :param site: the fields of the site's policy.
        :raises ConfigurationError: for a field that is unknown or wrong.
        """
        if isinstance(value, WritePolicy):
            return value
        if not isinstance(value or {}, Mapping):
            raise ConfigurationError(
                "policy",
                f"{value!r} is none",
                remedy="give a WritePolicy, or a dictionary of its fields",
            )
        chosen = {**site, **(value or {})}
        names = [field.name for field in fields(cls)]
        if unknown := sorted(set(chosen) - set(names)):
            raise ConfigurationError(
                "policy", f"{unknown[0]!r} is no field of it", remedy=f"use {', '.join(names)}"
            )
        return cls(**chosen)

    def refuse_contradictions(self, table: object, options: Mapping[str, Any]) -> None:
        """Refuse Hudi options that contradict it.

        :param table: base path of the table, or a template of it.
        :param options: as far as they are known.
        :raises ConfigurationError: with the first of them, and the remedy.
        """
        for key in options:
            field = next((name for start, name in _OWN.items() if str(key).startswith(start)), None)
            if field:
                raise ConfigurationError(
                    "hudi_options", f"{key} has a field of its own in policy", remedy=f"use {field}"
                )
        problem = early_detection.contradiction(self.early_conflict_detection, _scheme(table), options)
        if problem:
            raise ConfigurationError("early_conflict_detection", problem[0], remedy=problem[1])
        index = str(options.get(INDEX_OPTION, "BUCKET")).upper()
        strategy = self.conflict_resolution
        if strategy is Strategy.BUCKET_INDEX and index != "BUCKET":
            raise ConfigurationError(
                "conflict_resolution",
                f"{strategy} reads the bucket from each file's name, and {INDEX_OPTION} is {index}",
                remedy="use 'simple', or leave it out",
            )

    @property
    def is_queued(self) -> bool:
        """Whether its writers hold a lease while they run."""
        return self.admission is not AdmissionMode.OFF


def site_fields(text: str) -> dict[str, Any]:
    """Read the fields of a site's policy.

    :param text: a JSON object; empty for none.
    :raises ConfigurationError: if it is something else.
    """
    remedy = 'give a JSON object, such as {"early_stop": "observe"}'
    try:
        chosen = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigurationError("[hudi_occ] write_policy", str(error), remedy=remedy) from error
    if not isinstance(chosen, dict):
        raise ConfigurationError("[hudi_occ] write_policy", f"{text} is no object", remedy=remedy)
    return chosen


def _scheme(table: object) -> str | None:
    scheme, mark, _ = str(table).partition("://")
    return scheme if mark and "{{" not in scheme else None


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """One task's work on a table, and how it is protected.

    Choices may be given by their names, and ``partitions`` as one path.

    :param table: base path of the table, as the user wrote it.
    :param job: what runs in the driver.
    :param partitions: the partitions that it will touch; ``None`` if they are unknown.
    :param partition_key: the run's, which names the partition where ``partitions`` does not.
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
    partition_key: str = ""
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
        of_run = self._partition_of_run(table, isolation, log)
        useless = self._why_not_learned(isolation, of_run) if self.policy.learn_scope else ""
        if useless:
            log.info("learn_scope has no effect: %s.", useless)
        return Claim(
            path,
            self.partitions if of_run is None else (of_run,),
            is_declared=of_run is None,
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

    def _partition_of_run(self, table: HudiTable, isolation: Isolation, log: Any) -> str | None:
        """Return the partition of the run's partition key, where no scope is given.

        It is not proven that the job writes nothing else. So it is none where the scope alone keeps
        other writers away.
        """
        is_wanted = self.policy.partition_key and self.is_queued
        if self.partitions is not None or not (self.partition_key and is_wanted):
            return None
        if isolation is Isolation.SERIALIZABLE:
            why = "isolation='serializable' needs a scope that is certain"
        elif not (config := table.config()).exists:
            why = "there is no table yet"
        else:
            # Hudi does not keep each of these options with the table.
            options = {key: str(value) for key, value in self.hudi_options.items()}
            partition = partition_of(self.partition_key, TableConfig({**config.properties, **options}))
            if partition is not None:
                log.info("The scope is %s, by the run's partition key.", partition)
                return partition
            why = "it is no value of a single partition field"
        log.info("The run's partition key %r is not taken for the scope: %s.", self.partition_key, why)
        return None

    def _why_not_learned(self, isolation: Isolation, of_run: str | None) -> str:
        if self.partitions is not None or of_run is not None:
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

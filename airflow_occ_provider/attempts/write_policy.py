"""``WritePolicy``: how a writer behaves beside the other writers of its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.choices import AdmissionMode, choice, resolution_choice
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.typed_values import duration, switch
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.conflict.strategy import INDEX_OPTION, STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.writer import early_detection
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection

_OWN = {
    "hoodie.write.concurrency.early.conflict": "early_conflict_detection",
    STRATEGY_OPTION: "conflict_resolution",
}


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
    :param preflight_timeout: how long to wait at most, before the driver starts, for pending writes of
        others and clusterings in the job's partitions that it would lose to; then it starts all the
        same. ``timedelta(0)`` to start at once.
    """

    early_conflict_detection: EarlyDetection
    conflict_resolution: Strategy | None
    early_stop: EarlyStop
    admission: AdmissionMode
    learn_scope: bool
    preflight_timeout: timedelta

    def __init__(
        self,
        *,
        early_conflict_detection: EarlyDetection | bool | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        early_stop: EarlyStop | bool | str = EarlyStop.ACT,
        admission: AdmissionMode | bool | str = AdmissionMode.QUEUE,
        learn_scope: bool | str = False,
        preflight_timeout: timedelta | float = timedelta(hours=1),
    ) -> None:
        values = {
            "early_conflict_detection": choice(
                "early_conflict_detection", EarlyDetection, early_conflict_detection
            ),
            "conflict_resolution": resolution_choice(conflict_resolution),
            "early_stop": choice("early_stop", EarlyStop, early_stop),
            "admission": choice("admission", AdmissionMode, admission),
            "learn_scope": switch("learn_scope", learn_scope),
            "preflight_timeout": duration("preflight_timeout", preflight_timeout),
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

"""``HudiHeartbeatSensor``: waits until a table's writers reach a fate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import PokeReturnValue
from airflow.triggers.base import StartTriggerArgs

from airflow_occ_provider.attempts.record import INSTANTS_KEY
from airflow_occ_provider.attempts.typed_values import switch, whole_number
from airflow_occ_provider.errors import ConfigurationError, TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.fate import ENDED, Awaited, Fate, Match
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    HeartbeatRule,
)
from airflow_occ_provider.sensors.base import DEFERRABLE, HudiSensor
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger, parse_instants, writer_payload

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiHeartbeatSensor(HudiSensor):
    """A sensor that waits until the writers of a table have reached a fate.

    Default: until no writer renews its heartbeat any more. A writer is dead if Hudi's lazy cleaner with
    the same interval and misses would consider it dead. The result is a list of the writers,
    each with ``instant``, ``action``, ``fate`` and ``last_tick_ms``::

        HudiHeartbeatSensor(task_id="quiet", table="s3a://lake/trips", deferrable=True)

    A kill or a time-out ends the wait. A retry or a clear looks anew, at the writers of that moment.

    :param table: base path of the table. (templated)
    :param instants: requested times of the writes to watch. Default: all pending writes. (templated)
    :param writer_task_id: id of an unmapped ``HudiWriteOperator`` of the same run; its writes are
        watched instead. (templated)
    :param until: the fates to wait for: ``"alive"``, ``"late"``, ``"dead"``, ``"committed"``,
        ``"rolled_back"``, ``"gone"``.
    :param match: ``"all"`` to wait for all of the writers, ``"any"`` for one of them.
    :param storage_conn_id: Airflow connection of the table's storage. Default: the worker's or
        triggerer's own credentials. (templated)
    :param interval_ms: ``hoodie.client.heartbeat.interval_in_ms`` of the table's writers.
    :param tolerable_misses: ``hoodie.client.heartbeat.tolerable.misses`` of the table's writers.
    :param poke_interval: seconds between two checks. Default: a quarter of the interval.
    :param deferrable: whether to wait in the triggerer, with one shared listing per table.
    :param start_from_trigger: whether to start in the triggerer, without a worker slot; requires
        ``deferrable``. A mapped task still uses a slot for its first check.
    """

    template_fields: Sequence[str] = ("table", "instants", "writer_task_id", "storage_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"instants": "json"}
    # None on the class: a mapped task would start its trigger with these arguments only (Airflow 3.3.2).
    start_trigger_args: StartTriggerArgs | None = None
    start_from_trigger = False

    def __init__(
        self,
        *,
        table: str,
        instants: str | Sequence[str] | None = None,
        writer_task_id: str | None = None,
        until: Sequence[Fate | str] = ENDED,
        match: Match | str = Match.ALL,
        storage_conn_id: str | None = None,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        tolerable_misses: int = DEFAULT_TOLERABLE_MISSES,
        poke_interval: float | timedelta | None = None,
        deferrable: bool = DEFERRABLE,
        start_from_trigger: bool = False,
        **kwargs: Any,
    ) -> None:
        interval_ms = whole_number("interval_ms", interval_ms, at_least=1)
        tolerable_misses = whole_number("tolerable_misses", tolerable_misses, at_least=1)
        super().__init__(poke_interval=poke_interval or interval_ms / 4000, **kwargs)
        self.table = table
        self.instants = instants
        self.writer_task_id = writer_task_id
        self.until = until
        self.match = match
        self.storage_conn_id = storage_conn_id
        self.interval_ms = interval_ms
        self.tolerable_misses = tolerable_misses
        self.deferrable = deferrable
        self.start_from_trigger = switch("start_from_trigger", start_from_trigger) and switch(
            "deferrable", deferrable
        )
        self._awaited = awaited(until, match)
        self._logged: str | None = None
        if instants is None and writer_task_id is None and self._awaited.is_never_pending:
            raise ConfigurationError(
                "until",
                "without instants only pending writes are watched, and none of those has ended",
                remedy="set instants or writer_task_id, or use match='all'",
            )
        self.take_arguments()
        if self.start_from_trigger:
            path, arguments = self._trigger().serialize()
            self.start_trigger_args = StartTriggerArgs(
                trigger_cls=path,
                next_method=self.execute_complete.__name__,
                trigger_kwargs=arguments,
                timeout=timedelta(seconds=self.timeout),
            )

    def trigger(self, context: Context, deadline_ms: int) -> HudiHeartbeatTrigger:  # noqa: ARG002
        """Return the trigger that waits for the fate."""
        return self._trigger(deadline_ms)

    def complete(self, context: Context, event: Mapping[str, Any]) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return the writers of the trigger's event."""
        writers: list[dict[str, Any]] = event["writers"]
        self._log_fates(writers)
        return writers

    def unmet(self) -> str:
        """Return that the writers have not reached the fate."""
        return f"the writers of {self.table} were not {' or '.join(self._awaited.until)}"

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the writers; a table that cannot be read is retried."""
        published = self.writer_task_id and context["ti"].xcom_pull(
            task_ids=self.writer_task_id, key=INSTANTS_KEY
        )
        if self.writer_task_id and not published:
            self.log.info("Task %s has not published an instant yet.", self.writer_task_id)
            return PokeReturnValue(is_done=False)
        wanted = parse_instants(published or self.instants)
        try:
            observation = self._watch.observe()
            writers = list(
                observation.pending.values() if wanted is None else map(observation.writer, wanted)
            )
        except TableUnreadableError as error:
            self.log.warning("The table cannot be read, retrying: %s", error)
            return PokeReturnValue(is_done=False)
        reached = self._awaited.reached(writers)
        if reached is None:
            self._log_fates([writer_payload(writer) for writer in writers])
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=[writer_payload(writer) for writer in reached])

    def _log_fates(self, writers: Sequence[Mapping[str, Any]]) -> None:
        fates = ", ".join(f"{writer['instant']} is {writer['fate']}" for writer in writers)
        if fates != self._logged:
            self.log.info("%s.", fates or "No write is pending")
        self._logged = fates

    @cached_property
    def _watch(self) -> WriterWatch:
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        return WriterWatch(open_table(self.table, self.storage_conn_id), rule)

    def _trigger(self, deadline_ms: int = 0) -> HudiHeartbeatTrigger:
        return HudiHeartbeatTrigger(
            table=self.table,
            storage_conn_id=self.storage_conn_id,
            instants=self.instants,
            writer_task_id=self.writer_task_id,
            until=self._awaited.until,
            match=self._awaited.match,
            poll_s=self.poke_interval,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
            deadline_ms=deadline_ms,
        )


def awaited(until: Sequence[Fate | str], match: Match | str) -> Awaited:
    """Return the fates to wait for.

    :raises ConfigurationError: if a fate or the match is unknown.
    """
    try:
        return Awaited(tuple(map(Fate, until)), Match(match))
    except ValueError as error:
        raise ConfigurationError(
            "until, match",
            str(error),
            remedy=f"use {', '.join(Fate)}; and {' or '.join(Match)}",
        ) from error

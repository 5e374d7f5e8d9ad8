"""``HudiTableIdleSensor``: waits until no live writer may touch a scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_occ_provider.attempts.rivals import busy_writers
from airflow_occ_provider.attempts.typed_values import whole_number
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    HeartbeatRule,
)
from airflow_occ_provider.sensors.base import DEFERRABLE, HudiSensor
from airflow_occ_provider.storage.address import named_partitions
from airflow_occ_provider.triggers.idle import HudiTableIdleTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiTableIdleSensor(HudiSensor):
    """A sensor that waits until no live writer may touch a part of a table.

    It sees all writers with heartbeats, also those without this provider; compactions and clusterings do
    not count. It keeps no writer away: for that, take a lease::

        HudiTableIdleSensor(task_id="idle", table="s3a://lake/trips", scope=["dt={{ ds }}"])

    A kill or a time-out ends the wait. A retry or a clear looks anew.

    :param table: base path of the table. (templated)
    :param scope: partition paths, each with everything below it. Default: the whole table. A writer that
        has not planned its work yet may touch any. (templated)
    :param storage_conn_id: Airflow connection of the table's storage. Default: the worker's or
        triggerer's own credentials. (templated)
    :param interval_ms: ``hoodie.client.heartbeat.interval_in_ms`` of the table's writers.
    :param tolerable_misses: ``hoodie.client.heartbeat.tolerable.misses`` of the table's writers.
    :param poke_interval: seconds between two listings. Default: a quarter of the interval.
    :param deferrable: whether to wait in the triggerer, with one shared listing per table.
    """

    template_fields: Sequence[str] = ("table", "scope", "storage_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"scope": "json"}

    def __init__(
        self,
        *,
        table: str,
        scope: str | Sequence[str] | None = None,
        storage_conn_id: str | None = None,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        tolerable_misses: int = DEFAULT_TOLERABLE_MISSES,
        poke_interval: float | None = None,
        deferrable: bool = DEFERRABLE,
        **kwargs: Any,
    ) -> None:
        interval_ms = whole_number("interval_ms", interval_ms, at_least=1)
        tolerable_misses = whole_number("tolerable_misses", tolerable_misses, at_least=1)
        super().__init__(poke_interval=poke_interval or interval_ms / 4000, **kwargs)
        self.table = table
        self.scope = scope
        self.storage_conn_id = storage_conn_id
        self.interval_ms = interval_ms
        self.tolerable_misses = tolerable_misses
        self.deferrable = deferrable
        self.take_arguments()

    def trigger(self, context: Context, deadline_ms: int) -> HudiTableIdleTrigger:  # noqa: ARG002
        """Return the trigger that waits until no writer is live."""
        return HudiTableIdleTrigger(
            table=self.table,
            storage_conn_id=self.storage_conn_id,
            partitions=named_partitions(self.scope),
            poll_s=self.poke_interval,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
            deadline_ms=deadline_ms,
        )

    def complete(self, context: Context, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Log that no writer is live."""
        self.log.info("No live writer.")

    def unmet(self) -> str:
        """Return that the table was not idle."""
        return f"{self.table} was not idle"

    def poke(self, context: Context) -> bool:  # noqa: ARG002
        """Return whether no writer is live; a table that cannot be read is retried."""
        rule = HeartbeatRule(self.interval_ms, self.tolerable_misses)
        try:
            table = open_table(self.table, self.storage_conn_id)
            busy = busy_writers(table, named_partitions(self.scope), rule)
        except TableUnreadableError as error:
            self.log.warning("The table cannot be read, retrying: %s", error)
            return False
        self.log.info("Live: %s.", ", ".join(busy) or "no writer")
        return not busy

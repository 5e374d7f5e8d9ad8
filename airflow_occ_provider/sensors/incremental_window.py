"""``HudiIncrementalWindowSensor``: waits until a consumer has commits to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import PokeReturnValue

from airflow_occ_provider.assets.consumers import Consumer, consumer_asset
from airflow_occ_provider.errors import (
    ConfigurationError,
    HistoryUnreadableError,
    TableUnreadableError,
)
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.sensors.base import DEFERRABLE, HudiSensor
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.incremental import incremental_read
from airflow_occ_provider.triggers.commit import (
    DEFAULT_POLL_S,
    HudiIncrementalWindowTrigger,
    why_empty,
    window_facts,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiIncrementalWindowSensor(HudiSensor):
    """A sensor that waits until a consumer of a table has commits to read.

    The window is that of ``HudiIncrementalReadOperator`` and of ``HudiTableHook.incremental_window``.
    The result has its ``table``, ``commits``, ``start`` and ``end``. The sensor moves no checkpoint. A
    table that does not exist yet is waited for::

        HudiIncrementalWindowSensor(task_id="ready", table="s3a://lake/trips", consumer="fares")

    A kill or a time-out ends the wait. A retry or a clear looks anew, from the checkpoint of that
    moment.

    :param table: base path of the table. (templated)
    :param consumer: name of the consumer whose kept checkpoint counts. Its asset becomes an inlet of the
        task. Without a checkpoint it reads from the beginning of the table.
    :param since: instead of ``consumer``, a checkpoint as JSON, as from ``Checkpoint.to_json``; ``null``
        for nothing read yet. (templated)
    :param storage_conn_id: Airflow connection of the table's storage. Default: the worker's or
        triggerer's own credentials. (templated)
    :param poke_interval: seconds between two listings; in the triggerer all of a table share them.
    :param deferrable: whether to wait in the triggerer.
    :param inlets: further inlets.
    """

    template_fields: Sequence[str] = ("table", "since", "storage_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"since": "json"}

    def __init__(
        self,
        *,
        table: str,
        consumer: str | None = None,
        since: str | Mapping[str, Any] | None = None,
        storage_conn_id: str | None = None,
        poke_interval: float = DEFAULT_POLL_S,
        deferrable: bool = DEFERRABLE,
        inlets: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        all_inlets = [*(inlets or ()), *([consumer_asset(consumer)] if consumer else [])]
        super().__init__(poke_interval=poke_interval, inlets=all_inlets, **kwargs)
        self.table = table
        self.consumer = consumer
        self.since = since
        self.storage_conn_id = storage_conn_id
        self.deferrable = deferrable
        self.take_arguments()
        if (consumer is None) == (since is None):
            raise ConfigurationError(
                "consumer",
                "either a consumer or a checkpoint is needed",
                remedy="give consumer or since",
            )

    def trigger(self, context: Context, deadline_ms: int) -> HudiIncrementalWindowTrigger:
        """Return the trigger that waits for commits after the checkpoint."""
        since = self._checkpoint(context)
        return HudiIncrementalWindowTrigger(
            table=self.table,
            storage_conn_id=self.storage_conn_id,
            since=since.to_json() if since else None,
            poll_s=self.poke_interval,
            deadline_ms=deadline_ms,
        )

    def complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the window of the trigger's event."""
        return self._done(event["window"])

    def unmet(self) -> str:
        """Return that there was nothing to read."""
        return f"{self.table} had nothing to read"

    def poke(self, context: Context) -> PokeReturnValue:
        """Look at the window; a table that cannot be read is retried.

        :raises CheckpointLostError: if the table has none of the commits that were read.
        """
        since = self._checkpoint(context)
        try:
            window = incremental_read(open_table(self.table, self.storage_conn_id), since).window
        except HistoryUnreadableError:
            raise
        except TableUnreadableError as error:
            self.log.warning("The table cannot be read, retrying: %s", error)
            return PokeReturnValue(is_done=False)
        if not window.commits:
            self.log.info("%s", why_empty(window))
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._done(window_facts(self.table, window)))

    def _checkpoint(self, context: Context) -> Checkpoint | None:
        if self.consumer is not None:
            state = context["asset_state_store"][consumer_asset(self.consumer)]
            return Consumer(self.consumer, state, canonical_table(self.table)).checkpoint()
        try:
            values = json.loads(self.since) if isinstance(self.since, str) else self.since
            return None if values is None else Checkpoint.from_json(values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                "since",
                f"{self.since!r} is no checkpoint: {error}",
                remedy="give what Checkpoint.to_json returns, as JSON",
            ) from error

    def _done(self, window: dict[str, Any]) -> dict[str, Any]:
        self.log.info("%d commits can be read, up to %s.", len(window["commits"]), window["end"])
        return window

"""``HudiLeaseSensor``: waits until a scope is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Scope, conflicting
from airflow_occ_provider.sensors.base import DEFERRABLE, HudiSensor
from airflow_occ_provider.storage.address import canonical_table, named_partitions
from airflow_occ_provider.triggers.lease import HudiFreeScopeTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

_OBSERVED = "hudi_lease_sensor"


class HudiLeaseSensor(HudiSensor):
    """A sensor that waits until no lease or request conflicts with a scope.

    It does not reserve the scope: to keep other writers away, take a lease::

        HudiLeaseSensor(task_id="free", table="s3a://lake/trips", scope=["dt={{ ds }}"])

    It has no request in the queue, so a kill or a time-out leaves nothing. A retry or a clear looks
    anew.

    :param table: base path of the table. (templated)
    :param scope: partition paths; ``None`` for the whole table. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param deferrable: whether to wait in the triggerer.
    """

    template_fields: Sequence[str] = ("table", "scope", "lock_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"scope": "json"}

    def __init__(
        self,
        *,
        table: str,
        scope: str | Sequence[str] | None = None,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        deferrable: bool = DEFERRABLE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.scope = scope
        self.lock_conn_id = lock_conn_id
        self.deferrable = deferrable
        self.take_arguments()
        self._service: Queue | None = None

    def execute(self, context: Context) -> None:
        """Check once, then wait in the worker or in the triggerer."""
        try:
            super().execute(context)
        finally:
            self._close()

    def trigger(self, context: Context, deadline_ms: int) -> HudiFreeScopeTrigger:  # noqa: ARG002
        """Return the trigger that waits until the scope is free."""
        return HudiFreeScopeTrigger(
            lock_conn_id=self.lock_conn_id,
            table=self._wanted.table,
            partitions=self._wanted.partitions,
            poll_s=self.poke_interval,
            deadline_ms=deadline_ms,
        )

    def complete(self, context: Context, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Log that the scope is free."""
        self.log.info("Free: %s.", self._wanted)

    def unmet(self) -> str:
        """Return that the scope was not free."""
        return f"{self._wanted} was not free"

    def poke(self, context: Context) -> bool:
        """Return whether the scope is free; an unavailable lock service is retried."""
        table = self._wanted.table
        # Each poke of a rescheduled sensor is a process of its own, and no process sees a request expire
        # that it looks at once.
        store = context["task_state_store"] if self.reschedule else None
        try:
            if self._service is None:
                self._service = lock_hook(self.lock_conn_id).leases()
                if store is not None and isinstance(observed := store.get(_OBSERVED), dict) and observed:
                    self._service.recall(observed)
            others = conflicting(self._wanted, self._service.live_requests(table))
            if store is not None and others:
                store.set(_OBSERVED, self._service.observations(table), retention=NEVER_EXPIRE)
        except LockUnreachableError as error:
            if store is not None:  # the owners may have been unable to renew, too
                store.set(_OBSERVED, {}, retention=NEVER_EXPIRE)
            self.log.warning("%s", error)
            return False
        if others:
            self.log.info("Not free, %s: %s.", self._wanted, "; ".join(map(str, others[:3])))
        return not others

    def _close(self) -> None:
        if self._service:
            self._service.close()
            self._service = None

    @property
    def _wanted(self) -> Scope:
        return Scope.of(canonical_table(self.table), named_partitions(self.scope))

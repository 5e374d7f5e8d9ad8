"""What the sensors share: one look, then a wait in the worker or in the triggerer."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowSensorTimeout

from airflow_occ_provider.errors import OccError
from airflow_occ_provider.task.arguments import TypedArguments
from airflow_occ_provider.triggers.base import WaitingTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
"""Whether Airflow's configuration has sensors wait in the triggerer."""


class HudiSensor(TypedArguments, BaseSensorOperator):
    """The base of the sensors: looks once, then waits in the worker or the triggerer.

    A subclass has ``poke``, and the three methods below.
    """

    ui_color = "#d6ecf7"
    deferrable: bool

    def execute(self, context: Context) -> Any:
        """Look once, then wait in the worker or in the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        result = self.poke(context)
        if not result:
            deadline_ms = round((time.time() + self.timeout) * 1000)
            trigger = self.trigger(context, deadline_ms)
            self.defer(trigger=trigger, method_name=self.execute_complete.__name__)
        return result.xcom_value if isinstance(result, PokeReturnValue) else None

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the result of the trigger's event.

        :raises AirflowSensorTimeout: if it did not come in time.
        :raises OccError: if it cannot be waited for.
        """
        if event["status"] == "timeout":
            raise AirflowSensorTimeout(f"{self.unmet()} within {self.timeout:g} s")
        if event["status"] == "error":
            raise OccError(event["message"])
        return self.complete(context, event)

    @abstractmethod
    def trigger(self, context: Context, deadline_ms: int) -> WaitingTrigger:
        """Return the trigger that waits in place of the worker.

        :param deadline_ms: epoch milliseconds at which it times out.
        """

    @abstractmethod
    def complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the result of an event, and log it."""

    @abstractmethod
    def unmet(self) -> str:
        """Return what has not happened, for the message of a time-out."""

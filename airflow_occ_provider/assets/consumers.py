"""The checkpoints of consumers, each in the state of an asset of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException

from airflow_occ_provider.errors import (
    CheckpointLostError,
    ConfigurationError,
    OccError,
    StateStoreError,
)
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor

CONSUMER_PREFIX = "hudi_consumer_"
CHECKPOINT_KEY = "hudi_checkpoint"
READS = "incremental reads"


def consumer_asset(consumer: str) -> Asset:
    """Return the asset that keeps a consumer's checkpoint."""
    return Asset(f"{CONSUMER_PREFIX}{consumer}")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of one table, with its checkpoint.

    :param state: of its asset.
    :param table: canonical base path of the table.
    :param purpose: for what it consumes the commits; two purposes need two consumers.
    """

    name: str
    state: AssetStateStoreAccessor
    table: str
    purpose: str = READS

    def checkpoint(self) -> Checkpoint | None:
        """Return what it has read; ``None`` for nothing yet.

        :raises ConfigurationError: if it has read another table, or for another purpose.
        :raises CheckpointLostError: if its checkpoint was written by another release.
        """
        record = self.state.get(CHECKPOINT_KEY)
        if not isinstance(record, dict):
            return None
        if record.get("table") != self.table:
            raise ConfigurationError(
                "consumer",
                f"{self.name!r} reads {record.get('table')}, not {self.table}",
                remedy="name another consumer, or set its checkpoint for this table with `airflow hudi "
                "checkpoints set`",
            )
        if record.get("purpose", self.purpose) != self.purpose:
            raise ConfigurationError(
                "consumer",
                f"{self.name!r} has the checkpoint of {record['purpose']}, not of {self.purpose}",
                remedy="name another consumer, or set it with `airflow hudi checkpoints set`",
            )
        return read_checkpoint(self.name, record)

    def move(self, before: Checkpoint | None, after: Checkpoint) -> None:
        """Record what it has read.

        :param before: what it had read when the window was planned.
        :raises ConfigurationError: if another run has moved the checkpoint since.
        :raises StateStoreError: if Airflow does not store it.
        """
        self.refuse_moved(before, after)
        self.keep(after)

    def refuse_moved(self, before: Checkpoint | None, after: Checkpoint) -> None:
        """Raise if another run has moved the checkpoint since a window was planned.

        :raises ConfigurationError: then.
        """
        if self.checkpoint() not in (before, after):
            raise ConfigurationError(
                "consumer",
                f"another run of {self.name!r} has moved its checkpoint since this one planned what to "
                "read: both may have read the same rows",
                remedy="let one run at a time read (max_active_runs=1); a run that failed is not to be "
                "cleared after a later one has read its commits",
            )

    def keep(self, checkpoint: Checkpoint | None) -> None:
        """Store a checkpoint, also an unchanged one: a job must not run if that fails.

        :param checkpoint: ``None`` for nothing read yet.
        :raises StateStoreError: if Airflow does not store it.
        """
        self.store(CHECKPOINT_KEY, {**consumer_state(self.table, checkpoint), "purpose": self.purpose})

    def store(self, key: str, value: dict[str, Any]) -> None:
        """Store something with its asset.

        :raises StateStoreError: if Airflow does not store it.
        """
        try:
            self.state.set(key, value)
        except Exception as error:
            raise StateStoreError(
                f"the state of the consumer {self.name!r} was not stored: {error}",
                remedy="Airflow stores the state of an asset once its scheduler has seen the DAG, which "
                "takes up to a minute; then the next try succeeds",
            ) from error


@contextmanager
def failing_for_good() -> Iterator[None]:
    """Let Airflow not retry a task whose error no retry removes.

    :raises AirflowFailException: for such an error.
    """
    try:
        yield
    except OccError as error:
        if error.retry:
            raise
        raise AirflowFailException(str(error)) from error


def consumer_state(table: str, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return what is stored of a consumer."""
    return {"table": table, "checkpoint": checkpoint.to_json() if checkpoint else None}


def read_checkpoint(consumer: str, record: dict[str, Any]) -> Checkpoint | None:
    """Return the checkpoint in the stored state of a consumer.

    :raises CheckpointLostError: if it was written by another release.
    """
    try:
        return Checkpoint.from_json(record["checkpoint"]) if record["checkpoint"] else None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointLostError(
            f"the checkpoint of the consumer {consumer!r} cannot be read: {error}",
            remedy="use the release of this provider that wrote it, or set it with `airflow hudi "
            "checkpoints set`",
        ) from error

"""``HudiCommitSensor``: waits until a writer has committed to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import NEVER_EXPIRE, PokeReturnValue  # type: ignore[attr-defined]

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.reading.new_commits import CommitFilter, beginning, event_of, new_commits
from airflow_occ_provider.sensors.base import DEFERRABLE, HudiSensor
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers.commit import DEFAULT_POLL_S, HudiCommitTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

_SINCE_KEY = "hudi_commit_sensor"


class HudiCommitSensor(HudiSensor):
    """A sensor that waits until a writer has committed to a table.

    The result is a list of the commits, in the order of their completion, each as in the events of
    ``HudiCommitTrigger``. Commits of table services do not count. A table that does not exist yet is
    waited for::

        HudiCommitSensor(task_id="new_trips", table="s3a://lake/trips", deferrable=True)

    A kill or a time-out ends the wait. A retry, or a clear after a failure, continues it: what was
    committed since the first look counts. A clear after a success begins with a new first look.

    :param table: base path of the table. (templated)
    :param after: requested time of an instant: commits count that completed after it. ``""`` for all of
        the active timeline. Default: those after the sensor has looked first, in any of its tries; with
        ``signed`` all. (templated)
    :param partitions: partition paths, each with everything below it, of which a commit has to write
        one. Default: any. (templated)
    :param operations: Hudi's operation types, such as ``["upsert"]``. Default: any. (templated)
    :param signed: labels that the commit's signature has to have: ``identity``, or ``dag_id`` with
        ``run_id`` and ``task_id``. Only writers of this provider sign. (templated)
    :param storage_conn_id: Airflow connection of the table's storage. Default: the worker's or
        triggerer's own credentials. (templated)
    :param poke_interval: seconds between two listings; in the triggerer all of a table share them.
    :param deferrable: whether to wait in the triggerer.
    """

    template_fields: Sequence[str] = (
        *("table", "after", "partitions", "operations", "signed", "storage_conn_id"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "partitions": "json",
        "operations": "json",
        "signed": "json",
    }

    def __init__(
        self,
        *,
        table: str,
        after: str | None = None,
        partitions: str | Sequence[str] = (),
        operations: str | Sequence[str] = (),
        signed: Mapping[str, str] | None = None,
        storage_conn_id: str | None = None,
        poke_interval: float = DEFAULT_POLL_S,
        deferrable: bool = DEFERRABLE,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.table = table
        self.after = after
        self.partitions = partitions
        self.operations = operations
        self.signed = signed
        self.storage_conn_id = storage_conn_id
        self.deferrable = deferrable
        self.take_arguments()

    def complete(self, context: Context, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the commits of the trigger's event."""
        return self._done(context, event["commits"])

    def unmet(self) -> str:
        """Return that there was no commit."""
        return f"no commit to {self.table}"

    def poke(self, context: Context) -> PokeReturnValue:
        """Look for commits; a table that cannot be read is retried."""
        try:
            snapshot = self._table.snapshot(missing_ok=True)
            since = self._since(context, snapshot)
            wanted = CommitFilter.of(self.partitions, self.operations, self.signed)
            news = new_commits(snapshot, since, wanted)
        except TableUnreadableError as error:
            self.log.warning("The table cannot be read, retrying: %s", error)
            return PokeReturnValue(is_done=False)
        if news.made_anew:
            self.log.warning("%s. All its commits are new.", news.made_anew)
        if not news.commits:
            if snapshot.config.exists:
                self.log.info("No commit yet after %s.", since.time or "the table was made")
            else:
                self.log.info("At %s there is no table.", self.table)
            return PokeReturnValue(is_done=False)
        commits = list(map(event_of, news.commits))
        return PokeReturnValue(is_done=True, xcom_value=self._done(context, commits))

    @property
    def _start(self) -> str:
        if self.after is None:
            return "earliest" if self.signed else "latest"
        return self.after or "earliest"

    def _since(self, context: Context, snapshot: Snapshot) -> Checkpoint:
        """Return after which commits to look: what the first look of the task run has decided."""
        if since_json := self._stored_since(context):
            return Checkpoint.from_json(since_json)
        since = beginning(snapshot, self._start)
        value: Any = {"table": self.table, "start": self._start, "since": since.to_json()}
        context["task_state_store"].set(_SINCE_KEY, value, retention=NEVER_EXPIRE)
        return since

    def _stored_since(self, context: Context) -> dict[str, Any] | None:
        state: Any = context["task_state_store"].get(_SINCE_KEY)
        is_ours = state and (state["table"], state["start"]) == (self.table, self._start)
        return state["since"] if is_ours else None

    def _done(self, context: Context, commits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Forget the first look: a task that is cleared looks anew."""
        context["task_state_store"].delete(_SINCE_KEY)
        for commit in commits:
            signature = commit["signature"]
            writer = Signature(**signature).spelled if signature else "a writer without a signature"
            self.log.info("%s (%s) was committed by %s.", commit["instant"], commit["operation"], writer)
        return commits

    @cached_property
    def _table(self) -> HudiTable:
        return open_table(self.table, self.storage_conn_id)

    def trigger(self, context: Context, deadline_ms: int) -> HudiCommitTrigger:
        """Return the trigger that waits for commits after the first look."""
        return HudiCommitTrigger(
            table=self.table,
            storage_conn_id=self.storage_conn_id,
            partitions=self.partitions,
            operations=self.operations,
            signed=dict(self.signed) if self.signed else None,
            start=self._start,
            since=self._stored_since(context),
            poll_s=self.poke_interval,
            deadline_ms=deadline_ms,
        )

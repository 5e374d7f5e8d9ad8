"""What a task run remembers across its tries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from airflow_occ_provider.jobs.identity import new_identity

if TYPE_CHECKING:
    from airflow.sdk import Context

_RUN_KEY = "hudi_write"


class TaskRun:
    """The identity of a task run, kept in Airflow's task state store across its tries.

    It is renewed only where the task was cleared after it had succeeded: then the user wants it
    to write again. A clear raises ``max_tries``; a try that Airflow starts by itself does not.
    """

    def __init__(self, context: Context) -> None:
        self._store: Any = cast("Any", context).get("task_state_store")
        self._max_tries = context["ti"].max_tries
        kept: Any = self._store.get(_RUN_KEY) if self._store else None
        self._kept: dict[str, Any] = kept or {}
        if "succeeded" in self._kept and self._kept["succeeded"] != self._max_tries:
            self._kept = {}

    @property
    def identity(self) -> str:
        """The identity of this run, made at its first try."""
        if "identity" not in self._kept:
            self._keep(identity=new_identity())
        return str(self._kept["identity"])

    def since(self, latest_instant: str) -> str:
        """Return the table's youngest completed write before the first try, or empty.

        :param latest_instant: what it is now; kept if this is the first try.
        """
        if "since" not in self._kept:
            self._keep(since=latest_instant)
        return str(self._kept["since"])

    def succeed(self) -> None:
        """Remember that the run did its work; called last."""
        self._keep(succeeded=self._max_tries)

    def _keep(self, **values: Any) -> None:
        self._kept = {**self._kept, **values}
        if self._store:
            self._store.set(_RUN_KEY, self._kept)

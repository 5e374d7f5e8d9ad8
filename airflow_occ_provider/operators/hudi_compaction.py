"""``HudiCompactionOperator``: compacts a merge-on-read table beside its writers."""

from __future__ import annotations

from typing import Any

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.operators.preparation import Preparation
from airflow_occ_provider.operators.table_service import TableServiceOperator
from airflow_occ_provider.storage.snapshot import Snapshot


class HudiCompactionOperator(TableServiceOperator):
    """Plan and run the compaction of one merge-on-read table, and clean up after those that died.

    It is a ``SparkSubmitOperator`` without an application: Hudi's write client plans and compacts,
    with the writers' lock and heartbeat. A table of version 9 is compacted beside writers, who pass over
    compactions. Older ones lose to a compaction that was planned after they had begun, and so do writers
    with ``conflict_resolution="prefer_writer"``: there it runs alone, in its turn.

    :param table: base path of the table, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param op: ``"schedule"`` to make a plan, ``"run"`` to run the plans that wait, or
        ``"schedule_and_run"``.
    :param instants: requested times of the plans to run, and no others, such as another task's
        ``scheduled``; with ``op="run"``. (templated)
    :param dead_plan: what becomes of a plan that nobody runs: ``"run"`` to run it again,
        ``"roll_back"`` to remove it with all that it has left, ``"leave"`` to tell of it. A log
        compaction cannot be run again: it is rolled back.
    :param plan_timeout: how long a plan stays requested or inflight, without a live heartbeat, until
        nobody runs it. Before Hudi 1.2 compactions have no heartbeat: longer than the longest one.
    :param hudi_options: further Hudi options, such as ``hoodie.compact.inline.max.delta.commits``, which
        decides when there is something to plan. (templated)

    All else is as for ``HudiWriteOperator``. The result is a dictionary: ``scheduled``, ``completed``,
    ``rolled_back`` and ``left`` (still pending), lists of requested times, and ``seconds``.
    """

    service = Service.COMPACTION

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.scope is not None:
            raise ConfigurationError(
                "scope", "Hudi compacts what its plan names", remedy="leave it out: it is the table"
            )

    def _refuse_table(self, snapshot: Snapshot, preparation: Preparation) -> None:  # noqa: ARG002
        if not snapshot.config.merge_on_read:
            raise ConfigurationError(
                "table",
                f"{self.table} is copy-on-write",
                remedy="only merge-on-read tables are compacted",
            )

"""``HudiClusteringOperator``: clusters a table without a writer's loss."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.table_service import Plan, Service
from airflow_occ_provider.operators.admitted import Admitted
from airflow_occ_provider.operators.preparation import Preparation
from airflow_occ_provider.operators.service_claim import prefers_writers
from airflow_occ_provider.operators.table_service import TableServiceOperator
from airflow_occ_provider.storage.snapshot import Snapshot

_PARTITIONS = "hoodie.clustering.plan.strategy.partition."
_PATTERN = f"{_PARTITIONS}regex.pattern"
_CHECKED_LAYOUT = 8


class HudiClusteringOperator(TableServiceOperator):
    """Plan and run the clustering of one table, and clean up after those that died.

    It is a ``SparkSubmitOperator`` without an application: Hudi's write client plans and clusters, with
    the writers' lock. A pending clustering rejects upserts of its file groups, and by Hudi's default
    its rivals lose at their commit, too: so it holds its scope alone, and writers of ours
    wait. With ``conflict_resolution="prefer_writer"``, the writers' own as well, it runs beside writers
    and is who yields; once it has lost, it runs alone.

    :param table: base path of the table, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param scope: the partitions to cluster, each with all below it; by default the table. (templated)
    :param op: ``"schedule"`` to make a plan, ``"run"`` to run the plans that wait, or
        ``"schedule_and_run"``.
    :param instants: requested times of the plans to run, and no others, such as another task's
        ``scheduled``; with ``op="run"``. (templated)
    :param dead_plan: what becomes of a plan that nobody runs, and that rejects writers for ever:
        ``"run"`` to run it again, ``"roll_back"`` to remove it with all that it has left, ``"leave"`` to
        tell of it. One whose file groups were written since is always rolled back, as it would
        undo that write.
    :param plan_timeout: how long a plan stays requested or inflight, without a live heartbeat, until
        nobody runs it. Clusterings have none: longer than the longest one outside the queue, and with
        ``"prefer_writer"``, where clusterings run beside each other, than the longest of all.
    :param hudi_options: further Hudi options, such as
        ``hoodie.clustering.plan.strategy.sort.columns``. (templated)

    All else is as for ``HudiWriteOperator``. The result is a dictionary: ``scheduled``, ``completed``,
    ``rolled_back`` and ``left`` (still pending), lists of requested times, and ``seconds``.
    """

    service = Service.CLUSTERING

    def _refuse_options(self, options: Mapping[str, Any]) -> None:
        super()._refuse_options(options)
        for key in options:
            if key.startswith(_PARTITIONS):
                raise ConfigurationError(
                    "hudi_options", f"{key} has a parameter of its own", remedy="use scope"
                )

    def _refuse_table(self, snapshot: Snapshot, preparation: Preparation) -> None:
        if prefers_writers(preparation.options) and snapshot.config.version < _CHECKED_LAYOUT:
            self.log.warning(
                "Below table version 8, Hudi 1.1 and later take a clustering's own plan for a rival's, "
                "so that it never commits: use another conflict_resolution."
            )

    def _restricted(self, preparation: Preparation, admitted: Admitted) -> Preparation:
        partitions = self._held(admitted)
        if not partitions:
            return preparation
        # A selection, such as of the site's own hudi-defaults.conf, would go before the pattern.
        others = {
            key: value for key, value in preparation.options.items() if not key.startswith(_PARTITIONS)
        }
        return replace(preparation, options={**others, _PATTERN: below(partitions)})

    def _is_outside(self, plan: Plan, admitted: Admitted) -> bool:
        held = self._held(admitted)
        return bool(held) and not all(re.fullmatch(below(held), path) for path in plan.partitions)

    def _held(self, admitted: Admitted) -> tuple[str, ...]:
        """Return the partitions that it is for, empty for all; a shared lease names none."""
        return self._partitions or (admitted.scope.partitions if admitted.scope else None) or ()


def below(partitions: Sequence[str]) -> str:
    """Return a pattern, for Java and Python, of the paths of some partitions and of all below them."""
    paths = "|".join(re.escape(path.strip("/")) for path in partitions)
    return f"(?:{paths})(?:/.*)?"

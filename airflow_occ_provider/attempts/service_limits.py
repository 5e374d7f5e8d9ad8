"""The limits of a table service: the tables and the partitions that it may touch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.claim import prefers_writers
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.table_service import Plan, Service
from airflow_occ_provider.storage.snapshot import Snapshot

PARTITION_OPTIONS = "hoodie.clustering.plan.strategy.partition."
"""How the names of Hudi's options begin that select the partitions of a clustering plan."""
_PATTERN = f"{PARTITION_OPTIONS}regex.pattern"
_CHECKED_LAYOUT = 8


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of a table service; a compaction touches what Hudi's plan names.

    :param declared: the partitions that the task names, if it does.
    """

    service: Service
    declared: Sequence[str] | None
    log: Any

    def refuse_table(self, snapshot: Snapshot, options: Mapping[str, str]) -> None:
        """Refuse a table that the service does not support.

        :raises ConfigurationError: if a copy-on-write table is to be compacted.
        """
        config = snapshot.config
        if self.service is Service.COMPACTION and not config.merge_on_read:
            raise ConfigurationError(
                "table",
                f"{snapshot.path} is copy-on-write",
                remedy="only merge-on-read tables are compacted",
            )
        is_clustering = self.service is Service.CLUSTERING
        if is_clustering and prefers_writers(options) and config.version < _CHECKED_LAYOUT:
            self.log.warning(
                "Below table version 8, Hudi 1.1 and later take a clustering's own plan for a rival's, "
                "so that it never commits: use another conflict_resolution."
            )

    def restrict(self, preparation: Preparation, admitted: Admitted) -> Preparation:
        """Return a preparation with which the driver plans no more than the task holds."""
        partitions = self._held(admitted)
        if not partitions:
            return preparation
        # A selection, such as one in the site's hudi-defaults.conf, would override the pattern.
        options = preparation.options.items()
        others = {key: value for key, value in options if not key.startswith(PARTITION_OPTIONS)}
        restricted = {**others, _PATTERN: below(partitions)}
        return replace(preparation, options=restricted, without=(PARTITION_OPTIONS,))

    def is_outside(self, plan: Plan, admitted: Admitted) -> bool:
        """Whether a plan touches more than the task may."""
        partitions = self._held(admitted)
        inside = below(partitions)
        return bool(partitions) and not all(re.fullmatch(inside, path) for path in plan.partitions)

    def _held(self, admitted: Admitted) -> Sequence[str]:
        """Return the partitions to cluster, empty for all; a shared lease names none."""
        if self.service is Service.COMPACTION:
            return ()
        return self.declared or (admitted.scope.partitions if admitted.scope else None) or ()


def below(partitions: Sequence[str]) -> str:
    """Return a pattern, for Java and Python, of some partitions and all below them."""
    paths = "|".join(re.escape(path.strip("/")) for path in partitions)
    return f"(?:{paths})(?:/.*)?"

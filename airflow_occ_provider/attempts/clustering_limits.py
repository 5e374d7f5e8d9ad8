"""The limits of a clustering: the partitions that its task holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.service_attempt import ServiceLimits
from airflow_occ_provider.attempts.service_claim import prefers_writers
from airflow_occ_provider.hudi.writer.table_service import Plan
from airflow_occ_provider.storage.snapshot import Snapshot

PARTITION_OPTIONS = "hoodie.clustering.plan.strategy.partition."
"""How the names of Hudi's options begin that select the partitions of a clustering plan."""
_PATTERN = f"{PARTITION_OPTIONS}regex.pattern"
_CHECKED_LAYOUT = 8


def clustering_limits(declared: Sequence[str] | None, log: Any) -> ServiceLimits:
    """Return the limits of a clustering.

    :param declared: the scope that the task names, if it does.
    :param log: the task's log.
    """

    def held(admitted: Admitted) -> Sequence[str]:
        """Return the partitions to cluster, empty for all; a shared lease names none."""
        return declared or (admitted.scope.partitions if admitted.scope else None) or ()

    def refuse_table(snapshot: Snapshot, options: Mapping[str, str]) -> None:
        if prefers_writers(options) and snapshot.config.version < _CHECKED_LAYOUT:
            log.warning(
                "Below table version 8, Hudi 1.1 and later take a clustering's own plan for a rival's, "
                "so that it never commits: use another conflict_resolution."
            )

    def restrict(preparation: Preparation, admitted: Admitted) -> Preparation:
        partitions = held(admitted)
        return restricted(preparation, partitions) if partitions else preparation

    def is_outside(plan: Plan, admitted: Admitted) -> bool:
        partitions = held(admitted)
        inside = below(partitions)
        return bool(partitions) and not all(re.fullmatch(inside, path) for path in plan.partitions)

    return ServiceLimits(refuse_table, restrict, is_outside)


def restricted(preparation: Preparation, partitions: Sequence[str]) -> Preparation:
    """Return a preparation whose plans touch only some partitions."""
    # A selection, such as one in the site's hudi-defaults.conf, would override the pattern.
    others = {
        key: value for key, value in preparation.options.items() if not key.startswith(PARTITION_OPTIONS)
    }
    options = {**others, _PATTERN: below(partitions)}
    return replace(preparation, options=options, without=(PARTITION_OPTIONS,))


def below(partitions: Sequence[str]) -> str:
    """Return a pattern, for Java and Python, of some partitions and all below them."""
    paths = "|".join(re.escape(path.strip("/")) for path in partitions)
    return f"(?:{paths})(?:/.*)?"

"""The golden tables by name, and which Hudi releases make them."""

from __future__ import annotations

from collections.abc import Callable

from tests.golden import scenarios_services as services
from tests.golden import scenarios_unsafe as unsafe
from tests.golden import scenarios_writes as writes
from tests.golden.hudi_table import GoldenTable

Scenario = Callable[[GoldenTable], None]

# UTC comes before local time: in a JVM east of Greenwich Hudi 1.x waits, before it gives a UTC table
# an instant, until UTC has passed the last local one (HoodieInstantTimeGenerator keeps it in a static).
_EVERY_RELEASE: tuple[Scenario, ...] = (
    *(writes.operations, writes.created, writes.unpartitioned, writes.several_levels),
    *(writes.hive_style_encoded, writes.plain_odd_paths, writes.bucket_index),
    *(writes.live_direct, writes.live_server, writes.early_conflict),
    *(
        unsafe.unchecked,
        unsafe.rolled_back_alive,
        unsafe.lost_writes,
        unsafe.lost_and_archived,
        unsafe.lost_overwrite,
    ),
    *(services.compaction, services.log_compaction, services.clustering),
    *(services.rollbacks, services.restored, services.cleaned),
    *(services.history, services.history_merge_on_read, services.version_6_history),
    services.archived_beyond_savepoint,
)
_NEWER: tuple[Scenario, ...] = (
    *(services.version_6, services.version_6_archive, services.upgraded, services.indexed),
)
OLD = "0.15.0"
BEFORE: dict[str, Scenario] = {"upgraded": services.upgraded_before}
"""What the release ``OLD`` does first, in a JVM of its own."""


def scenarios(hudi_version: str) -> dict[str, Scenario]:
    """Return the scenarios of a release, in the order in which one JVM can run them."""
    chosen = _EVERY_RELEASE if hudi_version == OLD else (*_EVERY_RELEASE, *_NEWER)
    return {scenario.__name__: scenario for scenario in chosen}

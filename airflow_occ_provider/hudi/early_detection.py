"""How early conflict detection is set for a table, by where it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_occ_provider.hudi.options import EARLY_DETECTION

# A listing per file is cheap here; Hudi itself falls back to direct markers on HDFS.
_LISTS_CHEAPLY = frozenset({"file", "hdfs", "viewfs"})
_STRATEGY = "hoodie.write.concurrency.early.conflict.detection.strategy"
_MARKERS = "hoodie.write.markers.type"


@dataclass(frozen=True, slots=True)
class EarlyDetection:
    """The choice made for one attempt.

    :param options: Hudi's options for it.
    :param reason: why it is so, for the log.
    """

    reason: str
    options: dict[str, str] = field(default_factory=lambda: {EARLY_DETECTION: "false"})


def choose(enabled: bool, scheme: str, known_paths: Iterable[str] | None) -> EarlyDetection:
    """Choose the strategy that is right for the table's storage.

    Hudi's timeline-server strategy cuts a marker at its first ``_``, so partitions whose paths
    hold one are mistaken for each other (Hudi 1.2.0, ``MarkerBasedEarlyConflictDetectionRunnable``).

    :param enabled: what the user asked for.
    :param scheme: scheme of the table's URL, ``file`` for a plain path.
    :param known_paths: partition paths that the table is known to have, ``None`` if it has none yet.
    """
    if not enabled:
        return EarlyDetection("off, as asked")
    if scheme in _LISTS_CHEAPLY:
        return EarlyDetection("on, direct markers", _direct())
    known = tuple(known_paths or ())
    if not known:
        return EarlyDetection(f"off: nothing is known yet of the partition paths of a {scheme} table")
    underscored = next((path for path in known if "_" in path), None)
    if underscored is not None:
        return EarlyDetection(
            f"off: partition {underscored!r} holds '_', which Hudi's strategy for {scheme} misreads"
        )
    return EarlyDetection("on, timeline server markers", _timeline_server())


def _direct() -> dict[str, str]:
    return {
        EARLY_DETECTION: "true",
        _MARKERS: "DIRECT",
        _STRATEGY: "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy",
        "hoodie.write.concurrency.early.conflict.check.commit.conflict": "true",
    }


def _timeline_server() -> dict[str, str]:
    handlers = "org.apache.hudi.timeline.service.handlers.marker"
    return {
        EARLY_DETECTION: "true",
        _MARKERS: "TIMELINE_SERVER_BASED",
        _STRATEGY: f"{handlers}.AsyncTimelineServerBasedDetectionStrategy",
        "hoodie.write.concurrency.async.conflict.detector.period_ms": "5000",
    }

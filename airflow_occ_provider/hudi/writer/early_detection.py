"""The choice of Hudi's early conflict detection for a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_occ_provider.hudi.writer.options import EARLY_DETECTION

MARKERS_TYPE = "hoodie.write.markers.type"
TIMELINE_SERVER = "hoodie.embed.timeline.server"
# One listing per file is cheap here; on HDFS Hudi itself falls back to direct markers.
_LISTS_CHEAPLY = frozenset({"file", "hdfs", "viewfs"})
_ONLY_DIRECT = frozenset({"hdfs", "viewfs"})
_PREFIX = "hoodie.write.concurrency."
_HANDLERS = "org.apache.hudi.timeline.service.handlers.marker"
_DIRECT = "org.apache.hudi.table.marker"


class EarlyDetection(StrEnum):
    """The detection of rivals while a job still writes.

    The three strategies are Hudi's (1.2.0, ``hoodie.write.concurrency.early.conflict.detection.
    strategy``). Each sets the marker type that it needs.
    """

    OFF = "off"
    ON = "on"
    """The strategy that suits the table's storage."""
    SIMPLE_DIRECT = "simple_direct"
    """Lists the other writers' markers before each file; direct markers."""
    TRANSACTION_DIRECT = "transaction_direct"
    """Does the same under a ZooKeeper lock per file; direct markers."""
    TIMELINE_SERVER = "timeline_server"
    """Checks every five seconds in a thread; markers of the embedded timeline server."""


_STRATEGIES = {
    EarlyDetection.SIMPLE_DIRECT: f"{_DIRECT}.SimpleDirectMarkerBasedDetectionStrategy",
    EarlyDetection.TRANSACTION_DIRECT: f"{_DIRECT}.SimpleTransactionDirectMarkerBasedDetectionStrategy",
    EarlyDetection.TIMELINE_SERVER: f"{_HANDLERS}.AsyncTimelineServerBasedDetectionStrategy",
}


@dataclass(frozen=True, slots=True)
class DetectionChoice:
    """The early conflict detection of one attempt, with the reason for the log."""

    reason: str
    options: dict[str, str] = field(default_factory=lambda: {EARLY_DETECTION: "false"})


def contradiction(
    wanted: EarlyDetection, scheme: str | None, options: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return what in the user's options contradicts the strategy, and the remedy.

    The scheme of the table's URL may not be known yet.
    """
    if wanted is not EarlyDetection.TIMELINE_SERVER:
        markers = str(options.get(MARKERS_TYPE, "DIRECT")).upper()
        if wanted in _STRATEGIES and markers != "DIRECT":
            return (
                f"{wanted} needs direct markers, but {MARKERS_TYPE} is {markers}",
                f"remove {MARKERS_TYPE}",
            )
        return None
    if scheme in _ONLY_DIRECT:
        return f"Hudi has only direct markers on {scheme}", "use 'simple_direct'"
    if str(options.get(MARKERS_TYPE, "TIMELINE_SERVER_BASED")).upper() != "TIMELINE_SERVER_BASED":
        return (
            f"it needs timeline server markers, but {MARKERS_TYPE} has another value",
            f"remove {MARKERS_TYPE}",
        )
    if str(options.get(TIMELINE_SERVER, "true")).lower() != "true":
        return f"it needs the timeline server, but {TIMELINE_SERVER} is off", f"remove {TIMELINE_SERVER}"
    return None


def choose(wanted: EarlyDetection, scheme: str, known_paths: Iterable[str] | None) -> DetectionChoice:
    """Choose the strategy that suits the table's storage, unless the user named one.

    It is on for writers with a scope too: writers that are not queued may still meet them.

    Hudi's timeline server strategy cuts a marker's path at its first ``_``, so it confuses partitions
    with ``_`` in their paths (Hudi 1.2.0, ``MarkerBasedEarlyConflictDetectionRunnable``).

    :param known_paths: known partition paths of the table, ``None`` if it has none yet.
    """
    if wanted is EarlyDetection.OFF:
        return DetectionChoice("off, as asked")
    if wanted is not EarlyDetection.ON:
        return DetectionChoice(f"on, {wanted}, as asked", _options(wanted))
    if scheme in _LISTS_CHEAPLY:
        return DetectionChoice("on, direct markers", _options(EarlyDetection.SIMPLE_DIRECT))
    paths = tuple(known_paths or ())
    if not paths:
        return DetectionChoice(f"off: the partition paths of this {scheme} table are not known yet")
    underscored = next((path for path in paths if "_" in path), None)
    if underscored is not None:
        return DetectionChoice(
            f"off: partition {underscored!r} contains '_', which Hudi's strategy for {scheme} misreads"
        )
    return DetectionChoice("on, timeline server markers", _options(EarlyDetection.TIMELINE_SERVER))


def _options(strategy: EarlyDetection) -> dict[str, str]:
    by_server = strategy is EarlyDetection.TIMELINE_SERVER
    common = {
        EARLY_DETECTION: "true",
        f"{_PREFIX}early.conflict.detection.strategy": _STRATEGIES[strategy],
        MARKERS_TYPE: "TIMELINE_SERVER_BASED" if by_server else "DIRECT",
    }
    if by_server:
        return {**common, f"{_PREFIX}async.conflict.detector.period_ms": "5000"}
    return {**common, f"{_PREFIX}early.conflict.check.commit.conflict": "true"}

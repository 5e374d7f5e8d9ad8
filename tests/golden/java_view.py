"""What Hudi's own Java API says about a table, as plain values: the reference of golden tables."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_WITH_COMMIT_METADATA = {"commit", "deltacommit", "replacecommit"}
_TWO_MINUTES_MS = 120_000


class JavaView:
    """A view of a table through ``HoodieTableMetaClient``.

    :param spark: a session of the Hudi release that is asked.
    :param table: base path.
    :param hudi_version: that release.
    """

    def __init__(self, spark: SparkSession, table: Path, hudi_version: str) -> None:
        self._modern = not hudi_version.startswith("0.")
        self._hudi = spark._jvm.org.apache.hudi  # type: ignore[union-attr]
        self._conf = self._hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
        self._table = table
        builder = self._hudi.common.table.HoodieTableMetaClient.builder()
        self._meta = builder.setConf(self._conf).setBasePath(str(table)).build()
        self._storage = self._meta.getStorage()

    def describe(self) -> dict[str, Any]:
        """Return everything: the table's properties and its instants, the archived ones first."""
        config = self._meta.getTableConfig()
        layout = self._meta.getTimelineLayoutVersion().getVersion()
        table = {
            "name": config.getTableName(),
            "type": config.getTableType().name(),
            "version": config.getTableVersion().versionCode(),
            "layout": layout,
            "timezone": config.getTimelineTimezone().name(),
            "properties": dict(sorted((str(k), str(v)) for k, v in config.getProps().items())),
        }
        active = self._instants(self._meta.getActiveTimeline(), archived=False)
        return {"table": table, "archive_read": True, "instants": [*self.archived(), *active]}

    def archived(self) -> list[dict[str, Any]]:
        """Return the archived instants; layout 1 archives the requested and inflight ones besides."""
        timeline = self._meta.getArchivedTimeline()
        timeline.loadCompletedInstantDetailsInMemory()
        return list(self._instants(timeline, archived=True))

    def _instants(self, timeline: Any, *, archived: bool) -> Iterator[dict[str, Any]]:
        plans = {} if archived else self._plans()
        for instant in _items(timeline.getInstants()):
            if instant.isCompleted() or not archived:
                yield self._instant(timeline, instant, plans, archived)

    def _instant(
        self, timeline: Any, instant: Any, plans: dict[str, list[list[str]]], archived: bool
    ) -> dict[str, Any]:
        asked, state = self._requested_time(instant), instant.getState().name()
        pending = state != "COMPLETED"
        described = {
            "time": asked,
            "action": instant.getAction(),
            "state": state,
            "completion_time": self._last_change(instant) if not pending else None,
            "pending_since": self._last_change(instant) if pending else None,
            "operation": None,
            "written": [],
            "replaced": [],
            "partitions": [],
            "planned": plans.get(asked, []) if pending else [],
            "markers": (self._markers(asked) or None) if pending else None,
            **self._heartbeat(asked),
            "extra": {},
            "victims": self._victims(instant, state) if not archived else None,
            "archived": archived,
        }
        if instant.getAction() in _WITH_COMMIT_METADATA and state != "REQUESTED":
            try:
                described |= self._commit(timeline, instant)
            except Py4JJavaError as error:
                if not archived:
                    raise
                described["unreadable"] = str(error.java_exception.getCause().getMessage())
        return described

    def _commit(self, timeline: Any, instant: Any) -> dict[str, Any]:
        """Read commit metadata, or an inflight instant's workload profile, where there is one."""
        if not instant.isCompleted() and timeline.getInstantDetails(instant).get() == b"":
            return {}
        if self._modern and not instant.isCompleted():
            metadata = timeline.readCommitMetadata(instant)  # getCommitMetadata fails on overwrites
        else:
            utils = self._hudi.common.table.timeline.TimelineUtils
            metadata = utils.getCommitMetadata(instant, timeline)
        written = metadata.getPartitionToWriteStats()
        groups = [[p, stat.getFileId()] for p, stats in written.items() for stat in stats]
        replaces = metadata.getClass().getSimpleName() == "HoodieReplaceCommitMetadata"
        replaced = metadata.getPartitionToReplaceFileIds().items() if replaces else ()
        return {
            "operation": _named(metadata.getOperationType()),
            "written": _unique(group for group in groups if group[1]),
            "replaced": _unique([p, file_id] for p, file_ids in replaced for file_id in file_ids),
            "partitions": sorted(written),
            "extra": {k: v for k, v in sorted(metadata.getExtraMetadata().items()) if k.startswith("_")},
        }

    def _plans(self) -> dict[str, list[list[str]]]:
        """Return the file groups of each pending compaction, log compaction and clustering plan."""
        util = self._hudi.common.util
        plans = {}
        for read in (
            util.CompactionUtils.getAllPendingCompactionPlans,
            util.CompactionUtils.getAllPendingLogCompactionPlans,
        ):
            for pair in _items(read(self._meta)):
                operations = _items(pair.getRight().getOperations())
                groups = ([op.getPartitionPath(), op.getFileId()] for op in operations)
                plans[self._requested_time(pair.getLeft())] = _unique(groups)
        for pair in _items(util.ClusteringUtils.getAllPendingClusteringPlans(self._meta)):
            found = _items(util.ClusteringUtils.getFileGroupsFromClusteringPlan(pair.getRight()))
            plans[self._requested_time(pair.getLeft())] = _unique(
                [group.getPartitionPath(), group.getFileId()] for group in found
            )
        return plans

    def _markers(self, instant_time: str) -> list[list[str]] | None:
        """Return the file groups of an instant's markers, by the reader of their kind."""
        folder = self._meta.getMarkerFolderPath(instant_time)
        if not self._storage.exists(self._hudi.storage.StoragePath(folder)):
            return None
        markers = self._hudi.common.util.MarkerUtils
        kind = markers.readMarkerType(self._storage, folder)
        if kind.isPresent() and kind.get().name() == "TIMELINE_SERVER_BASED":
            context = self._hudi.common.engine.HoodieLocalEngineContext(self._conf)
            by_file = markers.readTimelineServerBasedMarkersFromFileSystem(
                folder, self._storage, context, 1
            )
            return _unique(self._marked(path) for paths in by_file.values() for path in paths)
        return _unique(self._marked(path) for path in self._direct_markers(instant_time))

    def _direct_markers(self, instant_time: str) -> list[str]:
        config = self._hudi.config.HoodieWriteConfig.newBuilder().withPath(str(self._table))
        spark = SparkSession.getActiveSession()
        context = self._hudi.client.common.HoodieSparkEngineContext(spark._jsc)  # type: ignore[union-attr]
        table = self._hudi.table.HoodieSparkTable.create(config.build(), context, self._meta)
        direct = self._hudi.common.table.marker.MarkerType.DIRECT
        markers = self._hudi.table.marker.WriteMarkersFactory.get(direct, table, instant_time)
        return list(markers.allMarkerFilePaths())

    def _marked(self, marker: str) -> list[str]:
        file = self._hudi.table.marker.WriteMarkers.stripMarkerSuffix(marker)
        path = self._hudi.storage.StoragePath(f"{self._table}/{file}")
        partition = file.rpartition("/")[0]
        return [partition, self._hudi.common.fs.FSUtils.getFileIdFromFilePath(path)]

    def _heartbeat(self, instant_time: str) -> dict[str, Any]:
        util = self._hudi.common.heartbeat.HoodieHeartbeatUtils
        last = util.getLastHeartbeatTime(self._storage, str(self._table), instant_time)
        if not last:
            return {"heartbeat": None}
        now = int(time.time() * 1000)
        expired = util.isHeartbeatExpired(instant_time, _TWO_MINUTES_MS, self._storage, str(self._table))
        return {"heartbeat": last, "heartbeat_expired": expired, "read_at": now}

    def _requested_time(self, instant: Any) -> str:
        return str(instant.requestedTime() if self._modern else instant.getTimestamp())

    def _last_change(self, instant: Any) -> str | None:
        """Return when it completed; in layout 1 pending ones have a time too, that of the file."""
        return instant.getCompletionTime() if self._modern else instant.getStateTransitionTime()

    def _victims(self, instant: Any, state: str) -> list[str] | None:
        """Return the instants that a rollback names, in its plan and in its metadata."""
        if instant.getAction() != "rollback":
            return None
        if state != "COMPLETED":
            plan = self._hudi.table.action.rollback.RollbackUtils.getRollbackPlan(self._meta, instant)
            named = plan.getInstantToRollback()
            return [named.getCommitTime()] if named else []
        timeline = self._meta.getActiveTimeline()
        if self._modern:
            metadata = timeline.readRollbackMetadata(instant)
        else:
            utils = self._hudi.common.table.timeline.TimelineMetadataUtils
            metadata = utils.deserializeHoodieRollbackMetadata(timeline.getInstantDetails(instant).get())
        return sorted(_items(metadata.getCommitsRollback()))


def _named(kind: Any) -> str | None:
    return None if kind is None else kind.name()


def _items(of: Any) -> Iterator[Any]:
    """Iterate a Java collection or stream; Py4J's own iteration fails on Avro's lists."""
    iterator = of.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _unique(pairs: Iterable[list[str]]) -> list[list[str]]:
    return [list(pair) for pair in sorted({(str(a), str(b)) for a, b in pairs})]

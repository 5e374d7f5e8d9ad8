"""A table's metadata at one moment; the files of instants are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from airflow_occ_provider.errors import MetadataCorruptError, TableUnreadableError
from airflow_occ_provider.hudi.conflict.operation import (
    ConcurrentOperation,
    Times,
    completed_operation,
    pending_operation,
    planned_operation,
)
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import MARKERS_TYPE_FILE, Marker, parse_markers
from airflow_occ_provider.hudi.format.instant import Instant, zone_ms
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat
from airflow_occ_provider.storage.folder import TableFolder, map_concurrently
from airflow_occ_provider.storage.instant_reader import InstantReader
from airflow_occ_provider.storage.listing import Listing


class Snapshot:
    """The metadata of one table at one moment.

    ``reader`` reads the files of instants and keeps what it has read for later snapshots. Markers and
    heartbeats are read at each call. Each method that reads raises ``TableUnreadableError`` if the
    storage cannot be read, or a file cannot be decoded.

    :param reload: makes a new snapshot of the whole table, given the last one.
    :param previous: an earlier snapshot; what has not changed is reused.
    """

    def __init__(
        self,
        folder: TableFolder,
        config: TableConfig,
        listing: Listing,
        reload: Callable[[Snapshot], Snapshot],
        previous: Snapshot | None = None,
    ) -> None:
        self._reload = reload
        self.config = config
        self.listing = listing
        self.timeline = _timeline(folder, config, listing, previous)
        self._folder = folder
        self._modified = listing.modified
        self.reader = InstantReader(folder, config)
        if previous:
            self.reader.keep(previous.reader, frozenset(listing.names))

    @property
    def path(self) -> str:
        """The table's base path."""
        return self._folder.path

    def written_ms(self, file_name: str) -> int | None:
        """Return the epoch milliseconds at which a file of the timeline was last written."""
        return self._modified(file_name)

    def ahead_ms(self) -> int:
        """Return how far the table's instant times are ahead of UTC, for most of them.

        It is 0 if no requested file shows it, as after a copy.
        """
        requested = [(i.time, i.requested_file) for i in self.timeline if i.requested_file]

        def zones(_: str) -> list[int]:
            shown = (zone_ms(time, self._modified(file)) for time, file in requested)
            return sorted(zone for zone in shown if zone is not None)

        shown = self._folder.ask(self.config.timeline_folder, zones)
        return shown[len(shown) // 2] if shown else 0

    def refreshed(self, listing: Listing) -> Snapshot:
        """Return a snapshot from a newer listing of the timeline."""
        return Snapshot(self._folder, self.config, listing, self._reload, self)

    def reload(self) -> Snapshot:
        """Return a new snapshot of the whole table, also of its ``hoodie.properties``."""
        return self._reload(self)

    def whole(self) -> Snapshot:
        """Return a snapshot for which the whole timeline was listed.

        Only a whole listing proves that an instant does not exist.
        """
        return self if self.listing.is_whole else self.reload()

    def markers(self, time: str) -> frozenset[Marker]:
        """Return the current markers of a pending instant, of either kind."""
        folder = f".hoodie/.temp/{time}"
        paths = self._folder.below(folder)
        if MARKERS_TYPE_FILE not in paths:
            return parse_markers(paths)
        files = (p for p in paths if p.startswith("MARKERS") and p != MARKERS_TYPE_FILE)
        contents = ((self._folder.read(f"{folder}/{file}") or b"") for file in files)
        return parse_markers(
            line for text in contents for line in text.decode(errors="replace").splitlines()
        )

    def heartbeats(self) -> Mapping[str, int]:
        """Return the epoch milliseconds of each heartbeat's last tick, by requested time."""
        return self._folder.heartbeats()

    def rollbacks(self) -> Iterator[tuple[Instant, frozenset[str]]]:
        """Yield the active timeline's rollbacks and restores with the instants they name."""
        instants = [instant for instant in self.timeline if instant.action in ("rollback", "restore")]
        named = map_concurrently(self.reader.rolled_back_times, instants)
        yield from ((instant, named[instant]) for instant in instants)

    def rollback_of(self, time: str) -> Instant | None:
        """Return the rollback or restore, pending or done, that names an instant."""
        return next((rollback for rollback, times in self.rollbacks() if time in times), None)

    def ended_as(self, time: str) -> Fate | None:
        """Return what became of a write that is no longer pending.

        An archived commit is no longer in the active timeline, as little as one that was rolled back.
        So the history is asked before a rollback counts, and before files are taken for uncommitted.

        :param time: its requested time.
        :returns: ``GONE`` if neither a commit nor a rollback of it is there; ``None`` if it is pending,
            or if the history has to be read and cannot.
        """
        instant = self.timeline.find(time)
        if instant is not None:
            return Fate.COMMITTED if instant.completed else None
        try:
            archived = self.history() if self.has_history() else ()
        except TableUnreadableError:
            return None
        if any(write.time == time and write.is_write for write in archived):
            return Fate.COMMITTED
        return Fate.ROLLED_BACK if self.rollback_of(time) else Fate.GONE

    def data_files(self, partition: str) -> frozenset[str]:
        """List the names of the files in one partition."""
        return frozenset(self._folder.listing(partition).names)

    def last_file_ms(self, partition: str, time: str) -> int | None:
        """Return the epoch milliseconds at which a write last wrote in a partition.

        :param time: requested time of the write. The names of its files contain it, but for log files
            of layout 1.
        :returns: ``None`` if it has none there, or the storage does not record the times.
        """
        listing = self._folder.listing(partition)
        names = [name for name in listing.names if time in name]

        def last(_: str) -> int | None:
            return max(filter(None, map(listing.modified, names)), default=None)

        return self._folder.ask(partition, last)

    def has_history(self, after_ms: int = 0) -> bool:
        """Whether instants were archived.

        :param after_ms: epoch milliseconds of the storage's clock; only at that time or later.
        """
        listing = self._folder.listing(self.config.history_folder)
        files = [name for name in listing.names if name.endswith(".parquet") or ".archive." in name]
        if not after_ms:
            return bool(files)
        return any((listing.modified(file) or after_ms) >= after_ms for file in files)

    def history(self, after_ms: int | None = None) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first; they are read once.

        :param after_ms: epoch milliseconds; instants archived before may be left out. Default: all.
        :raises HistoryUnreadableError: for a history of layout 2 without pyarrow.
        """
        return self.reader.archived.instants(after_ms)

    def operation(self, instant: Instant, heartbeat: Heartbeat | None = None) -> ConcurrentOperation:
        """Return what an instant touches, by its metadata, plan, or profile and markers.

        :param heartbeat: the heartbeat of a pending write; without it, the write counts as alive.
        """
        times = self.times(instant)
        if instant.completed:
            metadata = self.reader.commit(instant)
            if metadata is None:  # archived since, so older than any pending writer, or damaged
                unknown = bool(self.reader.fault(instant.file_name))
                return ConcurrentOperation(
                    instant, may_touch_more=unknown, completed_ms=times.completed_ms
                )
            return completed_operation(instant, metadata, self.reader.profile(instant), times)
        try:
            planned, profile = self.reader.planned(instant), self.reader.profile(instant)
        except MetadataCorruptError:  # still being written, on a storage that shows parts of files
            return pending_operation(instant, None, (), times, heartbeat)
        if planned is not None:
            return planned_operation(instant, planned, times)
        fresh = not self.config.has_record_index
        markers = self.markers(instant.time)
        return pending_operation(instant, profile, markers, times, heartbeat, has_fresh_bases=fresh)

    def times(self, instant: Instant) -> Times:
        """Return when the files of an instant were written, by the timeline's listing."""
        requested, inflight = instant.requested_file, instant.inflight_file
        return Times(
            self._modified(requested) if requested else None,
            self._modified(inflight) if inflight else None,
            self._modified(instant.file_name) if instant.completed else None,
        )

    def times_of(self, instants: Iterable[Instant]) -> dict[Instant, Times]:
        """Return when the files of instants were written, in one request."""
        return self._in_one_request(instants, self.times)

    def last_times(self, instants: Iterable[Instant]) -> dict[Instant, Times]:
        """Return the times of instants in one request; if completed, only that time."""

        def last(instant: Instant) -> Times:
            if not instant.completed:
                return self.times(instant)
            return Times(completed_ms=self._modified(instant.file_name))

        return self._in_one_request(instants, last)

    def _in_one_request(
        self, instants: Iterable[Instant], times: Callable[[Instant], Times]
    ) -> dict[Instant, Times]:
        ask, folder = self._folder.ask, self.config.timeline_folder
        return ask(folder, lambda _: {instant: times(instant) for instant in instants}) or {}


def _timeline(
    folder: TableFolder, config: TableConfig, listing: Listing, previous: Snapshot | None
) -> Timeline:
    read = previous.timeline.refreshed if previous else Timeline.from_file_names
    if config.layout_version > 1 or (
        previous and frozenset(previous.timeline.names) == frozenset(listing.names)
    ):
        return read(listing.names, listing.modified)
    # One request for all: layout 1 needs the status of each completed file.
    timeline = folder.ask(config.timeline_folder, lambda _: read(listing.names, listing.modified))
    return timeline or Timeline()


class Operations:
    """The operations of one snapshot, each read on demand.

    Each method raises ``TableUnreadableError`` if a file cannot be read or decoded.

    :param heartbeats: the judged heartbeats of pending writers, by requested time; a writer that is
        missing here began later and counts as alive.
    """

    def __init__(self, snapshot: Snapshot, heartbeats: Mapping[str, Heartbeat]) -> None:
        self.snapshot = snapshot
        self.heartbeats = heartbeats
        self._outlines: dict[Instant, ConcurrentOperation] = {}
        self._read: dict[Instant, ConcurrentOperation] = {}
        self._commits: dict[Instant, CommitMetadata | None] = {}

    def outlines(self, instants: Iterable[Instant]) -> dict[Instant, ConcurrentOperation]:
        """Return operations with only the times that the timeline's listing shows."""
        wanted = tuple(instants)
        new = [instant for instant in wanted if instant not in self._outlines]
        times = self.snapshot.last_times(new) if new else {}
        self._outlines |= {
            instant: ConcurrentOperation(instant, **reached._asdict())
            for instant, reached in times.items()
        }
        return {instant: self._outlines[instant] for instant in wanted}

    def read(self, instants: Iterable[Instant]) -> list[ConcurrentOperation]:
        """Return the complete operations of instants, in the same order."""
        wanted = tuple(instants)
        self._read |= map_concurrently(
            self._operation, (instant for instant in wanted if instant not in self._read)
        )
        return [self._read[instant] for instant in wanted]

    def commits(self, instants: Iterable[Instant]) -> list[CommitMetadata]:
        """Return the commit metadata of completed writes, without those archived since."""
        wanted = tuple(instants)
        new = (instant for instant in wanted if instant not in self._commits)
        self._commits |= map_concurrently(self.snapshot.reader.commit, new)
        return [commit for instant in wanted if (commit := self._commits[instant])]

    def _operation(self, instant: Instant) -> ConcurrentOperation:
        return self.snapshot.operation(instant, self.heartbeats.get(instant.time))

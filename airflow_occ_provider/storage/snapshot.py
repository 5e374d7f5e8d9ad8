"""One table as one look at its timeline showed it; what its files say is read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from airflow_occ_provider.errors import MetadataCorruptError
from airflow_occ_provider.hudi.heartbeat import Heartbeat, Liveness
from airflow_occ_provider.hudi.instant import Instant
from airflow_occ_provider.hudi.markers import (
    MARKERS_TYPE_FILE,
    Marker,
    parse_marker_lines,
    parse_markers,
)
from airflow_occ_provider.hudi.metadata import (
    CommitMetadata,
    Content,
    FileGroup,
    names_its_schema,
    read_clustering_plan,
    read_commit,
    read_compaction_plan,
    read_deleted_names,
    read_rollback_victims,
)
from airflow_occ_provider.hudi.operation import (
    Operation,
    Times,
    completed_operation,
    pending_operation,
    planned_operation,
)
from airflow_occ_provider.hudi.timeline import Timeline
from airflow_occ_provider.storage.archived import ArchivedInstants
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import Listing

_T = TypeVar("_T")
_Plan = Callable[[Content], frozenset[FileGroup] | None]
_PLANS: dict[str, _Plan] = {
    "compaction": read_compaction_plan,
    "logcompaction": read_compaction_plan,
    "clustering": read_clustering_plan,
    "replacecommit": read_clustering_plan,
}
# The history knows only the word under which an instant completed.
_ARCHIVED_PLANS: dict[str, _Plan] = {
    "commit": read_compaction_plan,
    "deltacommit": read_compaction_plan,
    "replacecommit": read_clustering_plan,
}


class Snapshot:
    """The metadata of one table at one moment.

    Timeline files never change once written, so what was read of them is kept, also by the
    snapshots that follow, until they leave the timeline; markers and heartbeats are looked up anew at
    each call.

    :param folder: the table's files.
    :param properties: its ``hoodie.properties``.
    :param listing: of its active timeline.
    :param previous: an earlier snapshot of it, of which all that stayed the same is taken over.
    :param look: looks at the whole table anew, given the last snapshot.
    """

    def __init__(
        self,
        folder: TableFolder,
        properties: Mapping[str, str],
        listing: Listing,
        previous: Snapshot | None = None,
        look: Callable[[Snapshot], Snapshot] | None = None,
    ) -> None:
        self._look: Callable[[Snapshot], Snapshot] | None = look
        if look is None and previous:
            self._look = previous._look
        self.properties = properties
        read = previous.timeline.refreshed if previous else Timeline.from_file_names
        # One request for all: layout 1 looks at each completed file for its completion time.
        self.timeline: Timeline = (
            folder.ask(self.timeline_folder, lambda _: read(listing.names, listing.modified))
            or Timeline()
        )
        self._folder = folder
        self._modified = listing.modified
        listed = frozenset(listing.names)  # what was read of archived instants is let go
        known = previous._known if previous else {}
        self._known: dict[tuple[str, str], Any] = {k: v for k, v in known.items() if k[0] in listed}
        self._archived = ArchivedInstants(folder, properties, history_folder(properties))

    @property
    def path(self) -> str:
        """The table's base path."""
        return self._folder.path

    @property
    def table_version(self) -> int:
        """``hoodie.table.version``."""
        return int(self.properties.get("hoodie.table.version", "6"))

    @property
    def merge_on_read(self) -> bool:
        """Whether the table is merge-on-read."""
        return self.properties.get("hoodie.table.type") == "MERGE_ON_READ"

    @property
    def timeline_folder(self) -> str:
        """The active timeline's folder, relative to the base path."""
        return timeline_folder(self.properties)

    def written_ms(self, file_name: str) -> int | None:
        """Return the epoch milliseconds at which a file of the timeline was last written.

        :param file_name: as the timeline's listing has it.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        return self._modified(file_name)

    def refreshed(self, listing: Listing) -> Snapshot:
        """Return the table as a newer listing of its timeline shows it."""
        return Snapshot(self._folder, self.properties, listing, self)

    def again(self) -> Snapshot:
        """Return the table as it is now, its ``hoodie.properties`` read anew too.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        if self._look:
            return self._look(self)
        return self.refreshed(self._folder.listing(self.timeline_folder))

    def commit(self, instant: Instant) -> CommitMetadata | None:
        """Return what a completed write did; ``None`` if its file has gone meanwhile.

        It was archived, rolled back, or moved by an upgrade.

        Of an archived one also where Hudi 1.0.2's upgrade has left nothing that can be decoded.

        :raises MetadataCorruptError: if the file is empty or cannot be decoded.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        if instant.archived:
            content = self._archived.contents(instant).metadata or b""
            readable = names_its_schema(content)
            return self._decoded(instant.file_name, content, read_commit) if readable else None
        found = self._decode(instant.file_name, read_commit)
        if found is None:  # the file has gone, or is empty
            left = self._folder.read(f"{self.timeline_folder}/{instant.file_name}")
            return None if left is None else self._decoded(instant.file_name, left, read_commit)
        return found

    def profile(self, instant: Instant) -> CommitMetadata | None:
        """Return the workload profile of a write; ``None`` while there is none, or it is empty.

        :raises TableUnreadableError: if the file cannot be read or decoded.
        """
        return self._decode(instant.inflight_file, read_commit)

    def planned(self, instant: Instant) -> frozenset[FileGroup] | None:
        """Return the file groups of a compaction's or clustering's plan; ``None`` for anything else.

        :raises TableUnreadableError: if the file cannot be read or decoded.
        """
        if instant.archived:
            plan, reader = self._archived.contents(instant).plan, _ARCHIVED_PLANS.get(instant.action)
            return self._decoded(instant.file_name, plan, reader) if plan and reader else None
        reader = _PLANS.get(instant.requested_action)
        return self._decode(instant.requested_file, reader) if reader else None

    def markers(self, time: str) -> frozenset[Marker]:
        """Return the markers of a pending instant, of either kind, as they are now.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        folder = f".hoodie/.temp/{time}"
        paths = self._folder.below(folder)
        if MARKERS_TYPE_FILE not in paths:
            return parse_markers(paths)
        files = (p for p in paths if p.startswith("MARKERS") and p != MARKERS_TYPE_FILE)
        contents = ((self._folder.read(f"{folder}/{file}") or b"") for file in files)
        return frozenset(
            marker for text in contents for marker in parse_marker_lines(text.decode("utf-8", "replace"))
        )

    def heartbeats(self) -> Mapping[str, int]:
        """Return the epoch milliseconds of each heartbeat's last tick, by requested time.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        return heartbeats(self._folder)

    def rollbacks(self) -> Iterator[tuple[Instant, frozenset[str]]]:
        """Yield each rollback and restore of the active timeline with the instants that it names.

        :raises TableUnreadableError: if a file cannot be read or decoded.
        """
        for instant in self.timeline:
            if instant.action in ("rollback", "restore"):
                yield instant, self.victims(instant)

    def victims(self, rollback: Instant) -> frozenset[str]:
        """Return the requested times that a rollback or restore names.

        :raises TableUnreadableError: if the file cannot be read or decoded.
        """
        name = rollback.file_name if rollback.completed else rollback.requested_file
        return self._decode(name, read_rollback_victims) or frozenset()

    def rollback_of(self, time: str) -> Instant | None:
        """Return the rollback or restore, pending or done, that names an instant.

        :raises TableUnreadableError: if a file cannot be read or decoded.
        """
        return next((rollback for rollback, victims in self.rollbacks() if time in victims), None)

    def deleted_names(self, instant: Instant) -> frozenset[str]:
        """Return the names of the data files that a clean, rollback or restore deletes.

        :raises TableUnreadableError: if a file cannot be read or decoded.
        """
        name = instant.file_name if instant.completed else instant.requested_file
        return self._decode(name, read_deleted_names) or frozenset()

    def data_files(self, partition: str) -> frozenset[str]:
        """List the names of the files in one partition.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        return frozenset(self._folder.listing(partition).names)

    def has_history(self) -> bool:
        """Whether instants were archived.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        return self._archived.exist()

    def history(self, after_ms: int | None = None) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first; they are read once.

        :param after_ms: epoch milliseconds; instants archived before may be left out. Default: all.
        :raises HistoryUnreadableError: for a history of layout 2 without pyarrow.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        return self._archived.instants(after_ms)

    def operation(self, instant: Instant, heartbeat: Heartbeat | None = None) -> Operation:
        """Return what an instant touches, from its metadata, its plan, or its profile and markers.

        :param heartbeat: of a pending write, where it was looked up; without it, it counts as alive.
        :raises TableUnreadableError: if a file cannot be read or decoded.
        """
        times = self.times(instant)
        if instant.completed:
            metadata = self.commit(instant)
            if metadata is None:  # archived since: long before any writer that is still pending
                return Operation(instant, completed_ms=times.completed_ms)
            return completed_operation(instant, metadata, self.profile(instant), times)
        live = heartbeat is None or heartbeat.live
        beats = heartbeat is None or heartbeat.liveness is not Liveness.NONE
        try:
            planned, profile = self.planned(instant), self.profile(instant)
        except MetadataCorruptError:  # still being written, where the storage shows parts of files
            return pending_operation(instant, None, (), times, live=live, beats=beats)
        if planned is not None:
            return planned_operation(instant, planned, times)
        markers = self.markers(instant.time)
        return pending_operation(instant, profile, markers, times, live=live, beats=beats)

    def times(self, instant: Instant) -> Times:
        """Return when the files of an instant were written, as the timeline's listing tells.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        requested, inflight = instant.requested_file, instant.inflight_file
        return Times(
            self._modified(requested) if requested else None,
            self._modified(inflight) if inflight else None,
            self._modified(instant.file_name) if instant.completed else None,
        )

    def last_times(self, instants: Iterable[Instant]) -> dict[Instant, Times]:
        """Return `times` of instants in one request; of a completed one, only when it completed.

        :raises TableUnreadableError: if the storage cannot be read.
        """

        def last(instant: Instant) -> Times:
            if not instant.completed:
                return self.times(instant)
            return Times(completed_ms=self._modified(instant.file_name))

        ask = self._folder.ask
        return ask(self.timeline_folder, lambda _: {one: last(one) for one in instants}) or {}

    def _decode(self, name: str | None, decode: Callable[[bytes], _T]) -> _T | None:
        if name is None:
            return None
        key = (name, decode.__name__)
        if key not in self._known:
            content = self._folder.read(f"{self.timeline_folder}/{name}")
            if not content:
                return None
            self._known[key] = self._decoded(name, content, decode)
        found: _T = self._known[key]
        return found

    def _decoded(self, name: str, content: Content, decode: Callable[[Any], _T]) -> _T:
        try:
            return decode(content)
        except Exception as error:
            raise MetadataCorruptError(
                f"{self.path}/{self.timeline_folder}/{name} cannot be decoded: {error}",
                remedy="read again; if it stays so, the file was damaged after Hudi had written it",
            ) from error


def heartbeats(folder: TableFolder) -> Mapping[str, int]:
    """Return the epoch milliseconds of each heartbeat's last tick, by requested time.

    :param folder: the table's files.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    ticks = folder.times(".hoodie/.heartbeat")
    return {name: ticked for name, ticked in ticks.items() if name.isdigit()}


def timeline_folder(properties: Mapping[str, str]) -> str:
    """Return the active timeline's folder, relative to the base path.

    The layout decides, never the presence of ``hoodie.timeline.path``: tables of version 6 that a
    1.x writer made name one and do not use it.
    """
    if properties.get("hoodie.timeline.layout.version", "1") == "1":
        return ".hoodie"
    return f".hoodie/{properties.get('hoodie.timeline.path', 'timeline')}"


def history_folder(properties: Mapping[str, str]) -> str:
    """Return the folder of archived instants, relative to the base path."""
    if properties.get("hoodie.timeline.layout.version", "1") == "1":
        return f".hoodie/{properties.get('hoodie.archivelog.folder') or 'archived'}"
    history = properties.get("hoodie.timeline.history.path", "history")
    return f"{timeline_folder(properties)}/{history}"

"""The operations of one snapshot's instants, each read once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import Heartbeat
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot


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

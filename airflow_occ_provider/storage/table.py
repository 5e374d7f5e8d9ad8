"""One Hudi table, read through fsspec; each call reads the storage."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import (
    NotHudiTableError,
    TableUnreadableError,
    UnknownTableVersionError,
)
from airflow_occ_provider.hudi.format.properties import (
    complete_table_properties,
    properties_fault,
)
from airflow_occ_provider.hudi.format.table_config import TableConfig, unsupported
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.storage.address import open_file_system, parse_table_path
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import Listing
from airflow_occ_provider.storage.snapshot import Snapshot

DEFAULT_TIMEOUT_S = 60.0
METADATA_TABLE = ".hoodie/metadata"
PROPERTIES_AGE_S = DEFAULT_RULE.tolerance_ms / 1000
_PROPERTIES = "hoodie.properties"
_WHOLE_TRIES = 5
_WHOLE_PAUSE_S = 0.2
_LAYOUT_1 = TableConfig({"hoodie.timeline.layout.version": "1"}).timeline_folder
_LAYOUT_2 = TableConfig({"hoodie.timeline.layout.version": "2"}).timeline_folder


class _Read(NamedTuple):
    """The last read of ``hoodie.properties``, with the write time if known."""

    config: TableConfig
    written_ms: int | None
    at_s: float


class _IncompleteError(Exception):
    """Neither ``hoodie.properties`` nor its backup was complete."""


class HudiTable:
    """One table, of which the metadata is read.

    :param path: the table's base path, absolute or a URL.
    :param file_system: an fsspec file system that serves it; by default one with the credentials of
        this process.
    :param timeout_s: seconds that one request to the storage may take.
    :raises ConfigurationError: if ``path`` is not one, or no fsspec file system knows its scheme.
    """

    def __init__(
        self, path: str, file_system: Any = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self.scheme, self.path = parse_table_path(path)
        served = file_system or open_file_system(self.scheme, self.path)
        self.files = TableFolder(self.scheme, self.path, served, timeout_s)
        self._last_read: _Read | None = None
        self._newest: Snapshot | None = None

    def diagnosed(self) -> HudiTable:
        """Return a reader to which a damaged file of the timeline is no error.

        The file counts as missing, and is listed in ``damaged`` of its ``files``.
        """
        table = HudiTable(self.path, self.files.file_system, timeout_s=self.files.timeout_s)
        table.files.damaged = {}
        return table

    def metadata_table(self) -> HudiTable:
        """Return a reader of the table's metadata table, itself a table of Hudi."""
        path = f"{self.path}/{METADATA_TABLE}"
        reader = HudiTable(path, self.files.file_system, timeout_s=self.files.timeout_s)
        return reader if self.files.damaged is None else reader.diagnosed()

    def config(self) -> TableConfig:
        """Return ``hoodie.properties``; empty if there is no table yet.

        They are read again once they are older than a dead writer's heartbeat.

        :raises TableUnreadableError: if the storage cannot be read, or neither file is complete.
        """
        last = self._last_read
        if last and last.config.exists and last.at_s >= time.monotonic() - PROPERTIES_AGE_S:
            return last.config
        return self._read_config()

    def _read_config(self) -> TableConfig:
        """Read the file, which Hudi rewrites in place beside a backup: an incomplete one is ignored."""
        contents = dict[str, bytes | None]()

        def read() -> TableConfig:
            for name in (_PROPERTIES, f"{_PROPERTIES}.backup"):
                contents[name] = self.files.read(f".hoodie/{name}")
                properties = complete_table_properties(contents[name] or b"")
                if properties is not None:
                    return self._of_known_version(properties)
            if not self.files.listing(".hoodie").names:
                return TableConfig()
            raise _IncompleteError(properties_fault(contents[_PROPERTIES]))

        try:
            return bounded(read, _IncompleteError, tries=_WHOLE_TRIES, pause_s=_WHOLE_PAUSE_S)
        except _IncompleteError as error:
            fault = str(error)
        settled = complete_table_properties(contents[_PROPERTIES] or b"", needs_checksum=False)
        if settled is not None:  # edited by hand: Hudi reads it too, and no writer is at it by now
            return self._of_known_version(settled)
        raise TableUnreadableError(
            f"{self.path}/.hoodie/hoodie.properties {fault}, and there is no complete backup beside it",
            remedy="wait for the writer that updates it; if there is none, write the file again with "
            "Hudi's repair_overwrite_hoodie_props procedure or from a backup",
        )

    def snapshot(
        self,
        previous: Snapshot | None = None,
        *,
        missing_ok: bool = False,
        max_age_s: float = PROPERTIES_AGE_S,
    ) -> Snapshot:
        """Return a snapshot of the table.

        After the first one, a listing is enough, as long as the timeline shows no sign of an upgrade.

        :param previous: an earlier snapshot: of a long timeline on S3, only a part is listed again.
            Without it, the whole timeline is listed.
        :param max_age_s: seconds after which ``hoodie.properties`` are read again, and the whole
            timeline is listed, in any case.
        :raises NotHudiTableError: if there is no table at the path.
        :raises TableUnreadableError: if the storage cannot be read, or the table is being upgraded or
            downgraded.
        """
        base = previous or self._newest
        if base is None or not base.config.exists:
            return self._opened(missing_ok=missing_ok)
        begun_s = time.monotonic()
        oldest_s = begun_s - max_age_s if previous else math.inf
        listing = self._listed_again(base, oldest_s)
        is_listed = _PROPERTIES in listing.names  # in layout 1
        written_ms = listing.modified(_PROPERTIES) if is_listed else None
        snapshot = base.refreshed(listing)
        if base.timeline.instants and not snapshot.timeline.instants:
            # It was moved, or is back by now.
            return self._opened(missing_ok=missing_ok)
        emptied = not listing.names
        moved_to = self._moved_to(snapshot, listing, force=emptied)
        config = base.config
        last = self._last_read
        unchanged = last and last[:2] == (config, written_ms) and last.at_s >= begun_s - max_age_s
        if emptied or moved_to or not unchanged:
            if self._read_config() != config:
                return self._opened(missing_ok=missing_ok)
            self._refuse_half_moved(moved_to)
            self._last_read = _Read(config, written_ms, begun_s)
        return self._kept(snapshot)

    def last_snapshot(self) -> Snapshot:
        """Return the snapshot that was made last, or a new one if there is none."""
        return self._newest or self.snapshot(missing_ok=True)

    def _kept(self, snapshot: Snapshot) -> Snapshot:
        """Keep a snapshot for the next one, unless another thread has made a newer one meanwhile."""
        newest = self._newest
        if newest is None or snapshot.listing.begun_s >= newest.listing.begun_s:
            self._newest = snapshot
        return snapshot

    def _listed_again(self, previous: Snapshot, oldest_s: float) -> Listing:
        folder = previous.config.timeline_folder
        changes = None
        if previous.listing.begun_s >= oldest_s:
            changes = self.files.changes(folder, previous.listing, previous.timeline)
        return changes or self.files.listing(folder)

    def _opened(self, *, missing_ok: bool) -> Snapshot:
        begun_s = time.monotonic()
        config = self._read_config()
        if not config.exists:
            self._last_read = self._newest = None
            if missing_ok:
                return Snapshot(self.files, config, Listing(), self._reload)
            raise NotHudiTableError(
                f"{self.path} is not a Hudi table: it has no .hoodie/hoodie.properties",
                remedy="give the table's base path, the folder that contains .hoodie",
            )
        self._last_read = _Read(config, None, begun_s)
        listing = self.files.listing(config.timeline_folder)
        snapshot = Snapshot(self.files, config, listing, self._reload)
        moved_to = self._moved_to(snapshot, listing)
        if (moved_to or not snapshot.timeline.instants) and self._read_config() != config:
            return self._opened(missing_ok=missing_ok)
        self._refuse_half_moved(moved_to)
        return self._kept(snapshot)

    def _reload(self, previous: Snapshot) -> Snapshot:
        return self.snapshot(previous, max_age_s=-1)

    def _moved_to(self, snapshot: Snapshot, listing: Listing, *, force: bool = False) -> str | None:
        """Return the folder of the other layout, if it contains instants.

        An upgrade or downgrade moves the instants before it writes the new version (Hudi 1.2.0,
        ``UpgradeDowngrade``). Without a sign of that, the other folder is not listed.
        """
        in_layout_1 = snapshot.config.timeline_folder == _LAYOUT_1
        # The folder of layout 2 is inside that of layout 1, so its listing shows it.
        sign = "timeline" in listing.names if in_layout_1 else not snapshot.timeline.instants
        if not (sign or force):
            return None
        other = _LAYOUT_2 if in_layout_1 else _LAYOUT_1
        names = self.files.listing(other).names
        return other if Timeline.from_file_names(names).instants else None

    def _refuse_half_moved(self, moved_to: str | None) -> None:
        if moved_to:
            change = "upgrade" if moved_to == _LAYOUT_2 else "downgrade"
            raise TableUnreadableError(
                f"{self.path} is being {change}d: it already has instants in {moved_to}",
                remedy=f"read again; if the error stays, let Hudi finish the {change}",
            )

    def retire_heartbeat(self, instant_time: str) -> bool:
        """Delete the heartbeat of a writer that is proven dead; ``False`` if it had none.

        A missing heartbeat counts as expired at once (Hudi 1.2.0, ``HeartbeatUtils``): no process
        waits for the dead writer, and the next lazy clean rolls its instant back.
        """
        existed = self.files.remove(f".hoodie/.heartbeat/{instant_time}")
        if self.scheme == "file":
            self.files.remove(f".hoodie/.heartbeat/.{instant_time}.crc")
        return existed

    def _of_known_version(self, properties: dict[str, str]) -> TableConfig:
        refused = unsupported(properties)
        if refused:
            why, remedy = refused
            raise UnknownTableVersionError(f"{self.path} {why}", remedy=remedy)
        return TableConfig(properties)

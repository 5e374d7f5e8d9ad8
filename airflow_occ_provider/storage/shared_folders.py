"""The folders of drivers of one table, which a process lists together."""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Callable, Mapping
from weakref import WeakSet, WeakValueDictionary

from airflow_occ_provider.errors import OccError
from airflow_occ_provider.storage.address import fsspec_scheme, parse_table_path
from airflow_occ_provider.storage.attempt_folder import HIDDEN, AttemptFolder
from airflow_occ_provider.storage.listing import StoredFile

STALE_S = 2.0
"""How much older than its call a listing may be; looks at drivers of a table begin together."""
_MOST_FILES = 1000  # a page of S3
_registry = threading.Lock()
# They live as long as a driver of the table is followed.
_listings: WeakValueDictionary[tuple[str, str | None], TableListing] = WeakValueDictionary()


class TableListing:
    """The listing of all folders of a table's attempts, in one request.

    :param root: the folder that has them.
    """

    def __init__(self, root: AttemptFolder) -> None:
        self.followed: WeakSet[SharedFolder] = WeakSet()
        self.root = root
        self._lock = threading.Lock()
        self._begun_s = float("-inf")
        self._result: dict[str, dict[str, StoredFile]] | OccError = {}
        self._is_too_long = False

    @property
    def is_worth_it(self) -> bool:
        """Whether it costs less than a listing for each driver that is followed."""
        return len(self.followed) > 1 and not self._is_too_long

    def files(self, name: str, since_s: float) -> Mapping[str, StoredFile]:
        """Return the files of one folder, by a listing that another call may have made.

        :param name: of the folder, relative to the root.
        :param since_s: monotonic time before which the listing must not have begun.
        :raises TableUnreadableError: also that of another call.
        """
        with self._lock:
            if self._begun_s < since_s:
                self._begun_s = time.monotonic()
                try:
                    self._result = self._listed()
                except OccError as error:  # the other calls need not wait for a time-out each
                    self._result = error
            if isinstance(self._result, OccError):
                raise self._result
            return self._result.get(name, {})

    def _listed(self) -> dict[str, dict[str, StoredFile]]:
        files = self.root.below()
        self._is_too_long = len(files) > _MOST_FILES
        folders: dict[str, dict[str, StoredFile]] = {}
        for path, file in files.items():
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, {})[name] = file
        return folders


class SharedFolder:
    """The folder of an attempt, whose listings are shared with others of its table.

    :param name: of the folder in the table's.
    """

    stale_s = STALE_S

    def __init__(self, folder: AttemptFolder, listing: TableListing, name: str) -> None:
        self._folder, self._listing, self._name = folder, listing, name
        self._written_s = float("-inf")
        listing.followed.add(self)

    @property
    def url(self) -> str:
        """The address of the folder, as Hadoop spells it."""
        return self._folder.url

    def entries(self) -> Mapping[str, StoredFile]:
        """Return what the storage says of each file.

        A listing that has begun before the last write of this process is not taken.
        """
        files: Mapping[str, StoredFile] = {}
        if self._listing.is_worth_it:
            since_s = max(time.monotonic() - STALE_S, self._written_s)
            files = self._listing.files(self._name, since_s)
        # A folder that is new may not be in an older listing.
        return files or self._folder.entries()

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Return a file's content, from a byte on; ``None`` if it does not exist."""
        return self._folder.read(name, start)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""
        self._folder.write(name, content)
        self._written_s = time.monotonic()


def shared_folder(
    url: str, storage_conn_id: str | None, open_folder: Callable[[str], AttemptFolder]
) -> AttemptFolder | SharedFolder:
    """Return a folder that shares listings and client with others of its table.

    Only on S3 does one listing show the folders below.

    :param storage_conn_id: connection of its storage.
    :param open_folder: opens a folder of that storage by its URL.
    """
    run, attempt = posixpath.split(url)
    root, identity = posixpath.split(run)
    is_of_table = posixpath.basename(posixpath.dirname(root)) == HIDDEN
    scheme, _ = parse_table_path(url)
    if fsspec_scheme(scheme) != "s3" or not is_of_table:
        return open_folder(url)
    key = root, storage_conn_id
    with _registry:
        listing = _listings.get(key)
    if listing is None:
        opened = TableListing(open_folder(root))  # may ask for the connection
        with _registry:
            listing = _listings.setdefault(key, opened)
    # A client of its own would open a connection for nearly each of its few requests.
    return SharedFolder(AttemptFolder(url, listing.root.file_system), listing, f"{identity}/{attempt}")

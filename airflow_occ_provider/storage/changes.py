"""Lists again only the part of a long timeline in which anything may have changed."""

from __future__ import annotations

from typing import Any

from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.storage.listing import Listing
from airflow_occ_provider.storage.s3_requests import PAGE_KEYS, list_objects, lists_in_order

# Of at most three files each, so that a page has room for hundreds of new files.
_NEWEST = 200
_MOST_OLDER = 8
_UNDOING = ("rollback", "restore")


def may_list_changes(file_system: Any, path: str, last: Listing, timeline: Timeline) -> bool:
    """Whether a part of a timeline may be listed alone."""
    long = len(last.names) > PAGE_KEYS and len(timeline.instants) > _NEWEST
    return (
        long
        and lists_in_order(file_system, path)
        and all(instant.completed or instant.action not in _UNDOING for instant in timeline)
    )


def list_changes(file_system: Any, path: str, last: Listing, timeline: Timeline) -> Listing | None:
    """Return a listing of a timeline that allows it, of which a part is listed again.

    It takes one request for the newest instants, and one for each older one that was pending. The
    other files are taken over: only a rollback, a restore, or the archival removes completed instants.

    :param last: the last listing, of the instants of ``timeline``.
    :returns: ``None`` if the whole folder must be listed: instants were taken back; a file disappeared;
        or the storage cannot list a part.
    """
    start = timeline.instants[-_NEWEST].time
    older = {instant.time for instant in timeline if not instant.completed and instant.time <= start}
    if len(older) > _MOST_OLDER:
        return None
    listed = list_objects(file_system, path, after=start)
    if any(name <= start for name in listed):  # a server that does not know the parameter
        return None
    for time in older:
        listed |= list_objects(file_system, path, stem=time)
    unchanged = [name for name in last.names if name <= start and _time(name) not in older]
    listed_again = set(last.names).difference(unchanged)
    if listed_again.difference(listed) or _has_undone(set(listed) - listed_again):
        return None
    return last.changed(unchanged, listed)


def _time(name: str) -> str:
    return name.partition(".")[0].partition("_")[0]


def _has_undone(new_names: set[str]) -> bool:
    return any(name.split(".")[1:2] in ([action] for action in _UNDOING) for name in new_names)

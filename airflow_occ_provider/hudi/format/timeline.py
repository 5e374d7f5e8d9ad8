"""The active timeline of a table, from one listing of its folder."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, filterfalse, groupby
from operator import attrgetter

from airflow_occ_provider.hudi.format.instant import Instant, State, TimeKind, from_naive_ms, zone_ms

Modified = Callable[[str], int | None]
"""Returns the epoch milliseconds of a file's last write; ``None`` if it is gone."""

# Each action, and the service that completes as it (Hudi 1.2.0, InstantComparatorV1 and V2).
_ACTIONS = {
    "commit": ("compaction",),
    "deltacommit": ("logcompaction",),
    "replacecommit": ("clustering",),
    "clean": (),
    "rollback": (),
    "restore": (),
    "savepoint": (),
    "indexing": (),
    "schemacommit": (),
}
_Files = dict[str, str]
_Written = Callable[[str, str, str | None], str | None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants of the active timeline at their highest states, oldest first.

    :param instants: sorted by time; a savepoint has the time of the commit that it saves.
    """

    instants: tuple[Instant, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def from_file_names(cls, names: Iterable[str], modified: Modified | None = None) -> Timeline:
        """Build the timeline from the file names of its folder; ignore foreign names.

        Before table version 8 the name of a completed file has no completion time. The time of its
        last write is used instead, in the zone of the instant's requested time: the same on each host,
        and as Hudi writes it if the table's time zone is local (Hudi 0.15.0, 1.0.2 and 1.2.0,
        ``HoodieInstantTimeGenerator.formatDate``). It is for people, and orders instants of one zone.
        Where a verdict depends on it, compare the times of the files.

        :param modified: called for such files only; without it their completion time is ``None``.
        """
        listed = tuple(names)
        return cls(tuple(sorted(_instants(listed, _written(modified)))), listed)

    def refreshed(self, names: Iterable[str], modified: Modified | None = None) -> Timeline:
        """Return the timeline of a newer listing; unchanged instants are reused."""
        listed = tuple(names)
        changed = {_time(name) for name in frozenset(listed) ^ frozenset(self.names)}
        if not changed:
            return self
        again = _instants((name for name in listed if _time(name) in changed), _written(modified))
        unchanged = (instant for instant in self.instants if instant.time not in changed)
        return Timeline(tuple(sorted([*unchanged, *again])), listed)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def find(self, time: str) -> Instant | None:
        """Return the instant with a requested time, if the active timeline holds it.

        A commit and its savepoint have the same time: then it is the commit.
        """
        place = bisect_left(self.instants, time, key=attrgetter("time"))
        instants = self.instants[place : place + 1]
        return instants[0] if instants and instants[0].time == time else None

    def completed_writes(self) -> tuple[Instant, ...]:
        """Return completed commits, deltacommits and replacecommits, by request."""
        return tuple(instant for instant in self.instants if instant.completed and instant.is_write)

    def pending_writes(self) -> tuple[Instant, ...]:
        """Return requested and inflight commits, deltacommits and replacecommits."""
        return tuple(i for i in self.instants if not i.completed and i.is_write)

    def between(self, start: str, end: str, *, by: TimeKind = "completion_time") -> tuple[Instant, ...]:
        """Return the instants after one time, up to and with another one, in order.

        Pending instants have no completion time.

        :param start: ``yyyyMMddHHmmssSSS`` in the table's time zone; empty for the first instant.
        :param end: the same.
        :param by: ``"completion_time"`` or ``"requested_time"``.
        :raises ValueError: for another one.
        """
        instants = (instant for instant in self if start < instant.time_of(by) <= end)
        return tuple(sorted(instants, key=lambda instant: instant.time_of(by)))

    def collisions(self) -> tuple[tuple[Instant, ...], ...]:
        """Return the instants that share a requested time.

        Their writers had no common lock. A savepoint has that of its commit, and does not count.
        """
        return collisions(self)

    def unbroken_since(self) -> str:
        """Return the requested time since which no completed write is archived.

        Hudi archives the oldest writes first, but a savepoint may keep one for longer than younger ones
        (``hoodie.archive.beyond.savepoint``). So the timeline begins with the oldest write that no
        savepoint names, as in Hudi (1.2.0, ``BaseHoodieTimeline.findFirstNonSavepointCommit``). Its
        youngest writes are never archived.

        :returns: empty without a completed write.
        """
        saved = {instant.time for instant in self if instant.action == "savepoint"}
        writes = self.completed_writes()
        unsaved = (write.time for write in writes if write.time not in saved)
        return next(unsaved, writes[-1].time if writes else "")

    @property
    def latest_completed_write(self) -> str | None:
        """Requested time of the youngest completed write."""
        writes = self.completed_writes()
        return writes[-1].time if writes else None


def collisions(instants: Iterable[Instant]) -> tuple[tuple[Instant, ...], ...]:
    """Return the groups of instants, but for savepoints, that share a requested time."""
    named = sorted(instant for instant in instants if instant.action != "savepoint")
    groups = (tuple(equal) for _, equal in groupby(named, key=attrgetter("time")))
    return tuple(group for group in groups if len(group) > 1)


def _by_ending(names: Iterable[str]) -> dict[str, _Files]:
    """Group names by the ending after their first dot, then by the part before it.

    Names with endings unknown to Hudi (1.2.0, ``ActiveTimelineV1`` and ``V2``) are ignored, such as
    those of checksums and temporary files.
    """
    files: dict[str, _Files] = {
        ending: {}
        for action, services in _ACTIONS.items()
        for word in (action, *services)
        for ending in (_requested(word), _inflight(word), action)
    }
    for name in names:
        stem, _, ending = name.partition(".")
        group = files.get(ending)
        if group is not None:
            group[stem] = name
    return files


def _requested(action: str) -> str:
    return f"{action}.requested"


def _inflight(action: str) -> str:
    return "inflight" if action == "commit" else f"{action}.inflight"


def _instants(names: Iterable[str], written: _Written) -> Iterator[Instant]:
    files = _by_ending(names)
    # A savepoint has the time of its commit, and no requested file.
    stated = {
        time: name
        for ending, group in files.items()
        if ending.endswith(".requested")
        for time, name in group.items()
    }

    def completed_at(time: str, name: str) -> str | None:
        return written(time, name, stated.get(time))

    for action, services in _ACTIONS.items():
        requested, inflight = files[_requested(action)], files[_inflight(action)]
        for service in services:
            requested = files[_requested(service)] | requested
            inflight = files[_inflight(service)] | inflight
        done = _completed(action, files[action], requested, inflight, completed_at)
        yield from done.values()
        yield from _pending(requested, inflight, done)


def _completed(
    action: str,
    files: _Files,
    requested: _Files,
    inflight: _Files,
    completed_at: Callable[[str, str], str | None],
) -> dict[str, Instant]:
    completed = {}
    # Sorted, so that the later of two completions of one instant counts.
    for stem in sorted(files):
        time, stamped, completion = stem.partition("_")
        if time.isdecimal() and (completion.isdecimal() or not stamped):
            name = files[stem]
            completed[time] = Instant(
                time,
                action,
                State.COMPLETED,
                name,
                completion or completed_at(time, name),
                requested.get(time),
                inflight.get(time),
            )
    return completed


def _pending(requested: _Files, inflight: _Files, done: dict[str, Instant]) -> Iterator[Instant]:
    undone = set(filterfalse(done.__contains__, chain(requested, inflight)))
    for time in filter(str.isdecimal, undone):
        started = inflight.get(time)
        name = started or requested[time]
        word = name.split(".")[1]
        action = "commit" if word == "inflight" else word
        state = State.INFLIGHT if started else State.REQUESTED
        yield Instant(time, action, state, name, None, requested.get(time), started)


def _time(name: str) -> str:
    return name.partition(".")[0].partition("_")[0]


def _written(modified: Modified | None) -> _Written:
    def written(time: str, name: str, requested: str | None) -> str | None:
        completed_ms = modified(name) if modified else None
        if modified is None or completed_ms is None:
            return None
        ahead_ms = zone_ms(time, modified(requested)) if requested else None
        return from_naive_ms(completed_ms + (ahead_ms or 0))

    return written

"""The active timeline of a table, as one listing of its folder tells it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_occ_provider.hudi.instant import Instant, parse_file_name


@dataclass(frozen=True, slots=True)
class Timeline:
    """Each instant of the active timeline once, at its highest state, oldest first."""

    instants: tuple[Instant, ...] = ()

    @classmethod
    def from_file_names(cls, names: Iterable[str]) -> Timeline:
        """Build the timeline from the file names of its folder; foreign names are passed over."""
        highest: dict[str, Instant] = {}
        for instant in filter(None, map(parse_file_name, names)):
            known = highest.get(instant.time)
            if known is None or instant.progress > known.progress:
                highest[instant.time] = instant
        return cls(tuple(highest[time] for time in sorted(highest)))

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def find(self, time: str) -> Instant | None:
        """Return the instant of that requested time, if the active timeline holds it."""
        return next((instant for instant in self.instants if instant.time == time), None)

    def completed_writes(self) -> tuple[Instant, ...]:
        """Return completed commits, deltacommits and replacecommits, oldest request first."""
        return tuple(instant for instant in self.instants if instant.completed and instant.is_write)

    def pending_writes(self) -> tuple[Instant, ...]:
        """Return requested and inflight commits, deltacommits and replacecommits."""
        return tuple(i for i in self.instants if not i.completed and i.is_write)

    @property
    def latest_completed_write(self) -> str | None:
        """Requested time of the youngest completed write."""
        writes = self.completed_writes()
        return writes[-1].time if writes else None

"""When the committed writes of a run began and were completed: by its rows and its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from airflow_occ_provider.hudi.conflict.operation import Times
from airflow_occ_provider.storage.table import HudiTable
from tests.bench.conflict.events import Event


class Span(NamedTuple):
    """A write from its requested instant to its completion, in seconds since its run began."""

    requested_s: float
    completed_s: float


def times_of_writes(table: Path) -> dict[str, Times]:
    """Return when the files of each completed write's instant were written."""
    look = HudiTable(str(table)).snapshot()
    return {one.time: look.times(one) for one in look.timeline.completed_writes()}


def with_spans(
    events: Iterable[Event],
    instants: Mapping[str, Iterable[str]],
    times: Mapping[str, Times],
    began_s: float,
) -> Iterator[Event]:
    """Yield the events; the committed ones with the span of their write.

    :param instants: commit times of each writer's rows.
    :param times: of the instants of the timeline.
    :param began_s: seconds since the epoch at which the run began.
    """
    for event in events:
        spans = (span_of(times.get(one), began_s) for one in instants.get(event.writer, ()))
        own = [span for span in spans if span and event.start_s <= span.requested_s <= event.end_s]
        yield replace(event, **max(own)._asdict()) if event.committed and own else event


def span_of(times: Times | None, began_s: float) -> Span | None:
    """Return the span of a write, if the timeline still shows both ends."""
    if times is None or times.requested_ms is None or times.completed_ms is None:
        return None
    ends_s = (one / 1000 - began_s for one in (times.requested_ms, times.completed_ms))
    return Span(*(round(one, 3) for one in ends_s))

"""The rows of the tables on a table's page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_occ_provider.attempts.scope import HINTS
from airflow_occ_provider.hudi.format.instant import State
from airflow_occ_provider.leases.rules import Blocker, Scope
from airflow_occ_provider.reading.described import renewal
from airflow_occ_provider.reading.table_state import LiveWriter, PendingService, QueueLine
from airflow_occ_provider.spelling import spell_span, spell_time
from airflow_occ_provider.ui.links import Party, Viewer, of_request, of_signature
from airflow_occ_provider.ui.view import TablePage
from airflow_occ_provider.ui.words import margin, state

MOST_ROWS = 100
MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Names:
    """The first few names of a list, and how many more there are."""

    shown: tuple[str, ...]
    more: int

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Return the first ``MOST_NAMES`` of them."""
        every = tuple(name or "unpartitioned" for name in names)
        return cls(every[:MOST_NAMES], max(len(every) - MOST_NAMES, 0))


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """An earlier request that blocks another one."""

    owner: Party
    scope: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A request of the queue.

    :param more: how many more requests block it.
    :param task_state: of its owner's task; empty if that is not known, or not for the viewer.
    """

    place: int
    owner: Party
    holds: bool
    blocked_by: tuple[BlockedBy, ...]
    more: int
    since: str
    renewal: tuple[str, ...]
    scopes: Names
    task_state: str = ""


@dataclass(frozen=True, slots=True)
class WriterRow:
    """A pending write."""

    instant: str
    kind: str
    owner: Party | None
    state: str
    heartbeat: str
    partitions: Names
    verdict: str


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """A pending table service."""

    instant: str
    kind: str
    state: str
    partitions: Names
    age: str


def queue_rows(page: TablePage) -> tuple[QueueRow, ...]:
    """Return the first rows of the queue; none if it was not asked for."""
    queue = page.table.state.queue if page.table.state else None
    return tuple(_queued(line, page) for line in (queue or ())[:MOST_ROWS])


def writer_rows(page: TablePage) -> tuple[WriterRow, ...]:
    """Return the first rows of the pending writes."""
    if not (table_state := page.table.state):
        return ()
    signatures = table_state.signatures
    owners = {instant: of_signature(signature, page.viewer) for instant, signature in signatures.items()}
    return tuple(
        _writer(writer, owners.get(writer.instant.time)) for writer in table_state.writers[:MOST_ROWS]
    )


def service_rows(page: TablePage) -> tuple[ServiceRow, ...]:
    """Return the first rows of the pending table services."""
    table_state = page.table.state
    return tuple(map(_service, table_state.services[:MOST_ROWS])) if table_state else ()


def _queued(line: QueueLine, page: TablePage) -> QueueRow:
    queued, path = line.queued, page.table.path
    since = ""
    if queued.since_ms:
        since = f"{spell_time(queued.since_ms)} ({spell_span(page.now_ms - queued.since_ms)})"
    scopes = [scope for scope in queued.request.scopes if scope.table == path] or queued.request.scopes
    blocked_by = tuple(_blocker(blocker, path, page.viewer) for blocker in line.waits_for[:MOST_NAMES])
    more = len(line.waits_for) - len(blocked_by)
    owner = of_request(queued, page.viewer)
    texts = Names.of(_scope(scope, path) for scope in scopes)
    words = renewal(queued, page.now_ms)
    task_state = page.task_states.get(queued.request.owner, "") if owner.is_named else ""
    return QueueRow(line.place, owner, line.holds, blocked_by, more, since, words, texts, task_state)


def _blocker(blocker: Blocker, path: str, viewer: Viewer) -> BlockedBy:
    return BlockedBy(of_request(blocker.queued, viewer), _scope(blocker.theirs, path))


def _scope(scope: Scope, path: str) -> str:
    text = f"{scope.mode}, {scope.extent}"
    if scope.table == f"{path}{HINTS}":
        return f"by its last try, {scope.extent}"
    return text if scope.table == path else f"{text} of {scope.table}"


def _writer(writer: LiveWriter, owner: Party | None) -> WriterRow:
    return WriterRow(
        writer.instant.time,
        writer.kind,
        owner,
        state(writer.fate),
        margin(writer.margin_ms),
        Names.of(writer.partitions),
        writer.sentence,
    )


def _service(service: PendingService) -> ServiceRow:
    step = "planned" if service.instant.state is State.REQUESTED else "started"
    beats = "its writer is alive" if service.fate.beating else "no valid heartbeat"
    age = "" if service.age_ms is None else spell_span(service.age_ms)
    return ServiceRow(
        service.instant.time,
        service.instant.action,
        f"{step}, {beats}",
        Names.of(service.partitions),
        age,
    )

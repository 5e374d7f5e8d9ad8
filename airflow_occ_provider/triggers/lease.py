"""Triggers that wait for a lease, keep one, or wait for a free scope.

They share one session of a lock service per connection and process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow.sdk import conf
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import TriggerEvent

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError, OccError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.observer import RECENT, RENEWALS_PER_TTL, TRUSTED
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import QueuedRequest, Scope, conflicting
from airflow_occ_provider.triggers.base import HudiTrigger, WaitingTrigger, in_thread, until_earliest

_registry = threading.Lock()
_by_connection: dict[str, _Shared] = {}
_RETRY_S = 1.0
_CHECK_S = 900.0
FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States of a task that does nothing more."""
# Airflow 3.3 gives the triggers of a crashed triggerer to another one after 55 to 75 seconds.
_REASSIGNED_MS = 180_000
# The share of a triggerer's slots for waiters; the keepers of held leases need the others.
_WAITER_SHARE = 0.9
_FULL_S = 60.0
_waiting: set[int] = set()


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queue: Queue | None = None
        self.users = 0


@asynccontextmanager
async def shared_queue(lock_conn_id: str) -> AsyncIterator[Queue]:
    """Share the queue of a connection; the last user's exit closes its session.

    :raises ConfigurationError: if the connection is missing, wrong or rejected.
    :raises LockUnreachableError: if the lock service does not answer in time.
    """
    entering = asyncio.ensure_future(in_thread(lock_conn_id, _enter, lock_conn_id))
    try:
        queue = await asyncio.shield(entering)
    except asyncio.CancelledError:
        entering.add_done_callback(lambda entered: _give_back(entered, lock_conn_id))
        raise
    try:
        yield queue
    finally:
        await asyncio.shield(in_thread(lock_conn_id, _leave, lock_conn_id))


def _give_back(entered: asyncio.Future[Queue], lock_conn_id: str) -> None:
    """Leave on behalf of a trigger that was cancelled while it entered."""
    if not entered.cancelled() and entered.exception() is None:
        threading.Thread(target=_leave, args=(lock_conn_id,), daemon=True).start()


def _enter(lock_conn_id: str) -> Queue:
    with _registry:
        shared = _by_connection.setdefault(lock_conn_id, _Shared())
        shared.users += 1
    try:
        with shared.lock:
            if shared.queue is None:
                shared.queue = lock_hook(lock_conn_id).leases()
            return shared.queue
    except BaseException:
        _leave(lock_conn_id)
        raise


def _leave(lock_conn_id: str) -> None:
    with _registry:
        shared = _by_connection[lock_conn_id]
        shared.users -= 1
        if shared.users:
            return
        del _by_connection[lock_conn_id]
    with shared.lock:
        if shared.queue:
            shared.queue.close()


@dataclass(kw_only=True, eq=False, repr=False)
class HudiFreeScopeTrigger(WaitingTrigger):
    """A trigger that fires when a scope is free.

    Event statuses: ``free``, ``timeout``.

    :param lock_conn_id: Airflow connection of the lock service.
    :param table: canonical base path of the table.
    :param partitions: partition paths; ``None`` for the whole table.
    :param poll_s: seconds between two checks.
    :param deadline_ms: epoch milliseconds at which it times out.
    """

    lock_conn_id: str
    table: str
    partitions: Sequence[str] | None
    poll_s: float

    async def event(self) -> dict[str, Any]:
        """Check the queue regularly, in a thread, until nothing conflicts."""
        scope = Scope.of(self.table, self.partitions)
        while True:
            try:
                async with shared_queue(self.lock_conn_id) as queue:
                    # One queue for all checks: it remembers since when a request has not been renewed.
                    while True:
                        if not conflicting(scope, await self._live_requests(queue)):
                            return {"status": "free"}
                        await asyncio.sleep(self.poll_s)
            except LockUnreachableError as error:
                self.log.warning("Retrying: %s", error.message)
                await asyncio.sleep(self.poll_s)

    async def _live_requests(self, queue: Queue) -> Sequence[QueuedRequest]:
        return await in_thread(self.lock_conn_id, queue.live_requests, self.table)


@dataclass(kw_only=True, eq=False, repr=False)
class LeaseTrigger(HudiTrigger):
    """The base of the triggers that renew a request until their deadline.

    Each renewal is long enough for another triggerer to take over after a crash. A triggerer that shuts
    down cleanly renews the lease for its claim TTL.

    :param lock_conn_id: Airflow connection of the lock service.
    :param ticket: of the request, as JSON values.
    :param ttl_ms: milliseconds without a renewal after which the request expires.
    :param claim_ttl_ms: the same while the lease passes to the next process.
    :param deadline_ms: epoch milliseconds at which it fires with the status ``timeout``; 0 for never.
    """

    lock_conn_id: str
    ticket: Mapping[str, Any]
    ttl_ms: int
    claim_ttl_ms: int
    deadline_ms: int = 0
    _begun_s: float = field(init=False, default=float("-inf"))
    _renewed_s: float = field(init=False, default=float("-inf"))
    _extended_s: float = field(init=False, default=float("-inf"))
    _has_fired: bool = field(init=False, default=False)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Renew until there is an event; retry while the lock service is unavailable."""
        self._begun_s = self._renewed_s = time.monotonic()
        told = ""
        while True:
            try:
                async with shared_queue(self.lock_conn_id) as queue:
                    event = await self._follow(queue, Ticket.from_json(self.ticket))
            except LeaseLostError as error:
                event = {"status": "lost", "message": error.message}
            except LockUnreachableError as error:
                if error.message != told:  # an outage may take hours
                    self.log.warning("Retrying: %s", told := error.message)
                await asyncio.sleep(_RETRY_S)
                event = {"status": "timeout"} if self._is_late else None
            except OccError as error:
                event = {"status": "error", "message": str(error)}
            if event:
                await until_earliest(self._begun_s)
                self._has_fired = True
                yield TriggerEvent(event)
                return

    async def cleanup(self) -> None:
        """Claim the lease for the trigger's next process, unless the trigger has fired."""
        if not self._has_fired:
            await self._hand_over(release=False)

    async def _follow(self, queue: Queue, ticket: Ticket) -> dict[str, Any] | None:
        raise NotImplementedError

    async def _renew(self, queue: Queue, ticket: Ticket, ttl_ms: int) -> None:
        started_s = time.monotonic()
        await in_thread(self.lock_conn_id, queue.renew, ticket, ttl_ms)
        self._renewed_s = self._extended_s = started_s

    @property
    def _term_ms(self) -> int:
        return max(self.ttl_ms, min(self.claim_ttl_ms, _REASSIGNED_MS))

    @property
    def _period_s(self) -> float:
        return self.ttl_ms / 1000 / RENEWALS_PER_TTL

    @property
    def _is_late(self) -> bool:
        return 0 < self.deadline_ms <= round(time.time() * 1000)

    async def _hand_over(self, *, release: bool) -> bool:
        """Release the request, or claim it for the next process; return whether that succeeded."""
        with suppress(OccError):
            async with shared_queue(self.lock_conn_id) as queue:
                ticket = Ticket.from_json(self.ticket)
                if release:
                    await in_thread(self.lock_conn_id, queue.release, ticket)
                else:
                    await self._renew(queue, ticket, self.claim_ttl_ms)
            return True
        return False


@dataclass(kw_only=True, eq=False, repr=False)
class HudiAdmissionTrigger(LeaseTrigger):
    """A trigger that renews a queued request and fires when the lease is granted.

    Event statuses: ``granted``, ``next``, ``lost`` (the request expired: request again), ``timeout``,
    ``error``, and ``full`` (the triggerer has no slot for another waiter: check again in ``again_s``
    seconds). The lease stays claimed for the task's next process.

    :param until_next: whether it also fires once the request is the next one.
    """

    until_next: bool = False

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, unless the waiters in this triggerer use all slots for waiters."""
        if len(_waiting) >= _WAITER_SHARE * conf.getint("triggerer", "capacity", fallback=1000):
            begun_s = time.monotonic()
            await until_earliest(begun_s)
            await self._hand_over(release=False)
            self._has_fired = True
            again_s = min(_FULL_S, self.claim_ttl_ms / 4000)
            yield TriggerEvent({"status": "full", "again_s": again_s})
            return
        _waiting.add(id(self))
        try:
            async for event in super().run():
                yield event
        finally:
            _waiting.discard(id(self))

    async def _follow(self, queue: Queue, ticket: Ticket) -> dict[str, Any] | None:
        loop, changed, logged = asyncio.get_running_loop(), asyncio.Event(), ""

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(changed.set)

        renew_s = float("-inf")
        while not self._is_late:
            changed.clear()
            if time.monotonic() >= renew_s:
                renew_s = time.monotonic() + self._period_s
                await self._renew(queue, ticket, self._term_ms)
            status = await in_thread(
                self.lock_conn_id,
                queue.status,
                ticket,
                wake,
                age_s=self._period_s * RECENT,
                until_next=self.until_next,
            )
            if status.ends_wait(until_next=self.until_next):
                await self._renew(queue, ticket, self.claim_ttl_ms)
                if await until_earliest(self._begun_s):  # the claim begins as the trigger fires
                    await self._renew(queue, ticket, self.claim_ttl_ms)
                return {"status": "granted" if status.held else "next"}
            if str(status) != logged:
                logged = str(status)
                self.log.info("Waiting: %s", logged)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), self._period_s)
        return {"status": "timeout"}

    async def on_kill(self) -> None:
        """Release the request: the user cleared or ended the task."""
        await self._hand_over(release=True)


@dataclass(kw_only=True, eq=False, repr=False)
class HudiKeepLeaseTrigger(LeaseTrigger):
    """A trigger that renews a held lease until it is gone.

    It needs no worker while the lease is held: it asks Airflow itself, each quarter of an hour,
    whether the run's release has ended.

    Event statuses: ``check`` (still held, though a release has ended), ``released`` (gone although
    renewed in time: by its owner or a person), ``lost`` (gone after a TTL without a renewal), ``error``.
    All but the last have the ticket's ``name``.

    :param release_task_ids: the run's tasks that release the lease.
    """

    release_task_ids: Sequence[str] = ()

    async def _follow(self, queue: Queue, ticket: Ticket) -> dict[str, Any] | None:
        checked_s = time.monotonic()
        while True:
            has_ended = False
            if time.monotonic() - checked_s >= _CHECK_S:
                checked_s = time.monotonic()
                has_ended = await self._has_release_ended()
            try:  # a release that has just ended has ended the lease, as a rule
                await self._renew(queue, ticket, self.claim_ttl_ms if has_ended else self._term_ms)
                await in_thread(self.lock_conn_id, queue.sweep, ticket)
            except LeaseLostError as error:
                unrenewed_s = time.monotonic() - self._renewed_s
                status = "released" if unrenewed_s < self._term_ms / 1000 * TRUSTED else "lost"
                self.log.info("%s", error.message)
                return {"status": status, "message": error.message, "name": ticket.name}
            if has_ended:
                return {"status": "check", "name": ticket.name}
            await asyncio.sleep(self._period_s)

    async def _has_release_ended(self) -> bool:
        ti = self.task_instance
        if ti is None or not self.release_task_ids:
            return False
        ask = partial(states_of, ti, self.release_task_ids, RuntimeTaskInstance.get_task_states)
        try:
            return bool(FINISHED.intersection(await in_thread("airflow", ask)))
        except (AirflowRuntimeError, OSError, EOFError) as error:
            self.log.warning("Airflow did not say whether the release has ended: %s", error)
            return False


def states_of(
    ti: Any, task_ids: Sequence[str], get_task_states: Callable[..., dict[str, Any]]
) -> set[str | None]:
    """Return the states of other tasks of a task instance's run, with its map index.

    :param ti: the task instance, of a worker or of a trigger.
    :param get_task_states: Airflow's call.
    """
    is_mapped = ti.map_index is not None and ti.map_index >= 0
    states = get_task_states(
        dag_id=ti.dag_id,
        map_index=ti.map_index if is_mapped else None,
        task_ids=list(task_ids),
        run_ids=[ti.run_id],
    )
    return set(states.get(ti.run_id, {}).values())

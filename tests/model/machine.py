"""The state machine: what may happen to clients of a queue, in any order."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from unittest import mock

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from airflow_occ_provider.leases import queue as queue_module
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.leases.store import Store
from tests.model.wire import Fault
from tests.model.world import Claim, Client, World

A, B = "file:///a", "file:///b"
SCOPES = (
    (Scope.of(A, None, Mode.SHARED),),
    (Scope.of(A, None),),
    (Scope.of(A, ["p=1"]),),
    (Scope.of(A, ["p=1/q=1"]),),
    (Scope.of(A, ["p=2"]),),
    (Scope.of(A, ["p=1/q=2", "p=2"]),),
    (Scope.of(B, None, Mode.SHARED),),
    (Scope.of(B, ["p=1"]),),
    (Scope.of(A, None, Mode.SHARED), Scope.of(B, ["p=1"])),
    (Scope.of(B, None), Scope.of(A, ["p=2"])),
)
BELOW = ((), (), ("t0",), ("t1",), ("t0", "0"))
_MOST_CLAIMS = 9
_FAULTS = [fault for fault in Fault if fault is not Fault.STALLED]
_EXAMPLE_STEPS = 60

small = st.integers(0, 9)


class QueueMachine(RuleBasedStateMachine):
    """``counts``, ``stores`` and ``queue`` are set by ``run``."""

    counts: Counter[str]
    stores: Sequence[Store] | None = None
    queue: type[Queue] = Queue

    def __init__(self) -> None:
        super().__init__()
        self._names = mock.patch.object(queue_module, "uuid", _Uuids())
        self._names.start()
        self.asked = self._before = 0
        self.tries: dict[Owner, list[str]] = {}
        self.world = World(self.counts, self.stores, self.queue)

    @rule(client=small, run=st.integers(0, 2), below=small, scopes=small, slow=st.booleans())
    def request(self, client: int, run: int, below: int, scopes: int, slow: bool) -> None:
        self._step("request")
        self._request(client, run, below, scopes, slow)

    @rule(client=small, claim=small)
    def request_again(self, client: int, claim: int) -> None:
        self._step("request again")
        if (found := self._claim(claim)) and self.world.acts(chosen := self._client(client)):
            self._ask_again(found, found.asked, chosen)
        else:
            self._idle(claim)

    @rule(client=small, claim=small)
    def younger_try(self, client: int, claim: int) -> None:
        """A later try of the task requests what an earlier one has."""
        self._step("younger try")
        if (found := self._claim(claim)) and self.world.acts(chosen := self._client(client)):
            self.world.older.append(found.asked)
            younger = replace(found.asked, incarnation=found.asked.incarnation + 1)
            self._ask_again(found, younger, chosen)
        else:
            self._idle(claim)

    @rule(number=small, client=small)
    def older_try(self, number: int, client: int) -> None:
        """An earlier try resumes, and requests what a later one has requested since."""
        self._step("older try")
        older, chosen = self.world.older, self._client(client)
        if not older or not self.world.acts(chosen):
            self._idle(number)
            return
        asked = older[-1 - number % len(older)]
        same = [one for one in self.world.claims if one.asked.id == asked.id]
        if any(one.keeper and one.keeper.busy for one in same):
            self._idle(number)
        elif same and same[0].asked.incarnation <= asked.incarnation:
            self._ask_again(same[0], asked, chosen)
        else:
            self.world.claims.append(claim := Claim(asked, chosen, polled=self.world.now))
            self.world.request(claim)

    @rule(claim=small)
    def status(self, claim: int) -> None:
        self._step("status")
        if found := self._kept(claim):
            self.world.status(found)
        else:
            self._idle(claim)

    @rule(claim=small, factor=st.integers(1, 3))
    def renew(self, claim: int, factor: int) -> None:
        self._step("renew")
        if found := self._kept(claim):
            self.world.renew(found, factor)
        else:
            self._idle(claim)

    @rule(claim=small)
    def ensure_held(self, claim: int) -> None:
        self._step("ensure_held")
        if found := self._kept(claim):
            self.world.ensure_held(found)
        else:
            self._idle(claim)

    @rule(claim=small, client=small)
    def adopt(self, claim: int, client: int) -> None:
        self._step("adopt")
        found, chosen = self._claim(claim), self._client(client)
        if found and found.ticket and self.world.acts(chosen):
            self.world.adopt(found, chosen)
        else:
            self._idle(claim)

    @rule(claim=small)
    def release(self, claim: int) -> None:
        self._step("release")
        if found := self._kept(claim):
            self.world.release(found)
        else:
            self._idle(claim)

    @rule(number=small, what=st.sampled_from(["renew", "status", "ensure_held", "release", "adopt"]))
    def zombie(self, number: int, what: str) -> None:
        self._step("zombie")
        if self.world.zombies:
            self.world.zombie(number, what)
        else:
            self._idle(number)

    @rule(client=small)
    def kill(self, client: int) -> None:
        self._step("kill")
        if self.world.acts(chosen := self._client(client)):
            self.world.kill(chosen)

    @rule(client=small, ticks=st.integers(1, 40))
    def pause(self, client: int, ticks: int) -> None:
        self._step("pause")
        self._client(client).paused_until = self.world.now + ticks / 2

    @rule(claim=small, skip=st.integers(0, 3), fault=st.sampled_from(_FAULTS), call=small)
    def fault(self, claim: int, skip: int, fault: Fault, call: int) -> None:
        self._step(f"fault: {fault}")
        if (found := self._kept(claim)) and found.keeper:
            found.keeper.wire.arm(fault, skip)
            self._do(found, call)
        else:
            self._client(claim).wire.arm(fault, skip)

    @rule(
        claim=small,
        skip=st.integers(0, 3),
        ticks=st.integers(0, 3) | st.integers(0, 50),
        call=small,
        other=small,
        what=small,
    )
    def stall(self, claim: int, skip: int, ticks: int, call: int, other: int, what: int) -> None:
        self._step("stall")
        if not ((found := self._kept(claim, waiting=call % 2 == 0)) and found.keeper):
            self._idle(claim)
            return
        found.keeper.wire.arm(Fault.STALLED, skip, lambda: self._meanwhile(other, what, ticks))
        self._do(found, call)

    @rule(
        client=small,
        run=st.integers(0, 2),
        below=small,
        scopes=small,
        skip=st.integers(0, 3),
        other=small,
    )
    def stall_request(
        self, client: int, run: int, below: int, scopes: int, skip: int, other: int
    ) -> None:
        self._step("stall in a request")

        def meanwhile() -> None:
            self.counts["stalls"] += 1
            self._request(other, run, other // 4, scopes if other % 2 else other, False)
            self.world.pass_time(other // 2)

        if self.world.acts(chosen := self._client(client)):
            chosen.wire.arm(Fault.STALLED, skip, meanwhile)
            self._request(client, run, below, scopes, False)

    @rule(claim=small, ticks=st.integers(8, 40))
    def stop_after_a_claim(self, claim: int, ticks: int) -> None:
        self._step("stop after a claim")
        if not ((found := self._kept(claim)) and found.keeper):
            self._idle(claim)
            return
        self.world.renew(found, 3)
        for arm, do in (
            ((Fault.UNANSWERED, 0), self.world.renew),
            ((Fault.STALLED, 0, lambda: self.world.pass_time(ticks)), self.world.status),
        ):
            if found in self.world.claims and found.ticket and self.world.acts(found.keeper):
                found.keeper.wire.arm(*arm)
                do(found)

    @rule(claim=small, client=small, call=small, do=st.sampled_from(["adopt", "keep"]))
    def behind(self, claim: int, client: int, call: int, do: str) -> None:
        """A client whose server lags adopts, or continues with, a request that changed meanwhile."""
        self._step("behind")
        found, chosen = self._kept(claim), self._client(client)
        if not found or not self.world.acts(chosen):
            self._idle(claim)
            return
        self.world.fall_behind(client)
        self._do(found, call)
        if found in self.world.claims and found.ticket and self.world.acts(chosen):
            if do == "adopt":
                self.world.adopt(found, chosen)
            else:
                self.world.fall_behind(client)
        if found in self.world.claims and found.ticket and self.world.acts(found.keeper):
            self._do(found, (call + client) % 10)

    @rule(run=st.integers(0, 2), below=small, scopes=small, ticks=st.integers(6, 20), client=small)
    def store_is_away(self, run: int, below: int, scopes: int, ticks: int, client: int) -> None:
        self._step("store is away")
        self._request(client, run, below, scopes, False)
        if not self.world.is_away:
            self.world.be_away(ticks)
        self.world.pass_time(2)

    @rule(ticks=st.integers(1, 12))
    def time_passes(self, ticks: int) -> None:
        self._step("time passes")
        self.world.pass_time(ticks)

    @rule(
        claims=st.lists(st.tuples(small, small, small), min_size=2, max_size=4), ticks=st.integers(1, 60)
    )
    def crowd(self, claims: list[tuple[int, int, int]], ticks: int) -> None:
        self._step("crowd")
        for client, run, scopes in claims:
            self._request(client, run % 3, 2 + run // 3, scopes, False)
        self.world.pass_time(ticks)

    @rule(seconds=st.integers(-4000, 4000))
    def server_clock_jumps(self, seconds: int) -> None:
        self._step("server clock jumps")
        self.world.server_ms += seconds * 1000

    def teardown(self) -> None:
        try:
            self.world.come_to_an_end()
            self.counts["trace"] = (self.counts["trace"] * 31 + self.world.checker.trace) % 2**32
        finally:
            self._names.stop()
            for store in (self.stores or ())[:1]:
                for name, node in store.read(store.stamps()).items():
                    store.delete(name, node.version)

    def _request(self, client: int, run: int, below: int, scopes: int, slow: bool) -> None:
        chosen = self._client(client)
        if len(self.world.claims) >= _MOST_CLAIMS or not self.world.acts(chosen):
            return
        self.asked += 1
        self.counts["requests"] += 1
        path = ("dag", f"r{run}", *BELOW[below % len(BELOW)])
        site = "green" if client % 4 == 3 else "blue"
        owner = Owner(path, "" if len(path) > 2 else f"ask{below % 2}", site)
        before = self.tries.setdefault(owner, [])
        asked = Request(
            f"q{self.asked}",
            owner,
            SCOPES[scopes],
            6000 if slow else 3000,
            incarnation=10 * len(before),
            supersedes=tuple(before),
        )
        before.append(asked.id)
        claim = Claim(asked, chosen, polled=self.world.now)
        self.world.claims.append(claim)
        self.world.request(claim)

    def _ask_again(self, claim: Claim, asked: Request, chosen: Client) -> None:
        if claim.keeper and claim.keeper is not chosen and claim.ticket:
            self.world.zombies.append((claim.keeper, claim.keeper.queue, claim.ticket))
        claim.asked, claim.keeper, claim.ticket, claim.polling_since = asked, chosen, None, None
        self.world.request(claim)

    def _do(self, claim: Claim, call: int) -> None:
        """Do what the keeper of a request may do, most often read its status."""
        if call < 5:
            self.world.status(claim)
        elif call < 7:
            self.world.renew(claim, 1 + call % 2)
        elif call < 8:
            self.world.ensure_held(claim)
        elif call < 9 and claim.keeper:
            self.world.adopt(claim, claim.keeper)
        else:
            self.world.release(claim)

    def _meanwhile(self, other: int, what: int, ticks: int) -> None:
        self.counts["stalls"] += 1
        found = self._kept(other)
        if what < 4:
            self._request(other, what % 3, other, (other + what) % 10, False)
        elif found and what < 6:
            self.world.release(found)
        elif found and what < 8:
            chosen = self._client(what + other)
            if self.world.acts(chosen):
                self.world.adopt(found, chosen)
        self.world.pass_time(ticks)

    def _idle(self, number: int) -> None:
        """Let another client make a request, as no client can do what the step wants."""
        self.world.pass_time(1)
        self._request(number, number % 3, number, number * 7 % 10, False)

    def _client(self, number: int) -> Client:
        return self.world.clients[number % len(self.world.clients)]

    def _claim(self, number: int) -> Claim | None:
        free = [one for one in self.world.claims if not (one.keeper and one.keeper.busy)]
        return free[number % len(free)] if free else None

    def _kept(self, number: int, *, waiting: bool = False) -> Claim | None:
        kept = [
            one
            for one in self.world.claims
            if one.ticket and self.world.acts(one.keeper) and not (waiting and one.held)
        ]
        return kept[number % len(kept)] if kept else None

    def _step(self, what: str) -> None:
        self.counts["steps"] += 1
        self.counts[f"rule {what}"] += 1
        operations = self.world.checker.operations
        self.counts["steps that changed or saw nothing"] += operations == self._before
        self._before = operations


class _Uuids:
    """The part of the module ``uuid`` that a queue needs, the same in every run."""

    def __init__(self) -> None:
        self._random = random.Random(0)

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)


def run(
    steps: int,
    seeded: int,
    *,
    stores: Sequence[Store] | None = None,
    line: type[Queue] = Queue,
    shrink: bool = False,
    progress: Callable[[Counter[str]], None] = lambda _: None,
) -> Counter[str]:
    """Run that many steps; return how often each thing happened.

    :raises ViolationError: with the shortest steps found that lead to it, in hypothesis' notes.
    """
    counts: Counter[str] = Counter()
    configured = settings(
        max_examples=min(20, 1 + steps // _EXAMPLE_STEPS),
        stateful_step_count=_EXAMPLE_STEPS,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    part = 0
    while counts["steps"] < steps:
        kept = {"counts": counts, "stores": stores, "queue": line}
        machine = seed(seeded * 1_000_003 + part)(type("SeededMachine", (QueueMachine,), kept))
        run_state_machine_as_test(machine, settings=configured)
        part += 1
        progress(counts)
    return counts

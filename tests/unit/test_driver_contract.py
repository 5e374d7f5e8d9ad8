"""Both halves of the contract with a driver, in every interleaving of bounded worlds.

A process of a world looks, decides by the code under test, and acts; between any two of these steps
any other process may step, so each process may be paused, and paused for good, everywhere. A storage
that is away is a step that is not made. A write takes effect at once, or later, or both (a repeated
request); a lost answer is a process that looks again. Each mutant changes one rule, and has to
produce the fault that the rule prevents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest

from airflow_occ_provider.driver import attempt as attempt_half
from airflow_occ_provider.driver.attempt import (
    Closed,
    CompareAndSet,
    LookLater,
    MayRun,
    Over,
    Proof,
    View,
    Watch,
    WriteGrant,
    WriteRevoked,
)
from airflow_occ_provider.driver.contract import (
    End,
    Ending,
    EndingStep,
    Gate,
    Grant,
    GuardState,
    Hello,
    Leave,
    Life,
    Moment,
    Poll,
    Run,
    answer_from_bytes,
    answer_to_bytes,
    digest,
)


def explore(world, steps, faults, until=None):
    """Walk through all states, breadth first.

    :param until: the fault after which it may stop.
    :return: how many there are, and of each fault the shortest way to it.
    """
    ways, ways_to_faults = {world: (None, "")}, {}
    queue = deque([world])
    while queue:
        state = queue.popleft()
        for fault in faults(state):
            ways_to_faults.setdefault(fault, way(ways, state))
        if until in ways_to_faults:
            break
        for label, successor in steps(state):
            if successor not in ways:
                ways[successor] = (state, label)
                queue.append(successor)
    return len(ways), ways_to_faults


def way(ways, state):
    labels = []
    while state is not None:
        state, label = ways[state]
        labels.append(label)
    return labels[-2::-1]


def replaced(sequence, index, value):
    return (*sequence[:index], value, *sequence[index + 1 :])


def written(world, write):
    """Yield the worlds after a write: it takes effect at once, later, or at once and again later."""
    yield world.apply(write)
    if world.late_writes and write not in world.late:
        later = world._replace(late=world.late | {write}, late_writes=world.late_writes - 1)
        yield later
        yield later.apply(write)


def landed(world):
    for write in world.late:
        yield "late", world._replace(late=world.late - {write}).apply(write)


# --- The claim: two processes of an attempt, a successor, two drivers ---

NONCES = ("n0", "n1")
NEW, AT_GATE, LOOKED, GRANTED, RUNNING, GONE = range(6)


class Driver(NamedTuple):
    phase: int = NEW
    grant: Grant | None = None
    looked_late: bool = False
    """Whether its last look began after `revoked` had been visible."""


class Claim(NamedTuple):
    entry: Grant | Closed | None = None
    hellos: tuple[Hello | None, ...] = (None, None)
    grant: Grant | None = None
    revoked: bool = False
    was_revoked: bool = False
    ended: bool = False
    one_file: bool = False
    late: frozenset = frozenset()
    late_writes: int = 1
    attempts: tuple = (None, None)
    """The step that each process is about to make."""
    settler: object = None
    over: Proof | None = None
    drivers: tuple[Driver, ...] = (Driver(), Driver())
    ran: frozenset = frozenset()
    ran_revoked: bool = False

    def apply(self, write):
        file, content = write
        if file == "journal":
            return self if self.entry else self._replace(entry=content)
        if file == "grant":  # as a whole file: a field of the same file would be lost
            return self._replace(grant=content, revoked=self.revoked and not self.one_file)
        if file == "revoked":
            return self._replace(revoked=True, was_revoked=True)
        if file == "facts":
            return self._replace(ended=content)
        return self._replace(hellos=replaced(self.hellos, NONCES.index(content.nonce), content))

    def with_driver(self, index, **changes):
        driver = Driver(looked_late=self.drivers[index].looked_late)._replace(**changes)
        if driver.phase not in (LOOKED, GRANTED):
            driver = Driver(driver.phase)
        return self._replace(drivers=replaced(self.drivers, index, driver))

    def view(self, *, is_gone=False):
        hellos = tuple(hello for hello in self.hellos if hello)
        end = End() if self.ended else None
        return View(self.entry, hellos, self.grant is not None, self.revoked, 0, end, is_gone)

    def is_gone(self):
        """Return whether the granted driver has ended, as its place may say."""
        if not isinstance(self.entry, Grant):
            return False
        return self.drivers[NONCES.index(self.entry.nonce)].phase == GONE


@dataclass(frozen=True)
class ClaimRules:
    grant_step: Callable = attempt_half.next_grant_step
    settle_step: Callable = attempt_half.next_settle_step
    one_file: bool = False


LONG_AGO = Watch(gone_since=0.0, now=10.0)


def claim_steps(rules):
    def steps(world):
        yield from landed(world)
        for index, pending in enumerate(world.attempts):
            # The second process has rendered other arguments, such as a new password.
            step = pending or rules.grant_step(world.view(), f"payload {index}")
            yield from processed(world, step, pending, f"attempt {index}", index)
        if world.over is None:
            for is_gone in {False, world.is_gone()}:
                view = world.view(is_gone=is_gone)
                step = world.settler or rules.settle_step(
                    view, LONG_AGO, why="a new try", ttl_s=None, request_s=1.0
                )
                yield from processed(world, step, world.settler, "settler", None)
        for index in (0, 1):
            yield from driver_steps(world, index)

    return steps


def processed(world, step, pending, label, index):
    """Yield the worlds after a process decided on a step, or made it."""
    if isinstance(step, Over):
        yield f"{label}: {step.proof}", world._replace(over=step.proof)
    if not isinstance(step, CompareAndSet | WriteGrant | WriteRevoked):
        return
    if not pending:
        yield f"{label} decides", at(world, index, step)
        return
    file = {CompareAndSet: "journal", WriteGrant: "grant", WriteRevoked: "revoked"}[type(step)]
    content = getattr(step, "entry", None) or getattr(step, "grant", None)
    for after in written(at(world, index, None), (file, content)):
        yield f"{label} writes {file}", after


def at(world, index, step):
    if index is None:
        return world._replace(settler=step)
    return world._replace(attempts=replaced(world.attempts, index, step))


def driver_steps(world, index):
    nonce, driver = NONCES[index], world.drivers[index]
    if driver.phase == NEW and (index == 0 or world.hellos[0]):  # n0 is the name of the first one
        waiting = world.with_driver(index, phase=AT_GATE)
        yield f"{nonce} says hello", waiting.apply(("hello", Hello(nonce)))
    elif driver.phase == AT_GATE:
        look = {"phase": LOOKED, "grant": world.grant, "looked_late": world.was_revoked}
        yield f"{nonce} reads the grant", world.with_driver(index, **look)
    elif driver.phase == LOOKED:
        gate = Gate(nonce, Moment(0, 0), limit_s=10)
        for now in (Moment(0, 0), Moment(10, 10)):
            decision = gate.decide(now, driver.grant, revoked=world.revoked)
            if isinstance(decision, Run):
                yield f"{nonce} is granted", world.with_driver(index, phase=GRANTED, grant=None)
            elif isinstance(decision, Leave):
                without = world.with_driver(index, phase=GONE)
                yield f"{nonce} leaves", without.apply(("hello", Hello(nonce, "left")))
            else:
                yield f"{nonce} waits", world.with_driver(index, phase=AT_GATE)
    elif driver.phase == GRANTED:
        begun = world.with_driver(index, phase=RUNNING)._replace(ran=world.ran | {nonce})
        begun = begun._replace(ran_revoked=world.ran_revoked or driver.looked_late)
        yield f"{nonce} runs", begun
    elif driver.phase == RUNNING:
        yield f"{nonce} ends", world.with_driver(index, phase=GONE).apply(("facts", True))
    if AT_GATE <= driver.phase <= RUNNING:
        yield f"{nonce} dies", world.with_driver(index, phase=GONE)


def claim_faults(world):
    if len(world.ran) > 1:
        yield "two drivers ran"
    if world.ran_revoked:
        yield "a driver began after a look that began after `revoked` was visible"
    if world.over and any(driver.phase == RUNNING for driver in world.drivers):
        yield "a driver runs after the settlement"
    if world.over in (Proof.NEVER_GRANTED, Proof.LEFT) and world.ran:
        yield "the settlement says that no driver ran"


def walk_claim(rules, until=None):
    # A pause of a process is enough for each mutant.
    world = Claim(one_file=rules.one_file, late_writes=0 if until else 1)
    return explore(world, claim_steps(rules), claim_faults, until)


# --- The revocation: the thread that commits, the thread that ends the driver, a successor ---

IDLE, NAMED, CHECKED, SENT, VISIBLE, PARKED = range(6)
IN_TIME, DRAINED_OUT, ALL_OUT = Moment(0, 0), Moment(30, 30), Moment(50, 50)
ENDING = Ending(IN_TIME, drain_s=30, report_s=20)


class Revocation(NamedTuple):
    revoked: bool = False
    end: End | None = None
    late: frozenset = frozenset()
    late_writes: int = 1
    guard: GuardState = GuardState()
    commit: int = IDLE
    commits: int = 0
    in_storage: tuple[str, ...] = ()
    now: Moment = IN_TIME
    ending: tuple | None = None
    """The step that the ending thread is about to make, and what its `end` would say."""
    is_reported: bool = False
    is_alive: bool = True
    requests_over: bool = False
    over: Over | None = None
    late_commit: bool = False

    def apply(self, write):
        file, content = write
        return self._replace(end=content) if file == "facts" else self._replace(revoked=True)


@dataclass(frozen=True)
class RevocationRules:
    decide: Callable = Ending.decide
    end: Callable = Ending.end
    settle_step: Callable = attempt_half.next_settle_step
    names_first: bool = True


def revocation_steps(rules):
    def steps(world):
        yield from landed(world)
        if world.over is None:
            yield from settled(world, rules)
        if world.is_alive:
            yield from commit_steps(world, rules)
            yield from ending_steps(world, rules)
            yield "dies", world._replace(is_alive=False)
        elif not world.requests_over:
            over = world._replace(requests_over=True, commit=IDLE)
            yield "its requests are over", over
        if world.commit == SENT:  # the storage carries it out, also after the death of the driver
            instant = f"T{world.commits}"
            visible = world._replace(commit=VISIBLE, in_storage=(*world.in_storage, instant))
            yield "a commit is visible", visible._replace(late_commit=world.over is not None)

    return steps


def settled(world, rules):
    gone = not world.is_alive
    view = View(Grant("n0", "p"), (), True, world.revoked, 0, world.end, gone)
    watch = Watch(gone_since=0.0 if gone else None, now=10.0 if world.requests_over else 0.5)
    step = rules.settle_step(view, watch, why="a new try", ttl_s=None, request_s=1.0)
    if isinstance(step, WriteRevoked):
        for after in written(world, ("revoked", None)):
            yield "settler revokes", after
    elif isinstance(step, Over):
        yield f"settled by {step.proof}", world._replace(over=step)


def commit_steps(world, rules):
    guard = world.guard
    if world.commit == IDLE and world.commits < 2:
        named = world._replace(commit=NAMED, commits=world.commits + 1)
        if rules.names_first:
            named = named._replace(guard=guard._replace(passing=f"T{named.commits}"))
        yield "a commit is named", named
    elif world.commit == NAMED and guard.is_closed:
        yield "is refused", world._replace(commit=PARKED, guard=guard._replace(passing=None))
    elif world.commit == NAMED:
        yield "passes the guard", world._replace(commit=CHECKED)
    elif world.commit == CHECKED:
        sent = world._replace(commit=SENT, guard=guard._replace(passing=f"T{world.commits}"))
        yield "is sent", sent
    elif world.commit == VISIBLE:
        committed = guard._replace(passing=None, committed=world.in_storage)
        yield "is over", world._replace(commit=IDLE, guard=committed)


def ending_steps(world, rules):
    if world.ending is None:
        if world.revoked:
            step = rules.decide(ENDING, world.now, world.guard, is_reported=world.is_reported)
            yield step.name, world._replace(ending=(step, rules.end(world.guard)))
        return
    for later in (DRAINED_OUT, ALL_OUT):
        if later > world.now:
            yield f"{later.wall} s later", world._replace(now=later)
    step, end = world.ending
    done = world._replace(ending=None)
    if step is EndingStep.CLOSE:
        yield "closes", done._replace(guard=world.guard._replace(is_closed=True))
    elif step is EndingStep.REPORT:
        for after in written(done, ("facts", end)):
            yield "reports", after
            yield "reports, answered", after._replace(is_reported=True)
    elif step is EndingStep.KILL:
        yield "kills", done._replace(is_alive=False)
    else:
        yield "drains", done


def revocation_faults(world):
    if world.late_commit:
        yield "a commit after the settlement"
    if world.end and world.end.is_certain and set(world.in_storage) - set(world.end.committed):
        yield "a certain `end` without a commit"


def walk_revocation(rules, until=None):
    return explore(Revocation(), revocation_steps(rules), revocation_faults, until)


# --- The life: ticks, a lease, the clock; a driver that is stopped or suspended, a successor ---

TTL, MARGIN, REQUEST = 2, 1, 1


class Holder(NamedTuple):
    """The holder of the lease, which may be a process that was paused for long.

    :param tick: that it has read; ``None`` before.
    """

    tick: int | None = None
    has_extended: bool = False


class Lived(NamedTuple):
    is_settled: bool
    """A world with a settler and true clocks, or without one and with clocks that may stand still."""
    last: int
    now: int = 0
    monotonic_behind: int = 0
    wall_behind: int = 0
    lease_until: int = 1
    holder: Holder = Holder()
    answers: int = 0
    extensions: int = 0
    tick: int = 0
    late: frozenset = frozenset()
    late_writes: int = 1
    revoked: bool = False
    granted: Run | None = None
    life: Life | None = None
    is_gone: bool = False
    commit_since: int | None = None
    watch: Watch = Watch()
    over: bool = False
    faults: frozenset[str] = frozenset()

    def apply(self, write):
        file, content, _ = write
        return self._replace(**{file: content})

    def moment(self):
        return Moment(self.now - self.monotonic_behind, self.now - self.wall_behind)

    def fault(self, text):
        return self._replace(faults=self.faults | {text})


@dataclass(frozen=True)
class LifeRules:
    answer: Callable = Life.answer
    may_begin: Callable = lambda life, now: life.may_begin_commit(now, MARGIN)
    after: Callable = Watch.after
    settle_step: Callable = attempt_half.next_settle_step
    moment: Callable = Lived.moment
    extends_first: bool = True
    checks_first_line: bool = True
    request_s: float = REQUEST


def life_steps(rules):
    def steps(world):
        if world.commit_since is None and (world.is_gone or world.faults):
            return
        if world.commit_since is not None and not world.is_settled:
            return
        if world.now < world.last:
            yield from clock_steps(world)
        for write in world.late:
            file, _, sent = write
            # Of a driver's requests the settlement knows how long they last; of a holder's nothing.
            if file != "tick" or world.now - sent <= REQUEST:
                yield "late", world._replace(late=world.late - {write}).apply(write)
        yield from holder_steps(world, rules)
        yield from life_of_driver(world, rules)
        if world.is_settled and not world.over:
            yield from watched(world, rules)
        if world.commit_since is not None:
            visible = world._replace(commit_since=None)
            yield "commit", visible.fault("a commit after the settlement") if world.over else visible

    return steps


def clock_steps(world):
    if world.commit_since is not None and world.now - world.commit_since >= MARGIN + REQUEST:
        return  # a stop for longer than the margin between check and answer is what is not promised
    later = world._replace(now=world.now + 1)
    yield "time", later
    if world.is_settled:
        return
    if world.wall_behind == 0 and world.monotonic_behind < 2:
        yield "suspended", later._replace(monotonic_behind=world.monotonic_behind + 1)
    if world.monotonic_behind == 0 and world.wall_behind < 1:
        yield "wall clock set back", later._replace(wall_behind=world.wall_behind + 1)


def holder_steps(world, rules):
    holder = world.holder
    if holder.tick is None:
        if world.tick > world.answers:
            # Without a settler only the lease is of interest, and with one only the answers.
            read = Holder(world.tick, has_extended=world.is_settled)
            yield "holder reads a tick", world._replace(holder=read)
    elif not holder.has_extended:
        extended = world._replace(holder=holder._replace(has_extended=True))
        if world.now <= world.lease_until:
            yield "extends", extended._replace(lease_until=world.now + TTL)
        if not rules.extends_first:
            yield "does not extend", extended
    else:
        answered = world._replace(holder=Holder())
        write = ("answers", holder.tick, world.now)
        for after in [answered.apply(write)] if world.is_settled else written(answered, write):
            yield "answers", after


def life_of_driver(world, rules):
    now = rules.moment(world)
    if world.is_gone or world.commit_since is not None:
        return
    if world.granted is None:
        decision = Gate("n0", now, 100).decide(now, Grant("n0", "p"), revoked=world.revoked)
        if isinstance(decision, Run):
            yield "granted", world._replace(granted=decision)
    elif world.life is None:
        life = Life.begin(TTL, world.granted.since)
        if life.is_over(now) and rules.checks_first_line:
            yield "too late", world._replace(is_gone=True)
        else:
            begun = world._replace(life=life)
            yield "first line", begun.fault("began after the settlement") if world.over else begun
    else:
        yield from living(world, rules, now)


def living(world, rules, now):
    life = world.life
    if world.revoked or life.is_over(now):
        yield "ends itself", world._replace(is_gone=True)
    number = max(life.ticks) + 1
    if number <= 2:
        ticked = world._replace(life=life.tick(now))
        if world.is_settled:
            for after in written(ticked, ("tick", number, world.now)):
                yield "ticks", after
        else:
            yield "ticks", ticked._replace(tick=number)
    answered = rules.answer(life, world.answers, now)
    if answered != life:
        yield "reads its life", world._replace(life=answered)
    if rules.may_begin(life, now):
        begun = world._replace(commit_since=world.now)
        if world.over:
            begun = begun.fault("a commit began after the settlement")
        if not world.is_settled and world.now + MARGIN > world.lease_until:
            begun = begun.fault("a commit began with less than the margin of the lease")
        yield "begins a commit", begun


def watched(world, rules):
    view = View(Grant("n0", "p"), (), True, world.revoked, world.tick)
    watch = rules.after(world.watch, view, world.now, world.now)
    step = rules.settle_step(view, watch, why="a new try", ttl_s=TTL, request_s=rules.request_s)
    looked = world._replace(watch=replace(watch, now=0.0))
    if isinstance(step, Over):
        yield "settled", looked._replace(over=True)
    elif isinstance(step, WriteRevoked):
        yield "revokes", looked._replace(revoked=True)
        yield "looks", looked
    elif looked != world:
        yield "looks", looked


def walk_life(rules, until=None):
    """Walk through a world whose driver has begun, with a lease that is about to end."""
    run = Run(Grant("n0", "p"), Moment(0, 0))
    world = Lived(False, 4, granted=run, life=Life.begin(TTL, run.since))
    return explore(world, life_steps(rules), lambda state: state.faults, until)


def walk_silence(rules, until=None):
    return explore(Lived(True, 5), life_steps(rules), lambda state: state.faults, until)


# --- The rules hold, and each mutant breaks one ---


@pytest.mark.rest
@pytest.mark.parametrize(
    ("walk", "rules", "least"),
    [
        (walk_claim, ClaimRules(), 50_000),
        (walk_revocation, RevocationRules(), 10_000),
        (walk_life, LifeRules(), 30_000),
        (walk_silence, LifeRules(), 100_000),
    ],
)
def test_no_interleaving_has_a_fault(walk, rules, least):
    states, faults = walk(rules)
    assert faults == {}
    assert states > least


def file_before_journal(view, payload):
    waiting = [hello for hello in view.hellos if hello.left is None]
    if view.is_granted or not waiting or view.entry:
        return attempt_half.next_grant_step(view, payload)
    return WriteGrant(Grant(waiting[-1].nonce, payload))


def no_journal(view, payload):
    step = attempt_half.next_grant_step(view._replace(entry=None), payload)
    return WriteGrant(step.entry) if isinstance(step, CompareAndSet) else step


def revoked_is_an_end(view, watch, **arguments):
    if view.is_revoked:
        return Over(Proof.END, "revoked, and nothing is seen")
    return attempt_half.next_settle_step(view, watch, **arguments)


def never_closed(view, watch, **arguments):
    if view.entry is None:
        return Over(Proof.NEVER_GRANTED, "the journal has no grant")
    return attempt_half.next_settle_step(view, watch, **arguments)


def uncertain_end(view, watch, **arguments):
    if view.end:
        return Over(Proof.END, "an end", view.end)
    return attempt_half.next_settle_step(view, watch, **arguments)


def place_at_once(view, watch, **arguments):
    return attempt_half.next_settle_step(view, watch, **{**arguments, "request_s": 0.0})


def end_before_close(ending, now, guard, *, is_reported):
    return Ending.decide(ending, now, guard, is_reported=True) if is_reported else EndingStep.REPORT


def always_certain(guard):
    return End(guard.committed)


def counted(life, tick, now):
    return replace(life, ticks={tick: now}, answered=tick) if tick > life.answered else life


def answered_when_over(life, tick, now):
    return life.answer(tick, life.ticks[life.answered])


def granted_is_answered(life, now):
    return life.left_s(now) >= MARGIN


def silence_before_revocation(watch, view, began, answered):
    return Watch.after(watch, view._replace(is_revoked=True), began, answered)


TWO_RAN = "two drivers ran"
BEGAN_REVOKED = "a driver began after a look that began after `revoked` was visible"
RUNS_AFTER = "a driver runs after the settlement"
NONE_RAN = "the settlement says that no driver ran"
COMMIT_AFTER = "a commit after the settlement"
NOT_IN_END = "a certain `end` without a commit"
BEGAN_AFTER = "began after the settlement"
LITTLE_LEFT = "a commit began with less than the margin of the lease"
MUTANTS = {
    "the control file before the journal": (walk_claim, ClaimRules(file_before_journal), TWO_RAN),
    "no journal": (walk_claim, ClaimRules(no_journal), TWO_RAN),
    "revoked as a field of the grant": (walk_claim, ClaimRules(one_file=True), BEGAN_REVOKED),
    "revoked is an end": (walk_claim, ClaimRules(settle_step=revoked_is_an_end), RUNS_AFTER),
    "no closing entry": (walk_claim, ClaimRules(settle_step=never_closed), NONE_RAN),
    "end before close": (
        walk_revocation,
        RevocationRules(end_before_close, always_certain),
        NOT_IN_END,
    ),
    "end without a drain": (walk_revocation, RevocationRules(end=always_certain), NOT_IN_END),
    "the guard is read before the commit is named": (
        walk_revocation,
        RevocationRules(names_first=False),
        NOT_IN_END,
    ),
    "an uncertain end": (walk_revocation, RevocationRules(settle_step=uncertain_end), COMMIT_AFTER),
    "the place's word at once": (
        walk_revocation,
        RevocationRules(settle_step=place_at_once),
        COMMIT_AFTER,
    ),
    "a counter, not the echoed tick": (walk_life, LifeRules(answer=counted), LITTLE_LEFT),
    "an answer before the extension": (walk_life, LifeRules(extends_first=False), LITTLE_LEFT),
    "the grant as an answer": (walk_life, LifeRules(may_begin=granted_is_answered), LITTLE_LEFT),
    "no margin": (
        walk_life,
        LifeRules(may_begin=lambda life, now: life.may_begin_commit(now, 0)),
        LITTLE_LEFT,
    ),
    "the monotonic clock alone": (
        walk_life,
        LifeRules(moment=lambda world: Moment(world.moment().monotonic, world.moment().monotonic)),
        LITTLE_LEFT,
    ),
    "the wall clock alone": (
        walk_life,
        LifeRules(moment=lambda world: Moment(world.moment().wall, world.moment().wall)),
        LITTLE_LEFT,
    ),
    "silence for a life and one request": (walk_silence, LifeRules(request_s=0.5), COMMIT_AFTER),
    "silence before the revocation": (
        walk_silence,
        LifeRules(after=silence_before_revocation),
        BEGAN_AFTER,
    ),
    "no look at the clock before the first line": (
        walk_silence,
        LifeRules(checks_first_line=False),
        BEGAN_AFTER,
    ),
    "an answer after the deadline": (walk_silence, LifeRules(answer=answered_when_over), COMMIT_AFTER),
}


@pytest.mark.rest
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_has_its_fault(mutant):
    walk, rules, fault = MUTANTS[mutant]
    _, faults = walk(rules, fault)
    assert fault in faults


# --- What the worlds do not show ---


def test_a_gate_polls_fast_then_slowly_and_leaves_at_its_limit():
    gate = Gate("n", Moment(100, 1000), limit_s=120)
    polls = {
        waited: gate.decide(Moment(100 + waited, 1000), None, revoked=False) for waited in (0, 4, 5, 59)
    }
    assert polls == {0: Poll(0.2), 4: Poll(0.2), 5: Poll(1), 59: Poll(1)}
    assert gate.decide(Moment(160, 1000), None, revoked=False) == Poll(5)
    assert gate.decide(Moment(218, 1000), None, revoked=False) == Poll(2)
    assert gate.decide(Moment(101, 1120), None, revoked=False) == Leave("no grant within 120 s")


def test_a_gate_on_the_drivers_host_polls_fast_to_its_limit():
    gate = Gate("n", Moment(0, 0), limit_s=120, is_near=True)
    polls = [gate.decide(Moment(waited, 0), None, revoked=False) for waited in (0, 30, 119, 119.9)]
    assert [poll.after_s for poll in polls] == pytest.approx([0.2, 0.2, 0.2, 0.1])


def test_a_revocation_wins_over_a_grant():
    gate = Gate("n", Moment(0, 0), limit_s=120)
    assert gate.decide(Moment(1, 1), Grant("n", "p"), revoked=True) == Leave("the attempt was revoked")


def test_a_payload_is_run_only_with_the_digest_that_was_granted():
    run = Run(Grant("n", digest(b"job")), Moment(0, 0))
    assert run.refusal(b"job") is None
    assert digest(b"other") in run.refusal(b"other").why


def test_a_driver_without_a_lease_commits_before_any_answer_and_ends_all_the_same():
    life = Life.begin(60, Moment(0, 0), is_leased=False)
    assert life.may_begin_commit(Moment(59, 59))
    assert not Life.begin(60, Moment(0, 0)).may_begin_commit(Moment(1, 1))
    assert life.tick(Moment(1, 1)).answer(1, Moment(2, 2)).is_over(Moment(61, 61))


def test_files_are_read_as_they_were_written_and_parts_of_them_as_nothing():
    hello, grant = Hello("n", "revoked"), Grant("n", "p")
    assert Hello.from_bytes(hello.name, hello.to_bytes()) == hello
    assert Grant.from_bytes(grant.to_bytes()) == grant
    assert answer_from_bytes(answer_to_bytes(7)) == 7
    for content in (b"", b"[1]", b"\xff", grant.to_bytes()[:-1], b'{"nonce": 1, "answers": "1"}'):
        assert Grant.from_bytes(content) is None
        assert answer_from_bytes(content) is None
        assert Hello.from_bytes("hello.n", content) == Hello("n")


def test_a_life_lasts_from_the_answered_tick_by_the_clock_that_advanced_more():
    life = Life.begin(120.0, Moment(0, 0)).tick(Moment(10, 10)).tick(Moment(40, 40))
    assert not life.may_begin_commit(Moment(40, 40))
    life = life.answer(1, Moment(50, 50))
    assert life.left_s(Moment(60, 60)) == 70
    assert life.left_s(Moment(60, 100)) == 30  # suspended
    assert life.left_s(Moment(100, 60)) == 30  # set back
    assert life.may_begin_commit(Moment(100, 100))
    assert not life.may_begin_commit(Moment(100.1, 100))
    later = life.answer(2, Moment(60, 60))
    assert later.answer(1, Moment(61, 61)) is later
    assert later.answer(9, Moment(61, 61)) is later
    assert later.answer(None, Moment(61, 61)) is later
    assert Life.begin(None, Moment(0, 0)).may_begin_commit(Moment(1e9, 1e9))


def test_an_ending_closes_drains_reports_and_kills_within_its_limits():
    ending = Ending(Moment(0, 0))
    passing, over = GuardState(True, "T1"), GuardState(True, None, ("T1",))
    assert ending.decide(Moment(0, 0), GuardState(False, "T1"), is_reported=False) is EndingStep.CLOSE
    assert ending.decide(Moment(29, 29), passing, is_reported=False) is EndingStep.DRAIN
    assert ending.decide(Moment(30, 30), passing, is_reported=False) is EndingStep.REPORT
    assert ending.decide(Moment(1, 1), over, is_reported=False) is EndingStep.REPORT
    assert ending.decide(Moment(1, 1), over, is_reported=True) is EndingStep.KILL
    assert ending.decide(Moment(50, 50), passing, is_reported=False) is EndingStep.KILL
    assert ending.decide(Moment(0, 0), None, is_reported=False) is EndingStep.REPORT
    assert Ending.end(over) == End(("T1",))
    assert not Ending.end(passing).is_certain
    assert not Ending.end(None).is_certain


@pytest.mark.parametrize(
    ("view", "step"),
    [
        (View(), LookLater("no driver has said hello")),
        (View(hellos=(Hello("a", "left"), Hello("b"), Hello("c"))), CompareAndSet(Grant("c", "p"))),
        (View(Grant("b", "p"), (Hello("b"), Hello("c"))), WriteGrant(Grant("b", "p"))),
        (View(Grant("b", "p"), is_granted=True), MayRun(Grant("b", "p"))),
    ],
)
def test_a_grant_goes_to_the_newest_waiting_driver_and_stays_there(view, step):
    assert attempt_half.next_grant_step(view, "p") == step


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (View(Closed("a new try")), "closed: a new try"),
        (View(Grant("b", "q")), "payload q, not p"),
        (View(Grant("b", "p"), is_revoked=True), "revoked"),
    ],
)
def test_a_process_says_why_it_cannot_grant(view, reason):
    assert reason in attempt_half.next_grant_step(view, "p").reason


SETTLE = {"why": "a new try", "ttl_s": 60.0, "request_s": 30.0}


@pytest.mark.parametrize(
    ("view", "watch", "proof"),
    [
        (View(Closed("x")), Watch(), Proof.NEVER_GRANTED),
        (View(Grant("b", "p"), (Hello("b", "no grant"),)), Watch(), Proof.LEFT),
        (View(Grant("b", "p"), end=End(("T1",))), Watch(), Proof.END),
        (View(Grant("b", "p"), is_gone=True), Watch(gone_since=0, now=30.1), Proof.PLACE),
        (View(Grant("b", "p"), is_revoked=True), Watch(quiet_since=0, now=120.1), Proof.SILENCE),
    ],
)
def test_a_settlement_has_its_proof_and_evidence(view, watch, proof):
    over = attempt_half.next_settle_step(view, watch, **SETTLE)
    assert over.proof is proof
    assert over.evidence
    assert over.has_run == (proof not in (Proof.NEVER_GRANTED, Proof.LEFT))


@pytest.mark.parametrize(
    ("view", "watch", "ttl_s", "reason"),
    [
        (View(is_gone=True), Watch(gone_since=0, now=29.9), 60.0, "may be under way for 30 s"),
        (View(), Watch(quiet_since=0, now=20), 60.0, "counts in 100 s"),
        (View(end=End(is_certain=False)), Watch(quiet_since=0, now=1e6), None, "`end` is uncertain"),
    ],
)
def test_a_settlement_says_what_it_waits_for(view, watch, ttl_s, reason):
    view = view._replace(entry=Grant("b", "p"), is_revoked=True)
    step = attempt_half.next_settle_step(view, watch, **{**SETTLE, "ttl_s": ttl_s})
    assert reason in step.reason


def test_a_silence_counts_from_the_newest_tick_or_else_from_the_revocation():
    watch = Watch().after(View(), 0, 1).after(View(), 5, 6)
    assert watch.quiet_s == 0, "a driver that has not begun may begin"
    watch = watch.after(View(is_revoked=True), 10, 11).after(View(is_revoked=True), 20, 21)
    assert watch.quiet_s == 9
    watch = watch.after(View(tick=3), 30, 31)
    assert watch.quiet_s == 0
    watch = watch.after(View(tick=2), 40, 41)
    assert watch.quiet_s == 9, "without a revocation, too: nothing answers a tick that was not read"
    assert watch.after(View(tick=4, is_revoked=True), 50, 51).quiet_s == 0

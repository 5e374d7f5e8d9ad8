from __future__ import annotations

import logging
import os
import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts.driver import Admitted
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.record import AttemptRecord, TryKey
from airflow_occ_provider.attempts.scope import ServiceClaim, service_mode
from airflow_occ_provider.attempts.service_attempt import ServiceAttempt, ServiceLimits, below, plans_of
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.errors import AdmissionTimeoutError, ConfigurationError, FenceError, JobError
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.format.instant import Instant, State
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, Liveness
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.hudi.writer.table_service import (
    DeadPlan,
    Plan,
    PlanChoice,
    PlanRule,
    Service,
    ServiceOp,
    choose,
)
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.operators.hudi_table_service import (
    HudiClusteringOperator,
    HudiCompactionOperator,
    HudiTableServiceOperator,
)
from airflow_occ_provider.operators.task_run import defer
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_plans, signed_plans
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.memory_store import MemoryStore
from tests.support.policies import with_policy
from tests.support.recorded_attempts import Store
from tests.support.task_state import Instance

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
TABLE = "s3://lake/trips"
LOG = logging.getLogger("test")
MINUTE_MS = 60_000
NONE, ALIVE = Heartbeat(Liveness.NONE), Heartbeat(Liveness.ALIVE, 1, 1)
DEAD = Heartbeat(Liveness.DEAD, 1, -1)
COMPACTION, CLUSTERING = Service.COMPACTION, Service.CLUSTERING
RUN, ROLL_BACK, LEAVE = DeadPlan.RUN, DeadPlan.ROLL_BACK, DeadPlan.LEAVE
PREFERS = {STRATEGY_OPTION: Strategy.PREFER_WRITER.class_name}


@pytest.fixture
def golden(tmp_path):
    return lambda name: HudiTable(str(unpack(GOLDEN / f"{name}.zip", tmp_path)))


@pytest.mark.parametrize(
    ("service", "prefers", "version", "mode"),
    [
        (CLUSTERING, False, 9, Mode.EXCLUSIVE),
        (CLUSTERING, True, 9, Mode.SHARED),
        (COMPACTION, False, 9, Mode.SHARED),
        (COMPACTION, False, 8, Mode.EXCLUSIVE),
        (COMPACTION, False, 6, Mode.EXCLUSIVE),
        (COMPACTION, True, 9, Mode.EXCLUSIVE),
    ],
)
def test_who_would_hurt_writers_runs_alone(service, prefers, version, mode):
    assert service_mode(service, prefers_writers=prefers, table_version=version) is mode


def claim(service, version=9, partitions=None):
    return ServiceClaim(TABLE, partitions, service, version)


def test_what_a_service_asks_for():
    assert claim(CLUSTERING).scope({}, None) == Scope(TABLE)
    assert claim(CLUSTERING, partitions=("a",)).scope({}, None) == Scope(TABLE, partitions=("a",))
    assert claim(CLUSTERING, partitions=("a",)).scope(PREFERS, None) == Scope(TABLE, Mode.SHARED)
    assert claim(COMPACTION).scope({}, None) == Scope(TABLE, Mode.SHARED)
    assert claim(COMPACTION).scope(PREFERS, None) == Scope(TABLE)


def test_a_service_that_has_lost_runs_alone_on_what_it_names():
    assert claim(CLUSTERING, partitions=("a",)).scope(PREFERS, ()) == Scope(TABLE, partitions=("a",))


def test_under_a_lock_of_one_process_a_service_takes_the_table():
    lock = {LOCK_PROVIDER: "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
    assert claim(COMPACTION).scope(lock, None) == Scope(TABLE)
    assert not claim(COMPACTION).is_fenced(lock)


def test_a_compaction_that_needs_the_table_does_not_make_do_with_a_part_of_it():
    assert claim(COMPACTION, 8).declared({}) == Scope(TABLE)
    assert claim(COMPACTION).declared(PREFERS) == Scope(TABLE)
    assert claim(COMPACTION).declared({}) is None
    assert claim(CLUSTERING).declared({}) is None
    assert claim(CLUSTERING, partitions=("a",)).declared({}) == Scope(TABLE, partitions=("a",))


def plan(
    time="20261121000000000",
    action="clustering",
    state=State.REQUESTED,
    heartbeat=NONE,
    minutes=0,
    own=False,
    by=None,
    partitions=("a",),
):
    instant = Instant(time, action, state, f"{time}.{action}", None, f"{time}.{action}.requested")
    return Plan(instant, partitions, heartbeat, minutes * MINUTE_MS, own, by)


def rule(op=ServiceOp.RUN, dead_plan=RUN, named=None, fenced=True):
    return PlanRule(op, dead_plan, 60 * MINUTE_MS, named, fenced)


INFLIGHT = {"state": State.INFLIGHT}
OLD = {"minutes": 61}


@pytest.mark.parametrize(
    ("given", "by", "step"),
    [
        # A waiting plan is run by a task that runs plans, and left by one that makes a plan.
        ({}, {}, RUN),
        ({}, {"op": ServiceOp.SCHEDULE_AND_RUN}, LEAVE),
        ({}, {"op": ServiceOp.SCHEDULE}, LEAVE),
        # A plan that a driver may be running is left: without a heartbeat, for the time-out.
        (INFLIGHT, {}, LEAVE),
        ({**INFLIGHT, "minutes": 60}, {}, LEAVE),
        ({**INFLIGHT, **OLD, "heartbeat": ALIVE}, {}, LEAVE),
        ({"heartbeat": ALIVE}, {}, LEAVE),
        # The dead are treated as the user chose.
        ({**INFLIGHT, **OLD}, {}, RUN),
        ({**INFLIGHT, **OLD, "heartbeat": DEAD}, {"dead_plan": ROLL_BACK}, ROLL_BACK),
        ({**INFLIGHT, **OLD}, {"dead_plan": LEAVE}, LEAVE),
        (OLD, {"dead_plan": ROLL_BACK}, ROLL_BACK),
        (OLD, {"op": ServiceOp.SCHEDULE_AND_RUN}, RUN),
        (OLD, {"op": ServiceOp.SCHEDULE}, LEAVE),
        # What cannot be run again is rolled back instead, or left.
        ({**OLD, "by": "20261121000000001"}, {}, ROLL_BACK),
        ({**OLD, "by": "20261121000000001"}, {"dead_plan": LEAVE}, LEAVE),
        ({"by": "20261121000000001"}, {}, LEAVE),
        ({**OLD, "action": "logcompaction"}, {}, ROLL_BACK),
        # What this task run has planned is its own, once its drivers were seen to end.
        ({**INFLIGHT, "own": True}, {}, RUN),
        ({**INFLIGHT, "own": True, "heartbeat": ALIVE}, {"dead_plan": LEAVE}, RUN),
        ({**INFLIGHT, "own": True, "by": "20261121000000001"}, {}, ROLL_BACK),
        ({**INFLIGHT, "own": True}, {"fenced": False}, LEAVE),
        ({**INFLIGHT, "own": True, "heartbeat": ALIVE}, {"fenced": False}, LEAVE),
        # Who names plans means these.
        (OLD, {"named": ("20261121000000000",), "dead_plan": LEAVE}, RUN),
        (OLD, {"named": ("20261121000000000",), "dead_plan": ROLL_BACK}, ROLL_BACK),
        (OLD, {"named": ("20261121000000009",)}, LEAVE),
        (INFLIGHT, {"named": ("20261121000000000",)}, LEAVE),
    ],
)
def test_what_becomes_of_a_plan(given, by, step):
    assert rule(**by).step(plan(**given))[0] is step


def test_what_touches_more_than_the_scope_is_left():
    choice = choose([plan()], rule(), scheduled=False, outside=[plan().time])
    assert choice == PlanChoice(leave={plan().time: "it touches partitions outside the scope"})


@pytest.mark.parametrize(
    ("op", "plans", "scheduled", "schedule"),
    [
        (ServiceOp.SCHEDULE_AND_RUN, [], False, True),
        (ServiceOp.SCHEDULE, [plan()], False, True),
        (ServiceOp.RUN, [], False, False),
        (ServiceOp.SCHEDULE_AND_RUN, [], True, False),
        (ServiceOp.SCHEDULE, [plan(own=True)], False, False),
        (ServiceOp.SCHEDULE_AND_RUN, [plan(own=True, by="20261121000000001")], False, True),
    ],
)
def test_a_task_run_plans_once(op, plans, scheduled, schedule):
    assert choose(plans, rule(op), scheduled=scheduled).schedule is schedule


def test_the_steps_free_before_they_run_and_run_before_they_plan():
    times = [f"2026112100000000{n}" for n in range(2)]
    plans = [plan(times[0], own=True), plan(times[1], minutes=61, by="20261121000000005")]
    choice = choose(plans, rule(ServiceOp.SCHEDULE_AND_RUN), scheduled=False)
    assert choice.steps(ServiceOp.SCHEDULE_AND_RUN) == (f"roll_back={times[1]}", f"run={times[0]}")
    assert PlanChoice(schedule=True).steps(ServiceOp.SCHEDULE) == ("schedule",)


@pytest.mark.parametrize(
    ("name", "service", "found"),
    [
        *(
            pair
            for release in HUDI_RELEASES
            for pair in (
                (f"{release}/clustering", CLUSTERING, [("INFLIGHT", ("p1",)), ("REQUESTED", ("p2",))]),
                (f"{release}/clustering", COMPACTION, []),
                (f"{release}/compaction", COMPACTION, [("INFLIGHT", ("p1",)), ("REQUESTED", ("p0",))]),
                (f"{release}/compaction", CLUSTERING, []),
            )
        ),
        ("1.2.0/log_compaction", COMPACTION, [("REQUESTED", ("p0", "p1"))]),
        ("1.2.0/version_6", COMPACTION, [("REQUESTED", ("p1",))]),
        ("1.2.0/version_6", CLUSTERING, [("REQUESTED", ("p8",))]),
    ],
)
def test_the_pending_plans_of_real_tables(golden, name, service, found):
    plans = pending_plans(golden(name).snapshot(), service, DEFAULT_RULE)
    assert [(str(one.instant.state), one.partitions) for one in plans] == found
    at_once = replace(rule(), plan_timeout_ms=0)  # the tables may have been recorded today
    assert all(at_once.is_dead(one) for one in plans)
    assert not any(one.overtaken_by or one.is_ours for one in plans)


def test_a_clustering_whose_files_were_written_since_is_overtaken(golden):
    table = golden("1.2.0/clustering")
    folder = Path(table.path, ".hoodie", "timeline")
    (dead, _) = pending_plans(table.snapshot(), CLUSTERING, DEFAULT_RULE)
    commit = next(
        one
        for one in table.snapshot().timeline.completed_writes()
        if table.snapshot().reader.planned(dead.instant)
        & table.snapshot().reader.commit(one).file_groups
    )
    late = folder / f"{dead.time[:-3]}999_{dead.time[:4]}1231235959999.commit"
    late.write_bytes((folder / commit.file_name).read_bytes())
    (dead, _) = pending_plans(table.snapshot(), CLUSTERING, DEFAULT_RULE)
    assert dead.overtaken_by == late.name[:17]


@pytest.mark.parametrize("begun_ms", [-1, 1])
def test_before_table_version_8_the_files_tell_who_has_overtaken_a_clustering(golden, begun_ms):
    # Its writer's zone is east of UTC, in which the storage tells when a file was written.
    table = golden("0.15.0/clustering")
    snapshot = table.snapshot()
    (dead, _) = pending_plans(snapshot, CLUSTERING, DEFAULT_RULE)
    commit = next(
        one
        for one in snapshot.timeline.completed_writes()
        if snapshot.reader.planned(dead.instant) & snapshot.reader.commit(one).file_groups
    )
    folder = Path(table.path, ".hoodie")
    late = folder / f"{int(dead.time) + begun_ms}.commit"
    late.write_bytes((folder / commit.file_name).read_bytes())
    planned_s = (folder / dead.instant.requested_file).stat().st_mtime
    os.utime(late, (planned_s + 1, planned_s + 1))
    (dead, _) = pending_plans(table.snapshot(), CLUSTERING, DEFAULT_RULE)
    assert dead.overtaken_by == late.name[:17]


def test_a_plan_is_known_by_its_signature(golden):
    table = golden("1.2.0/compaction")
    snapshot = table.snapshot()
    signed = next(
        one for one in snapshot.timeline if one.completed and one.requested_action == "compaction"
    )
    ((_, file_id),) = [*snapshot.reader.planned(signed)][:1]  # a uuid that Hudi itself put into the plan
    found = [one.time for one in signed_plans(table, snapshot, file_id)]
    assert signed.time in found
    assert [*signed_plans(table, snapshot, file_id, found)] == []
    assert [*signed_plans(table, snapshot, "0" * 36)] == []
    plans = pending_plans(snapshot, COMPACTION, DEFAULT_RULE, frozenset(found))
    assert [one.is_ours for one in plans] == [one.time in found for one in plans]


@pytest.mark.parametrize(
    ("paths", "inside", "outside"),
    [
        (("a",), ["a", "a/b"], ["ab", "b", "b/a"]),
        (("dt=2026.1", "/x/"), ["dt=2026.1/h=1", "x"], ["dt=2026-1", "y"]),
    ],
)
def test_a_scope_as_a_pattern(paths, inside, outside):
    pattern = below(paths)
    assert all(re.fullmatch(pattern, path) for path in inside)
    assert not any(re.fullmatch(pattern, path) for path in outside)


def clustering(**given):
    return HudiClusteringOperator(task_id="t", table=TABLE, **with_policy(given))


def limits(**given):
    return ServiceLimits(CLUSTERING, clustering(**given).spec({}).partitions, LOG)


def compaction(**given):
    return HudiCompactionOperator(task_id="t", table=TABLE, **given)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        (
            HudiTableServiceOperator,
            {"task_id": "t", "table": TABLE},
            "service: HudiTableServiceOperator",
        ),
        (compaction, {"op": "execute"}, "op: 'execute' is not known"),
        (compaction, {"dead_plan": "kill"}, "dead_plan: 'kill' is not known"),
        (compaction, {"scope": ["a"]}, "scope: Hudi compacts what its plan names"),
        (clustering, {"instants": "20261121000000000"}, "makes a plan of its own"),
        (
            clustering,
            {"hudi_options": {"hoodie.clustering.plan.strategy.partition.selected": "a"}},
            "has a parameter of its own",
        ),
    ],
)
def test_what_cannot_be_is_refused_when_the_dag_is_parsed(make, given, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        make(**given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, None),
        ([], ()),
        ("[]", ()),
        ("20261121000000000", ("20261121000000000",)),
        ("['20261121000000000', '20261121000000001']", ("20261121000000000", "20261121000000001")),
        (["20261121000000000"], ("20261121000000000",)),
    ],
)
def test_instants_as_they_are_rendered(given, named):
    assert compaction(op="run", instants=given)._service_task().named == named


@pytest.mark.parametrize("given", ["None", "yesterday", "20261121", ["all"]])
def test_what_is_no_instant_is_refused(given):
    with pytest.raises(ConfigurationError, match=r"are no instants|from no value"):
        _ = compaction(op="run", instants=given)._service_task()


def test_only_the_scope_is_planned():
    bare = Preparation(None, None, {"hoodie.a": "1"}, "", None)
    assert limits().restrict(bare, Admitted()) is bare
    held = Admitted(Scope.of(TABLE, ["b"]))
    pattern = "hoodie.clustering.plan.strategy.partition.regex.pattern"
    assert limits().restrict(bare, held).options == {"hoodie.a": "1", pattern: below(("b",))}
    declared = limits(scope="a", conflict_resolution="prefer_writer")
    shared = Admitted(Scope(TABLE, Mode.SHARED))
    assert declared.restrict(bare, shared).options[pattern] == below(("a",))


def test_a_selection_of_the_sites_own_does_not_go_before_the_scope():
    selected = "hoodie.clustering.plan.strategy.partition.selected"
    sites = Preparation(None, None, {selected: "b"}, "", None)
    held = Admitted(Scope.of(TABLE, ["a"]))
    restricted = limits().restrict(sites, held)
    assert selected not in restricted.options
    assert selected.startswith(restricted.without)
    assert sites.without == ()
    assert limits().restrict(sites, Admitted()) is sites


@pytest.mark.parametrize(
    ("given", "admitted", "outside"),
    [
        ({}, Admitted(), False),
        ({}, Admitted(Scope.of(TABLE, ["b"])), True),
        ({"scope": "b"}, Admitted(), True),
        ({"scope": "b"}, Admitted(Scope(TABLE, Mode.SHARED)), True),
        ({"scope": "a"}, Admitted(Scope(TABLE, Mode.SHARED)), False),
    ],
)
def test_a_plan_beyond_the_scope_is_outside_also_where_the_lease_names_none(given, admitted, outside):
    assert limits(**given).is_outside(plan(partitions=("a", "a/1")), admitted) is outside


def test_a_compaction_is_kept_to_no_part():
    assert not ServiceLimits(COMPACTION, None, LOG).is_outside(plan(), Admitted(Scope.of(TABLE, ["b"])))


@pytest.fixture
def served(golden):
    """An operator on a golden table, with a task run that has begun nothing."""

    def served(name, make=clustering, attempts=(), **given):
        operator = make(**given)
        run = operator._protected_run({"ti": Instance(1, 14)})
        run.table = golden(name)
        for attempt in attempts:
            run.journal.keep(attempt)
        return operator, run, run.table.snapshot()

    return served


def chosen(operator, run, snapshot, own=None):
    plans = plans_of(run, operator._service_task(), DEFAULT_RULE)
    pending = plans.pending(snapshot, own or {})
    claim = run.claim
    kept_to = ServiceLimits(claim.service, claim.partitions, LOG)
    outside = {plan.time for plan in pending if kept_to.is_outside(plan, Admitted())}
    return plans.choose(snapshot, pending, own or {}, outside)


def test_a_plan_that_has_to_be_run_and_is_not_dead_is_told(served):
    operator, run, snapshot = served("1.2.0/clustering", op="run", plan_timeout=timedelta(days=9999))
    stuck, waiting = (one.time for one in pending_plans(snapshot, CLUSTERING, DEFAULT_RULE))
    choice = chosen(operator, run, snapshot)
    assert ([*choice.run], [*choice.leave]) == ([waiting], [stuck])
    operator.instants = [stuck]
    trigger = deferred(operator, run, snapshot)
    assert (trigger.instants, trigger.until) == ([stuck], ["committed", "rolled_back", "gone"])
    assert f"{stuck}: a driver may run it" in run.journal.record.waiting.reason


def deferred(operator, run, snapshot, own=None):
    with pytest.raises(WaitNeeded) as needed:
        chosen(operator, run, snapshot, own)
    with pytest.raises(TaskDeferred) as deferred:
        defer(operator, needed.value.wait)
    assert deferred.value.method_name == "execute_after_rivals"
    return deferred.value.trigger


def test_an_own_plan_of_a_lost_worker_is_waited_for_until_it_counts_as_dead(served):
    """Its driver's end was not seen: neither retries nor a second executor help before that."""
    unseen = AttemptRecord(1, 3, "identity", TABLE, 1)
    operator, run, snapshot = served("1.2.0/clustering", attempts=(unseen,))
    pending = pending_plans(snapshot, CLUSTERING, DEFAULT_RULE)[0]
    own = {pending.time: False}
    left_s = 1000
    operator.plan_timeout = timedelta(milliseconds=pending.idle_ms, seconds=left_s)
    begun_ms = now_ms()
    trigger = deferred(operator, run, snapshot, own)
    assert trigger.instants == [pending.time]
    assert begun_ms <= trigger.deadline_ms <= now_ms() + (left_s + 1) * 1000
    since = run.journal.record.waiting
    assert deferred(operator, run, snapshot, own).instants == [pending.time]
    assert run.journal.record.waiting == replace(run.journal.record.waiting, since_ms=since.since_ms)
    run.spec = replace(run.spec, wait_timeout=timedelta(0))
    with pytest.raises(AdmissionTimeoutError, match="another driver may be running"):
        chosen(operator, run, snapshot, own)
    operator.plan_timeout = timedelta(0)
    assert pending.time in chosen(operator, run, snapshot, own).run
    assert run.journal.record.waiting is None


def test_an_own_plan_whose_driver_was_seen_to_end_is_run_at_once(served):
    operator, run, snapshot = served("1.2.0/clustering", plan_timeout=timedelta(days=9999))
    own = {pending_plans(snapshot, CLUSTERING, DEFAULT_RULE)[0].time: False}
    assert [*chosen(operator, run, snapshot, own).run] == [*own]


def test_a_plan_that_no_wait_helps_is_told(served):
    operator, run, snapshot = served("1.2.0/clustering", op="run", scope="elsewhere")
    operator.instants = [pending_plans(snapshot, CLUSTERING, DEFAULT_RULE)[0].time]
    with pytest.raises(FenceError, match="name plans within the scope"):
        chosen(operator, run, snapshot)


def test_an_instant_that_is_not_there_is_refused(served):
    operator, run, snapshot = served("1.2.0/clustering", op="run", instants=["20200101000000000"])
    with pytest.raises(ConfigurationError, match="20200101000000000 is not in the timeline"):
        chosen(operator, run, snapshot)


def test_what_the_table_says_came_of_it(served):
    operator, run, snapshot = served("1.2.0/compaction", compaction, op="run")
    pending = [one.time for one in pending_plans(snapshot, COMPACTION, DEFAULT_RULE)]
    done = next(
        one.time for one in snapshot.timeline.completed_writes() if "compaction" in one.requested_action
    )
    plans = plans_of(run, operator._service_task(), DEFAULT_RULE)
    facts = plans.facts(snapshot, PlanChoice(run={done: ""}, roll_back={"20200101000000000": ""}))
    assert facts == {
        "scheduled": [],
        "completed": [done],
        "rolled_back": ["20200101000000000"],
        "left": pending,
    }
    for undone in (PlanChoice(run={pending[0]: ""}), PlanChoice(roll_back={pending[1]: ""})):
        with pytest.raises(JobError, match="is pending"):
            plans.facts(snapshot, undone)


def test_only_merge_on_read_tables_are_compacted(served):
    _, _, snapshot = served("1.2.0/clustering", compaction)
    with pytest.raises(ConfigurationError, match="is copy-on-write"):
        ServiceLimits(COMPACTION, None, LOG).refuse_table(snapshot, {})


def test_only_one_service_of_a_kind_runs_at_a_time_beside_writers():
    prefers = {STRATEGY_OPTION: Strategy.PREFER_WRITER.class_name}
    line = Queue(MemoryStore())

    def stand(owner, service=None):
        shared = Scope.of(TABLE, None, Mode.SHARED)
        scopes = [shared]
        if service:
            one = claim(service, 9)
            asked = one.scope(prefers if service is Service.CLUSTERING else {}, None)
            assert asked == shared
            scopes += one.beside(asked)
        ticket = line.request(Request(owner, Owner(("d", "r", owner)), tuple(scopes), 10_000))
        return line.status(ticket)

    assert stand("clustering", Service.CLUSTERING).held
    assert stand("compaction", Service.COMPACTION).held
    assert stand("writer").held
    (blocker,) = stand("other", Service.CLUSTERING).blockers
    assert blocker.queued.request.owner.path[-1] == "clustering"
    alone = claim(Service.CLUSTERING, 9)
    assert alone.beside(alone.scope({}, None)) == ()


@pytest.mark.parametrize("name", ["application", "application_args", "isolation"])
def test_what_a_table_service_has_no_use_for_is_refused(name):
    with pytest.raises(ConfigurationError, match=f"{name}: the driver runs a program of this provider"):
        HudiClusteringOperator(task_id="c", table="/t", **{name: "x"})


class LeasedSpark:
    """Takes one driver's job and what leads the driver, in the place of Spark."""

    def __init__(self):
        self.submitter, self.log_read, self.was_refused = self, True, False
        self.ended, self.exit_code = True, 0

    def prepared(self, job, options, *, without=()):
        self.job = job
        return nullcontext(job)

    def driver(self, submission):
        assert submission is self.job
        return self

    def feed(self, extensions):
        self.extensions = extensions

    def run(self, listeners, on_start, guards):
        on_start(Handle("in_memory", "a driver"))
        (listen,) = listeners
        listen({"fact": "protected", "options": 20})
        self.guards = guards

    def forget(self, *identities):
        pass


@pytest.mark.parametrize("service", [COMPACTION, CLUSTERING])
def test_a_service_that_only_its_lease_keeps_apart_commits_only_under_it(service):
    journal, spark = Journal(Store(), TryKey(1, 1)), LeasedSpark()
    plans = SimpleNamespace(path=TABLE, task=SimpleNamespace(service=service), run=journal, log=LOG)
    keeper = SimpleNamespace(lost=None)
    admitted = Admitted(is_fenced=False, keeper=keeper, lease_ttl_s=30.0)
    attempt = ServiceAttempt(plans, None, spark, lambda *_: None)
    attempt._drive(SparkJob("run.py"), Preparation(None, None, {}, "", None), ["schedule"], admitted)
    assert spark.job.lease_ttl_s == 30.0
    assert spark.extensions is keeper
    assert spark.guards == [admitted]

"""An attempt whose driver outlives its process is continued by the next one, under one lease."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from airflow_occ_provider.attempts import try_lease
from airflow_occ_provider.attempts.attempt import CommitLockAudit
from airflow_occ_provider.attempts.earlier_tries import end_earlier_drivers
from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen
from airflow_occ_provider.attempts.waits import DriverEvent
from airflow_occ_provider.errors import (
    ExecutionTimeoutError,
    FailedAfterCommitError,
    LeaseLostError,
    LockUnreachableError,
    NotSubmittedError,
    SubmitterUnreachableError,
    WriteConflictError,
)
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import driver as module
from airflow_occ_provider.triggers import lease as lease_module
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from tests.contract.in_memory_submitter import InMemorySubmitter
from tests.support.avro_metadata import RECORD, avro
from tests.support.continued_tries import (
    ABSENCE_MS,
    LOG,
    PATIENCE_S,
    Process,
    World,
    deferred,
    ends,
)
from tests.support.hand_made_tables import T1, T2, C, add, begin
from tests.support.recorded_attempts import REQUESTED


@pytest.fixture
def world(folder):
    """A cluster whose job commits as soon as ``go`` is set."""
    go = threading.Event()

    def job(say, asked_to_end):
        say(REQUESTED)
        while not go.wait(0.01):
            if asked_to_end.is_set():
                return -9
        say("x INFO TransactionUtils: Successfully resolved conflicts, if any")
        add(folder, f"{T1}_{C}.commit", identity=world.store.record["identity"])
        return 0

    world = World(folder, job)
    world.go = go
    yield world
    go.set()


def requests(world):
    return world.lock.leases().requests()


def test_a_process_gives_its_slot_back_and_the_next_one_finds_the_commit(world):
    wait = deferred(Process(world))
    (request,) = requests(world)
    assert wait.lease.ticket.name == request.name
    assert wait.is_fenced
    assert world.forgotten == []
    world.go.set()
    ends(world, wait.handle)
    commit = Process(world).run()
    assert commit.instant.time == T1
    assert len(world.drivers.drivers) == 1
    assert requests(world) == ()
    (kept,) = world.store.record["attempts"]
    assert (kept["instants"], kept["outcome"], kept["settled"]) == ([T1], "committed", True)
    assert kept["order_token"] == wait.lease.ticket.order_token
    assert world.forgotten == [kept["identity"]]


def test_the_wait_has_no_secrets_of_the_drivers_options(world):
    options = {"fs.s3a.secret.key": "secret-of-the-site", "fs.s3a.endpoint": "s3:9000"}
    wait = deferred(Process(world, options=options))
    assert "secret-of-the-site" not in repr(wait)
    assert "secret-of-the-site" not in repr(world.store.record)


def test_the_next_try_follows_the_driver_of_one_that_died(world):
    handle = deferred(Process(world)).handle
    again = deferred(Process(world, try_number=2))
    assert again.handle == handle
    world.go.set()
    ends(world, handle)
    assert Process(world, try_number=2).run().instant.time == T1
    assert len(world.drivers.drivers) == 1
    assert [one["try_number"] for one in world.store.record["attempts"]] == [1]


def test_a_process_may_watch_the_driver_itself(world):
    handle = deferred(Process(world)).handle
    world.go.set()
    assert Process(world, try_number=2).run(is_deferrable=False).instant.time == T1
    assert isinstance(world.submitter().poll(handle), Ended)


@pytest.mark.parametrize("later", [{"work": "other"}, {"max_tries": 9}])
def test_other_work_and_a_clear_by_the_user_end_the_driver(world, later):
    handle = deferred(Process(world)).handle
    process = Process(world, try_number=2, **later)
    assert process.begun() is None
    end_earlier_drivers(process.journal, world.submitter, LOG)
    assert world.submitter().poll(handle) == Ended(-9)
    assert world.store.record["attempts"][0]["end"] == "ended by try 2"


def test_a_fenced_attempt_whose_lease_expired_is_judged_by_the_table(world):
    wait = deferred(Process(world))
    world.lock.leases().evict(requests(world)[0])
    world.go.set()
    ends(world, wait.handle)
    assert Process(world).run().instant.time == T1
    assert requests(world) == ()


def test_a_commit_after_the_loss_of_its_only_fence_is_reported(world):
    wait = deferred(Process(world, is_fenced=False))
    assert not wait.is_fenced
    world.lock.leases().evict(requests(world)[0])
    world.go.set()
    ends(world, wait.handle)
    # This driver reports no end of its own: that the guard did not end it after its commit is not known.
    with pytest.raises(FailedAfterCommitError, match=r"its commit \d+: the lease .* expired before"):
        Process(world, is_fenced=False).run()


def test_an_unprotected_driver_whose_lease_is_lost_is_ended_not_followed(world):
    wait = deferred(Process(world, is_fenced=False))
    world.lock.leases().evict(requests(world)[0])
    with pytest.raises(LeaseLostError):
        Process(world, try_number=2, is_fenced=False).run()
    assert world.submitter().poll(wait.handle) == Ended(-9)
    assert len(world.drivers.drivers) == 1


def term_ms(world):
    """Return for how long the one lease is held without a renewal."""
    ((name, node),) = world.lock.nodes.read(world.lock.nodes.stamps()).items()
    return Content.decode(node.data, name).term_ms


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_lease_that_alone_protects_outlives_its_process_until_the_next_try(world, is_fenced):
    terms, process = world.lock.terms(), Process(world, is_fenced=is_fenced)
    watching = threading.Thread(target=lambda: process.run(is_deferrable=False), daemon=True)
    watching.start()
    deadline = time.monotonic() + PATIENCE_S
    while not world.drivers.drivers and time.monotonic() < deadline:
        time.sleep(0.01)
    seen_ms = term_ms(world)
    world.go.set()
    watching.join(PATIENCE_S)
    assert seen_ms == (terms.ttl_ms if is_fenced else terms.claim_ttl_ms + ABSENCE_MS)
    assert requests(world) == ()


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_lease_that_alone_protects_outlives_its_triggerer_as_long(world, triggerer, is_fenced):
    wait = deferred(Process(world, is_fenced=is_fenced))
    claim_ttl_ms = world.lock.terms().claim_ttl_ms + (0 if is_fenced else ABSENCE_MS)
    assert term_ms(world) == wait.lease.claim_ttl_ms == claim_ttl_ms
    assert triggerer(wait)._term_ms == claim_ttl_ms


def test_the_lease_is_taken_over_even_if_the_scope_would_be_another_now(world):
    wait = deferred(Process(world))
    world.go.set()
    ends(world, wait.handle)
    later = Process(world, is_fenced=False)  # asks for the table exclusively
    assert later.run().instant.time == T1
    assert requests(world) == ()


def test_arguments_that_render_differently_are_no_other_work_within_a_try(world):
    handle = deferred(Process(world)).handle
    assert deferred(Process(world, work="rendered a minute later")).handle == handle
    assert len(world.drivers.drivers) == 1


def test_a_submission_that_failed_costs_the_next_try_no_wait(world):
    first, submitter = Process(world), world.submitter()

    def fails(key, started):
        raise NotSubmittedError("spark-submit failed")

    submitter.submit = fails
    first.submitter = lambda _=None: submitter
    with pytest.raises(NotSubmittedError):
        first.run()
    (kept,) = world.store.record["attempts"]
    assert (kept["driver"], kept["end"], kept["log_read"]) == (None, "exit code 1", True)
    assert requests(world) == ()
    assert Process(world, try_number=2).begun() is None


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_driver_whose_submission_was_interrupted_is_ended(world, is_fenced):
    first, submitter = Process(world, is_fenced=is_fenced), world.submitter()
    submit = submitter.submit

    def is_interrupted(key, started):
        submit(key, started)
        raise TimeoutError

    submitter.submit = is_interrupted
    first.submitter = lambda _=None: submitter
    with pytest.raises(TimeoutError):
        first.run()
    assert [one.exit_code for one in world.drivers.drivers.values()] == [-9]
    assert world.store.record["attempts"][0]["driver"] is not None
    assert requests(world) == ()


class AwaySubmitter(InMemorySubmitter):
    """Its service does not answer; ``given_up`` is what a submitter says after its patience."""

    given_up = "the service has not answered for 30 minutes. Remedy: start it"

    def __init__(self, *given, looks=0):
        super().__init__(*given, outlives_task=True)
        self.looks = looks

    def poll(self, handle):
        self.looks -= 1
        is_away = self.looks >= 0
        return Unseen("it is away" if is_away else self.given_up, is_away=is_away)

    def read(self, handle, wait_s):
        if isinstance(self.poll(handle), Unseen) and self.looks >= 0:
            return []
        raise SubmitterUnreachableError(self.given_up)

    def end(self, handle):
        pass


def away(world, looks=0):
    """Let the service of the drivers be away, for a number of looks of each submitter."""
    return lambda _=None: AwaySubmitter(world.job, world.drivers, looks=looks)


@pytest.mark.parametrize("is_fenced", [True, False])
def test_a_driver_whose_service_stays_away_is_followed_by_a_later_try(world, monkeypatch, is_fenced):
    monkeypatch.setattr(try_lease, "_LONGEST_WAIT_S", 0)
    handle = deferred(Process(world, is_fenced=is_fenced)).handle
    process = Process(world, try_number=2, is_fenced=is_fenced)
    process.submitter = away(world, looks=3)
    with pytest.raises(SubmitterUnreachableError, match="has not answered for 30 minutes"):
        process.run(is_deferrable=False)
    (kept,) = world.store.record["attempts"]
    assert (kept["end"], kept["settled"]) == ("", False)
    assert len(requests(world)) == (0 if is_fenced else 1)  # only the lease keeps others away
    assert world.submitter().poll(handle) == Running()
    world.go.set()
    ends(world, handle)
    assert Process(world, try_number=3, is_fenced=is_fenced).run().instant.time == T1
    assert len(world.drivers.drivers) == 1


# The trigger between both processes.


@pytest.fixture
def triggerer(triggerer_of, world):
    return triggerer_of(world)


@pytest.fixture
def triggerer_of(monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(module, "_POLL_S", 0.05)

    def of(world):
        monkeypatch.setattr(module, "follower", lambda _, **__: world.submitter())
        monkeypatch.setattr(lease_module, "lock_hook", lambda _: world.lock)
        return partial(_trigger, world)

    return of


def _trigger(world, wait, deadline_ms=0):
    return HudiDriverTrigger(
        lock_conn_id="lock",
        ticket=wait.lease.ticket.to_json(),
        ttl_ms=wait.lease.ttl_ms,
        claim_ttl_ms=wait.lease.claim_ttl_ms,
        deadline_ms=deadline_ms,
        driver=wait.handle.to_json(),
        is_fenced=wait.is_fenced,
        table=str(world.folder.parent),
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
    )


async def event_of(trigger):
    return (await asyncio.wait_for(anext(trigger.run()), PATIENCE_S)).payload


def test_the_trigger_renews_the_lease_and_fires_at_the_drivers_end(world, triggerer):
    world.lock.ttl_ms = 600
    wait = deferred(Process(world))
    name = wait.lease.ticket.name

    async def follow():
        following = asyncio.create_task(event_of(triggerer(wait)))
        begun = world.lock.nodes.read([name])[name].version
        while world.lock.nodes.read([name])[name].version < begun + 3:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert not following.done()
        world.go.set()
        return await following

    event = asyncio.run(follow())
    assert (event["status"], event["stop"]) == ("ended", None)
    assert Process(world).run().instant.time == T1


def test_the_trigger_survives_airflows_database(world, triggerer):
    trigger = triggerer(deferred(Process(world)))
    path, arguments = trigger.serialize()
    assert path == "airflow_occ_provider.triggers.driver.HudiDriverTrigger"
    assert HudiDriverTrigger(**arguments).serialize() == trigger.serialize()


def test_the_deadline_ends_the_driver_and_says_so(world, triggerer):
    wait = deferred(Process(world))
    event = asyncio.run(event_of(triggerer(wait, deadline_ms=1)))
    assert event["stop"]["line"] == "the task's execution_timeout is over"
    with pytest.raises(ExecutionTimeoutError, match="execution_timeout is over"):
        Process(world).run(DriverEvent.of(event))


class BlindSubmitter(InMemorySubmitter):
    """Cannot read the facts of a driver that has ended."""

    def poll(self, handle):
        state = super().poll(handle)
        return replace(state, log_is_whole=False) if isinstance(state, Ended) else state

    def read(self, handle, wait_s):
        return None if isinstance(self.poll(handle), Ended) else []


def fact(name, **details):
    return {"fact": name, **details}


def loses(go, folder):
    """A job that loses a conflict, and whose exceptions name secrets."""
    named = "operation = ConcurrentOperation(instantTime"
    causes = [
        {"type": "ValueError", "message": "key of-the-job-itself", "jvm": False, "frames": []},
        {
            "type": "org.apache.hudi.exception.HoodieWriteConflictException",
            "message": f"{'x' * 985} password=hunter-of-the-site",
            "jvm": True,
            "frames": ["at org.apache.hudi.X.resolve(X.java:1)"],
        },
    ]

    def job(say, _):
        say(fact("protected", followed=False))
        say(REQUESTED)
        begin(folder, T1)
        go.wait(PATIENCE_S)
        say(f"x INFO C: Conflict: first {named}={T1}), second {named}={T2})")
        say(fact("fatal", causes=causes))
        say(fact("end", exit_code=1))
        return 1

    return job


def event_of_a_loser(world, triggerer):
    """Have the trigger see a conflict, and end with the driver."""
    world.job = loses(world.go, world.folder)
    wait = deferred(Process(world))
    world.go.set()
    ends(world, wait.handle)
    (world.folder / "timeline" / f"{T1}.inflight").write_bytes(avro(RECORD))  # its workload profile
    return json.loads(json.dumps(asyncio.run(event_of(triggerer(wait)))))


def test_the_next_try_takes_its_scope_from_a_profile_that_is_rolled_back_by_now(world, triggerer):
    event = event_of_a_loser(world, triggerer)
    partitions = sorted(RECORD["partitionToWriteStats"])
    assert event["planned"] == {T1: partitions}
    for left in (world.folder / "timeline").glob(f"{T1}.*"):
        left.unlink()
    with pytest.raises(WriteConflictError):
        Process(world).run(DriverEvent.of(event))
    assert world.store.record["escalation"] == partitions


def test_a_lease_that_was_held_at_the_drivers_end_may_be_lost_afterwards(world, triggerer):
    wait = deferred(Process(world, is_fenced=False))
    world.go.set()
    ends(world, wait.handle)
    event = asyncio.run(event_of(triggerer(wait)))
    assert event["is_leased"] is True
    world.lock.leases().evict(requests(world)[0])
    assert Process(world, is_fenced=False).run(DriverEvent.of(event)).instant.time == T1


def test_a_lease_that_was_lost_before_the_drivers_end_is_reported_as_such(world, triggerer):
    wait = deferred(Process(world))
    world.lock.leases().evict(requests(world)[0])
    world.go.set()
    ends(world, wait.handle)
    event = asyncio.run(event_of(triggerer(wait)))
    assert event["is_leased"] is False
    assert Process(world).run(DriverEvent.of(event)).instant.time == T1


def test_a_conflict_that_the_trigger_saw_is_read_from_the_drivers_facts(world, triggerer):
    event = event_of_a_loser(world, triggerer)
    with pytest.raises(WriteConflictError) as lost:
        Process(world).run(DriverEvent.of(event))
    assert T2 in str(lost.value)
    (kept,) = world.store.record["attempts"]
    assert (kept["instants"], kept["outcome"]) == ([T1], "commit_conflict")
    assert kept["log_read"]
    assert not (world.folder / ".heartbeat" / T1).exists()


def test_the_event_of_the_trigger_is_small_and_holds_no_secret(world, triggerer):
    text = json.dumps(event_of_a_loser(world, triggerer))
    assert "hunt" not in text  # nor a part of it, where the text was cut
    assert "of-the-job-itself" not in text
    assert len(text) < 4000


def test_a_commit_whose_check_the_trigger_missed_is_not_called_unchecked(world, triggerer, monkeypatch):
    """The trigger missed the last facts, and with them that Hudi had checked for conflicts."""

    class MissesTheEnd(BlindSubmitter):
        def read(self, handle, wait_s):
            lines = InMemorySubmitter.read(self, handle, wait_s)
            return lines and [line for line in lines if "Successfully resolved" not in line]

    wait = deferred(Process(world))
    world.go.set()
    ends(world, wait.handle)
    blind = MissesTheEnd(world.job, world.drivers, outlives_task=True)
    monkeypatch.setattr(module, "follower", lambda _, **__: blind)
    event = asyncio.run(event_of(triggerer(wait)))
    assert Process(world).run(DriverEvent.of(event)).instant.time == T1
    assert world.store.record["attempts"][0]["instants"] == [T1]


def test_a_lost_lease_ends_only_a_driver_that_nothing_else_protects(world, triggerer):
    world.lock.ttl_ms = 3000
    wait = deferred(Process(world, is_fenced=False))
    world.lock.leases().evict(requests(world)[0])
    event = asyncio.run(event_of(triggerer(wait)))
    assert "lost" in event["stop"]["line"]
    with pytest.raises(LeaseLostError):
        Process(world, is_fenced=False).run(DriverEvent.of(event))
    assert world.submitter().poll(wait.handle) == Ended(-9)


def test_the_trigger_gives_a_service_up_when_the_submitter_does(world, triggerer, monkeypatch):
    monkeypatch.setattr(module, "_UNSEEN_S", 0)
    wait = deferred(Process(world))
    submitter = away(world, looks=3)()
    monkeypatch.setattr(module, "follower", lambda _, **__: submitter)
    event = asyncio.run(event_of(triggerer(wait)))
    assert submitter.looks == -1
    assert event == {"status": "unseen", "reason": AwaySubmitter.given_up}
    assert len(requests(world)) == 1
    process = Process(world)
    process.submitter = away(world, looks=3)
    with pytest.raises(SubmitterUnreachableError, match=r"driver 1 is unseen: .* for 30 minutes"):
        process.run(DriverEvent.of(event))
    assert world.store.record["attempts"][0]["end"] == ""
    world.go.set()
    ends(world, wait.handle)
    assert Process(world, try_number=2).run().instant.time == T1
    assert len(world.drivers.drivers) == 1


def test_a_service_that_is_back_when_the_trigger_gives_up_is_asked_on(world):
    handle = deferred(Process(world)).handle
    event = DriverEvent.of({"status": "unseen", "reason": AwaySubmitter.given_up})
    assert deferred(Process(world), event=event).handle == handle


def test_a_storage_that_the_triggerer_cannot_read_is_not_waited_for_without_end(
    world, triggerer, monkeypatch
):
    monkeypatch.setattr(module, "_UNSEEN_S", 0)
    trigger = triggerer(deferred(Process(world)))
    trigger.driver = {**trigger.driver, "number": 99}
    trigger.storage_conn_id = "absent"

    def fails(*_):
        raise OSError("no route")

    monkeypatch.setattr(module, "shared_views", fails)
    event = asyncio.run(event_of(trigger))
    assert event == {"status": "unseen", "reason": "OSError: no route"}


def test_a_cluster_that_hangs_delays_no_trigger_of_another_one(world, triggerer):
    wait, go_on = deferred(Process(world)), threading.Event()

    def of(*managers):
        trigger = triggerer(wait)
        trigger.driver = {**trigger.driver, "resource_managers": list(managers)}
        return trigger

    async def both():
        hanging, many = of("http://rm1:8088", "http://rm2:8088"), range(3 * base._THREADS)
        stuck = [asyncio.create_task(hanging._asked(lambda: go_on.wait(PATIENCE_S))) for _ in many]
        try:
            here = of("http://other:8088")._asked(lambda: 7)
            assert await asyncio.wait_for(here, PATIENCE_S / 2) == 7
        finally:
            go_on.set()
            await asyncio.gather(*stuck)

    asyncio.run(both())


def test_a_killed_task_ends_its_driver_and_releases_its_lease(world, triggerer):
    wait = deferred(Process(world))
    asyncio.run(triggerer(wait).on_kill())
    assert world.submitter().poll(wait.handle) == Ended(-9)
    assert requests(world) == ()


def test_an_end_that_fails_unexpectedly_is_asked_for_again(world, triggerer, monkeypatch):
    wait = deferred(Process(world))
    trigger, failures = triggerer(wait), [RuntimeError("no connection"), RuntimeError("still none")]
    end = type(trigger._submitter).end

    def fails(one, handle):
        if failures:
            raise failures.pop()
        end(one, handle)

    monkeypatch.setattr(type(trigger._submitter), "end", fails)
    monkeypatch.setattr(module, "_RETRY_S", 0.01)
    asyncio.run(trigger.on_kill())
    assert world.submitter().poll(wait.handle) == Ended(-9)


def test_a_triggerer_that_stops_passes_the_lease_on(world, triggerer):
    wait = deferred(Process(world))
    trigger = triggerer(wait)
    asyncio.run(trigger.cleanup())
    assert len(requests(world)) == 1
    assert world.submitter().poll(wait.handle) == Running()


@pytest.fixture
def shutting_down(folder):
    """A cluster whose drivers have committed and said some facts, and end once ``go`` is set.

    ``said`` is set before that.
    """
    go, said = threading.Event(), threading.Event()

    def with_facts(*facts):
        def job(say, _):
            say(REQUESTED)
            add(folder, f"{T1}_{C}.commit", identity=world.store.record["identity"])
            for fact in facts:
                say(fact)
            said.set()
            assert go.wait(PATIENCE_S)
            return 0

        world = World(folder, job)
        world.go, world.said = go, said
        return world

    yield with_facts
    go.set()


PROTECTED = {"fact": "protected", "reports_end": True}


def end(exit_code, *, is_certain=True):
    return {"fact": "end", "exit_code": exit_code, "committed": [T1], "is_certain": is_certain}


def test_a_trigger_releases_the_lease_of_a_job_that_ended_well_at_once(shutting_down, triggerer_of):
    world = shutting_down(PROTECTED, end(0))
    wait = deferred(Process(world))
    rival = world.lock.leases().request(
        Request("rival", Owner(("dag", "run", "rival")), (Scope(str(world.folder.parent)),), 60_000)
    )
    assert not world.lock.leases().status(rival).held
    world.go.set()
    ends(world, wait.handle)
    event = asyncio.run(event_of(triggerer_of(world)(wait)))
    assert (event["is_leased"], event["is_released"]) == (True, True)
    assert world.lock.leases().status(rival).held
    assert Process(world).run(DriverEvent.of(event)).instant.time == T1
    assert [request.name for request in requests(world)] == [rival.name]
    assert not world.store.record.get("place")


@pytest.mark.parametrize(
    ("facts", "is_fenced"),
    [((PROTECTED, end(1)), True), ((end(0),), True), ((PROTECTED,), True), ((PROTECTED, end(0)), False)],
)
def test_a_trigger_keeps_any_other_lease_for_the_next_process(
    shutting_down, triggerer_of, facts, is_fenced
):
    world = shutting_down(*facts)
    wait = deferred(Process(world, is_fenced=is_fenced))
    world.go.set()
    ends(world, wait.handle)
    event = asyncio.run(event_of(triggerer_of(world)(wait)))
    assert event["is_leased"]
    assert "is_released" not in event
    (request,) = requests(world)
    assert request.name == wait.lease.ticket.name


@contextmanager
def running(process):
    """Run a process to its end beside a block, which is given what becomes its result."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(process.run, is_deferrable=False)
        assert process.world.said.wait(PATIENCE_S)
        try:
            yield result
        finally:
            process.world.go.set()


def test_a_lease_is_released_once_the_job_has_ended_well_while_its_driver_shuts_down(shutting_down):
    world = shutting_down(PROTECTED, end(0))
    with running(Process(world)) as result:
        deadline = time.monotonic() + PATIENCE_S
        while requests(world):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not result.done()
    commit = result.result()
    assert commit.instant.time == T1
    (kept,) = world.store.record["attempts"]
    assert (kept["outcome"], kept["settled"]) == ("committed", True)
    assert not world.store.record.get("place")


def test_hudis_lock_is_counted_before_the_next_writer_may_take_it(shutting_down, monkeypatch):
    world = shutting_down(PROTECTED, end(0))
    was_leased = []
    monkeypatch.setattr(CommitLockAudit, "count", lambda _: was_leased.append(bool(requests(world))))
    with running(Process(world)):
        pass
    assert was_leased == [True, True]


def test_a_release_that_failed_while_the_driver_shut_down_is_repeated(shutting_down, monkeypatch):
    world = shutting_down(PROTECTED, end(0))
    release, answers = Queue.release, [False, True]

    def unreachable_once(self, ticket):
        if not answers.pop(0):
            raise LockUnreachableError("no route")
        return release(self, ticket)

    monkeypatch.setattr(Queue, "release", unreachable_once)
    with running(Process(world)) as result:
        pass
    assert result.result().instant.time == T1
    assert (answers, requests(world)) == ([], ())


def test_a_trigger_whose_lock_service_is_away_leaves_the_release_to_the_task(
    shutting_down, triggerer_of, monkeypatch
):
    world = shutting_down(PROTECTED, end(0))
    wait = deferred(Process(world))
    world.go.set()
    ends(world, wait.handle)

    def unreachable(*_):
        raise LockUnreachableError("no route")

    with monkeypatch.context() as away:
        away.setattr(Queue, "release", unreachable)
        event = asyncio.run(event_of(triggerer_of(world)(wait)))
    assert "is_released" not in event
    assert Process(world).run(DriverEvent.of(event)).instant.time == T1
    assert requests(world) == ()


@pytest.mark.parametrize(
    ("facts", "is_fenced"),
    [
        ((PROTECTED, end(1)), True),  # a loser gives way by its next request
        ((end(0),), True),  # nothing is known of its protection
        ((PROTECTED, end(0, is_certain=False)), True),  # no guard keeps it from another commit
        ((PROTECTED, {"fact": "not_protected", "reason": "x"}, end(0)), True),
        ((PROTECTED,), True),
        ((PROTECTED, end(0)), False),  # only the lease keeps others away
    ],
)
def test_any_other_lease_is_held_until_the_driver_is_gone(shutting_down, facts, is_fenced):
    world = shutting_down(*facts)
    looks = []
    read = InMemorySubmitter.read

    def counted(self, handle, wait_s):
        entries = read(self, handle, wait_s)
        looks.append(bool(requests(world)))
        return entries

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InMemorySubmitter, "read", counted)
        with running(Process(world, is_fenced=is_fenced)) as result:
            before = len(looks)
            while len(looks) < before + 5 and not result.done():
                time.sleep(0.01)
    assert all(looks)
    assert requests(world) == ()

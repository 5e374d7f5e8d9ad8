from __future__ import annotations

import json
import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRescheduleException
from airflow.sdk.timezone import utcnow

from airflow_occ_provider.attempts import try_lease
from airflow_occ_provider.attempts import try_lease as module
from airflow_occ_provider.attempts.record import QueueEntry, TaskRecord
from airflow_occ_provider.attempts.try_lease import AdmissionRequest
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.errors import (
    AdmissionTimeoutError,
    ConfigurationError,
    FenceError,
    LeaseRefusedError,
    WriteConflictError,
)
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.observer import TRUSTED
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators import task_run
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.operators.task_run import admission_trigger, log_admission
from airflow_occ_provider.sensors.lease import HudiLeaseSensor
from airflow_occ_provider.submitters.processes import LONGEST_END_S
from airflow_occ_provider.task import run
from airflow_occ_provider.task.run import open_journal
from tests.support.memory_store import MemoryStore
from tests.support.policies import with_policy
from tests.support.task_state import Instance, Store

SCOPE = Scope.of("s3://lake/trips", ["dt=1"])
OWNER, HOUR, LOG = Owner(("d", "r", "t")), timedelta(hours=1), logging.getLogger("test")


@pytest.fixture(autouse=True)
def connection(monkeypatch):
    extra = {"lease_ttl_s": 30, "claim_ttl_s": 300}
    value = {"conn_type": "hudi_zookeeper_lock", "host": "127.0.0.1:1", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
    spark = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def nodes():
    return MemoryStore()


@pytest.fixture
def line(nodes):
    return Queue(nodes)


def run_of(store, try_number=1, max_tries=5):
    return open_journal({"ti": Instance(try_number, max_tries), "task_state_store": store})


def admission(store, line, try_number=1, timeout=HOUR):
    run = run_of(store, try_number)
    return AdmissionRequest(run, line, OWNER, terms=lock_hook("lock").terms(), timeout=timeout, log=LOG)


def wait(request, ticket, status):
    return admission_trigger(request.keep(ticket, status), "lock")


def test_a_site_is_the_one_of_the_configuration(monkeypatch):
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", " green ")
    assert run.site() == "green"


def test_without_one_it_follows_from_the_api_servers_address(monkeypatch):
    monkeypatch.delenv("AIRFLOW__HUDI_OCC__SITE_ID", raising=False)
    sites = []
    for base, execution in (
        ("https://a.example/airflow/", "http://one/execution/"),
        ("https://a.example/airflow", "http://two/execution/"),
        ("https://b.example/airflow", "http://one/execution/"),
        ("", "http://one/execution/"),
        ("", "http://two/execution/"),
    ):
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", execution)
        sites.append(run.site())
    assert sites[0] == sites[1]
    assert len(set(sites)) == 4
    assert all(len(site) == 12 for site in sites)


def test_no_variable_is_read_or_made(monkeypatch):
    monkeypatch.delenv("AIRFLOW__HUDI_OCC__SITE_ID", raising=False)
    for method in ("get", "set", "keys", "delete"):
        monkeypatch.setattr(Variable, method, lambda *_, **__: pytest.fail("asked for a Variable"))
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    assert run.task_owner({"ti": ti}).site == run.site()


def test_an_owner_names_its_site_and_its_request_the_try(monkeypatch, store, line):
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", "green")
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    assert run.task_owner({"ti": ti}) == Owner(("d", "r", "t"), site="green")
    assert run.run_owner({"ti": ti}) == Owner(("d", "r"), "t", "green")
    admission(store, line, try_number=3).ask([SCOPE])
    assert [one.request.incarnation for one in line.requests()] == [3]


def test_a_try_that_was_given_up_takes_nothing_from_the_younger_one(store, nodes, line):
    admission(store, line).ask([SCOPE])
    old = admission(store, Queue(nodes), 1)
    ours, _ = admission(store, line, 2).ask([SCOPE])
    with pytest.raises(LeaseRefusedError, match="try 1 requests a lease, but try 2 is queued"):
        old.ask([SCOPE])
    line.ensure_held(ours)


def test_a_task_that_is_cleared_gives_up_what_it_asked_for_before(store, line):
    first, _ = admission(store, line).ask([SCOPE])
    run_of(store).succeed()
    again = AdmissionRequest(
        run_of(store, 2, max_tries=6),
        line,
        OWNER,
        terms=lock_hook("lock").terms(),
        timeout=HOUR,
        log=LOG,
    )
    second, status = again.ask([Scope.of(SCOPE.table, None)])
    assert status.held
    assert [one.token for one in line.requests()] == [second.token] != [first.token]


def test_a_task_that_is_cleared_goes_behind_the_one_that_waits(store, line):
    admission(store, line).ask([SCOPE])
    theirs = rival(line)
    run_of(store).succeed()
    again = AdmissionRequest(
        run_of(store, 2, max_tries=6),
        line,
        OWNER,
        terms=lock_hook("lock").terms(),
        timeout=HOUR,
        log=LOG,
    )
    second, status = again.ask([SCOPE])
    assert not status.held
    assert [one.token for one in line.requests()] == [theirs.token, second.token]


def rival(line):
    return line.request(Request("rival", Owner(("d", "r0", "t")), (SCOPE,), 30_000))


def test_the_next_process_of_the_task_finds_its_place_again(store, nodes, line):
    theirs = rival(line)
    ours, status = admission(store, line).ask([SCOPE])
    assert not status.held
    line.release(theirs)
    again, status = admission(store, Queue(nodes)).ask([SCOPE])
    assert status.held
    assert (again.name, again.token) == (ours.name, ours.token)
    assert again.epoch > ours.epoch


def test_a_place_that_was_lost_on_the_way_to_a_worker_is_claimed_for_longer(
    store, line, caplog, monkeypatch
):
    rival(line)
    ticket, status = admission(store, line).ask([SCOPE])
    first = wait(admission(store, line), ticket, status)
    line.evict(line.requests()[-1])
    late_ms = module.now_ms() + 5 * first.claim_ttl_ms
    monkeypatch.setattr(module, "now_ms", lambda: late_ms)
    again = admission(store, line)
    waiting = wait(again, *again.ask([SCOPE]))
    assert waiting.claim_ttl_ms == 4 * first.claim_ttl_ms  # no longer: the task may be gone
    assert "raise claim_ttl_s" in caplog.text


def test_a_triggerer_that_is_full_has_the_task_look_again_later():
    with pytest.raises(AirflowRescheduleException) as raised:
        log_admission({"status": "full", "again_s": 60.0}, LOG)
    assert raised.value.reschedule_date > utcnow()


def test_who_asks_for_something_else_gets_a_new_place_and_gives_the_old_one_up(store, line):
    first, _ = admission(store, line).ask([SCOPE])
    second, _ = admission(store, line).ask([Scope.of(SCOPE.table, None)])
    assert [one.token for one in line.requests()] == [second.token]
    assert second.token > first.token


def test_the_wait_is_claimed_for_the_next_process_and_told(store, line, caplog):
    rival(line)
    ours = admission(store, line)
    with caplog.at_level(logging.INFO):
        ticket, status = ours.ask([SCOPE])
    trigger = wait(ours, ticket, status)
    kwargs = trigger.serialize()[1]
    assert (kwargs["ttl_ms"], kwargs["claim_ttl_ms"]) == (30_000, 300_000)
    assert kwargs["ticket"] == ticket.to_json()
    assert "Queued for s3://lake/trips (exclusive, dt=1); order token 2." in caplog.text
    assert "Blocked by 1 earlier request: d / r0 / t (exclusive, dt=1, since 2" in caplog.text


def test_a_wait_that_is_too_long_is_given_up_and_a_later_try_waits_anew(store, line):
    rival(line)
    late = admission(store, line, timeout=timedelta(0))
    with pytest.raises(
        AdmissionTimeoutError, match=r"not admitted within 0:00:00: Blocked by 1 earlier request: d / r0"
    ):
        wait(late, *late.ask([SCOPE]))
    assert len(line.requests()) == 1
    assert TaskRecord.from_json(store["hudi_write"]).queue_entry is None


def test_each_try_counts_its_own_wait(store, line, monkeypatch):
    rival(line)
    admission(store, line).ask([SCOPE])
    before = TaskRecord.from_json(store["hudi_write"]).queue_entry
    monkeypatch.setattr(module, "now_ms", lambda: before.since_ms + 5000)
    admission(store, line).ask([SCOPE])
    assert TaskRecord.from_json(store["hudi_write"]).queue_entry == before
    admission(store, line, try_number=2).ask([SCOPE])
    after = TaskRecord.from_json(store["hudi_write"]).queue_entry
    assert after == QueueEntry(before.request_id, before.asked, before.since_ms + 5000, 2)


def test_what_a_lost_try_was_about_to_write_outlives_it(store):
    run_of(store).escalate(("b", "a"))
    assert run_of(store, 2).record.escalation == ("b", "a")
    run_of(store, 2).escalate(())
    assert run_of(store, 3).record.escalation == ()


def task(**arguments):
    given = {"task_id": "t", "application": "job.py", "table": "/t", **with_policy(arguments)}
    return HudiWriteOperator(**given)


def test_a_loser_that_stands_in_line_is_not_spread_over_time():
    policy = HudiConflictRetryPolicy(base_delay=timedelta(hours=1), max_delay=timedelta(hours=1))
    error = WriteConflictError("lost", outcome="commit_conflict")

    def delay(**arguments):
        context = {"task": task(**arguments), "task_state_store": Store()}
        return policy.evaluate(error, 1, 9, context).retry_delay

    assert delay() == timedelta(0)
    assert delay(admission="off") > timedelta(0)


def test_writers_that_only_the_line_keeps_apart_stand_in_it():
    with pytest.raises(ConfigurationError, match=r"^admission: off, and isolation='serializable'"):
        task(admission="off", isolation="serializable")
    with pytest.raises(ConfigurationError, match=r"^admission: 'soon' is not known.*'queue', 'off'"):
        task(admission="soon")


@pytest.mark.parametrize("scope", ["", [], ["dt=1", " / "]])
def test_a_scope_that_was_rendered_empty_is_refused(scope):
    with pytest.raises(ConfigurationError, match=r"^scope: .* is empty.*Remedy: name the scope"):
        task(scope=scope).spec({})


def test_a_lock_of_one_process_leaves_nothing_outside_the_line(store, line, monkeypatch):
    hook = SimpleNamespace(lock_conn_id="lock", leases=lambda: line)
    monkeypatch.setattr(task_run, "lock_hook", lambda _: hook)
    provider = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    run = task(admission="off")._protected_run(context(store))
    admitted = run.admitted({LOCK_PROVIDER: provider})
    with pytest.raises(ConfigurationError, match=r"^admission: off, and a lock that excludes"), admitted:
        raise AssertionError("not reached")
    with run.admitted({}) as outside:
        assert (outside.scope, outside.order_token, outside.keeper) == (None, "", None)


def test_a_sensors_scope_that_was_rendered_empty_is_refused():
    for scope in ("", [], ["dt=1", ""]):
        with pytest.raises(ConfigurationError, match=r"^scope: .* is empty"):
            HudiLeaseSensor(task_id="s", table="/t", scope=scope)._wanted  # noqa: B018 - as above


def context(store):
    names = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1}
    return {"ti": SimpleNamespace(**names, try_number=1, max_tries=1), "task_state_store": store}


def admitted(store, line, monkeypatch, ttl_s, **arguments):
    one = task(lock_conn_id="lock", scope=["p"], **arguments)
    terms = Terms(round(ttl_s * 1000), 60_000)
    hook = SimpleNamespace(lock_conn_id="lock", leases=lambda: line, terms=lambda: terms)
    monkeypatch.setattr(task_run, "lock_hook", lambda _: hook)
    run = one._protected_run(context(store))
    return run, run.admitted({})


def test_a_writer_without_a_fence_needs_a_term_in_which_its_driver_can_be_ended(
    store, line, monkeypatch
):
    least_s = 42
    assert least_s * (1 - TRUSTED) - least_s / 60 >= LONGEST_END_S - 1e-9
    _, short = admitted(store, line, monkeypatch, least_s - 1, isolation="serializable")
    with pytest.raises(ConfigurationError, match=r"41 s is too short.*raise it to 42 s"), short:
        raise AssertionError("not reached")
    assert line.requests() == ()
    _, enough = admitted(store, line, monkeypatch, least_s, isolation="serializable")
    with enough:
        assert len(line.requests()) == 1
    _, fenced = admitted(store, line, monkeypatch, 3)
    with fenced:
        assert len(line.requests()) == 1


class Driver:
    """One that lives on for some looks, after the job's submission has failed."""

    def __init__(self, keeper, looks):
        self.keeper, self.looks, self.kept = keeper, looks, []

    @property
    def lives(self):
        self.looks -= 1
        return self.looks >= 0

    def end(self):
        self.kept.append(not self.keeper._ended.is_set())


def test_a_driver_that_does_not_end_keeps_its_lease_renewed(store, line, monkeypatch):
    monkeypatch.setattr(try_lease, "_PAUSE_S", 0)
    run, holding = admitted(store, line, monkeypatch, 60, isolation="serializable")
    held = holding.__enter__()
    run.spark._driver = driver = Driver(held.keeper, 4)
    assert not holding.__exit__(FenceError, FenceError("something does not end"), None)
    assert driver.kept == [True] * 3
    assert line.requests() == ()


def test_a_try_that_waits_inside_its_lease_is_queued_anew_by_its_next_process(store, line, monkeypatch):
    run, lease = admitted(store, line, monkeypatch, 60)
    with pytest.raises(WaitNeeded), lease:
        raise WaitNeeded(None)
    assert line.requests() == ()
    again = task(lock_conn_id="lock", scope=["p"])._protected_run(context(store))
    assert again.journal.record.identity == run.journal.record.identity
    assert again.journal.record.queue_entry is None

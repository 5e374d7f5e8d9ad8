"""Hudi's records of each write of a driver: whether it was checked, and which conflict it lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_occ_provider.attempts.log.driver_log import DriverLog, OwnInstants
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import JobError, MisconfigurationError, WriteConflictError
from tests.support.hand_made_tables import T0, T1, T2
from tests.unit.reports import fact

LOGS = Path(__file__).parents[1] / "golden" / "logs"
COMMITTED = (
    "committed_info.exit0.log",
    "0.15.0/committed_warn.exit0.log",
    "1.0.2/committed_warn.exit0.log",
)
PROTECTED = fact("protected", followed=True)
T3 = "20261121092700000"
TABLE, OTHER = "/lake/t", "/lake/other"
CHECK = ("TransactionUtils", "Successfully resolved conflicts, if any")
FORMS = {  # of the records of transactions: Hudi 1.0 and before, 1.1 and later
    "old": ("Transaction starting for", "Transaction ending with transaction owner"),
    "new": ("State change starting for", "State change ending for action instant"),
}


def created(time, action="commit"):
    return ("ActiveTimelineV2", f"Creating a new instant [==>{time}__{action}__REQUESTED]")


def starting(time, action="commit", form="new"):
    instant = f"Option{{val=[==>{time}__{action}__INFLIGHT]}}"
    return ("TransactionManager", f"{FORMS[form][0]} {instant} with latest completed x")


def ending(time, action="commit", form="new"):
    return ("TransactionManager", f"{FORMS[form][1]} Option{{val=[==>{time}__{action}__INFLIGHT]}}")


def begun(time, action="commit", table=TABLE, form="new"):
    """Return the records of a write up to the start of its commit."""
    kind = "inflight" if action == "commit" else f"{action}.inflight"
    made = ("ActiveTimelineV2", f"Create new file for toInstant ?{table}/.hoodie/timeline/{time}.{kind}")
    before = (starting(time, action, form), ending(time, action, form))
    return [created(time, action), *before, made, starting(time, action, form)]


def done(time, action="commit", table=TABLE, form="new"):
    file = f"{table}/.hoodie/timeline/{time}_{time}.{action}"
    made = ("ActiveTimelineV2", f"Created new file for toInstant ?{file}")
    return [made, ending(time, action, form)]


def write(time, *, checked=True, **given):
    return [*begun(time, **given), *([CHECK] if checked else []), *done(time, **given)]


def lost(time, winner=T0):
    first, second = (f"operation = {{actionType=commit, instantTime={one}}}" for one in (time, winner))
    return ("SimpleStrategy", f"Found conflicting writes between first {first}, second {second}")


def on(thread, records):
    return [(*record, thread) for record in records]


def instants(records):
    log = OwnInstants()
    for logger, message, *thread in records:
        log.feed(f"26/11/21 10:00:17 INFO {logger}: {message}", *thread)
    return log


def completed_unchecked(log):
    return {time for time in log.times if log.has_completed(time) and not log.was_checked(time)}


ONE_THREAD = pytest.mark.parametrize("thread", ["main", ""], ids=["a known thread", "no threads"])


@ONE_THREAD
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("action", ["commit", "deltacommit", "replacecommit"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_checked_write_hides_no_unchecked_one(thread, form, action, is_first):
    given = {"action": action, "form": form}
    writes = [*write(T1, checked=is_first, **given), *write(T2, checked=not is_first, **given)]
    assert completed_unchecked(instants(on(thread, writes))) == {T2 if is_first else T1}


@ONE_THREAD
def test_a_write_that_lost_does_not_hide_the_check_of_the_next(thread):
    records = [*write(T1), *begun(T2), lost(T2), ending(T2), *write(T3)]
    log = instants(on(thread, records))
    assert {T1, T3} <= log.checked
    assert completed_unchecked(log) == set()


@pytest.mark.parametrize("unchecked", [T1, T2])
def test_writes_of_two_threads_are_told_apart(unchecked):
    """Both wait for the lock at the same time, each of its own table."""
    threads = {T1: "Thread-5", T2: "Thread-6"}
    records = [on(threads[time], begun(time, table=table)) for time, table in ((T1, TABLE), (T2, OTHER))]
    checked = T2 if unchecked == T1 else T1
    both = [*records[0], *records[1], *on(threads[checked], [CHECK])]
    ends = [*on(threads[T2], done(T2, table=OTHER)), *on(threads[T1], done(T1))]
    assert completed_unchecked(instants([*both, *ends])) == {unchecked}


def test_without_threads_writes_at_the_same_time_are_not_called_unchecked():
    both = [*begun(T1), *begun(T2, table=OTHER), CHECK, *done(T1), CHECK, *done(T2, table=OTHER)]
    assert completed_unchecked(instants(both)) == set()
    assert completed_unchecked(instants([*both, *write(T3, checked=False)])) == {T3}


@ONE_THREAD
def test_a_check_whose_write_the_records_do_not_show_may_be_of_any(thread):
    records = [created(T1), CHECK, *done(T1), *write(T2, checked=False)]
    log = instants(on(thread, records))
    assert log.has_other_checks
    assert completed_unchecked(log) == set()


@pytest.mark.parametrize("is_checked", [True, False])
def test_the_check_of_the_metadata_table_is_not_the_tables(is_checked):
    """It has the same time and thread, within the transaction of the table."""
    within = [created(T1, "deltacommit"), starting(T1, "deltacommit"), CHECK, ending(T1, "deltacommit")]
    records = [*begun(T1), *([CHECK] if is_checked else []), *within, *done(T1)]
    assert completed_unchecked(instants(on("main", records))) == (set() if is_checked else {T1})
    before = [*begun(T1), *within, *([CHECK] if is_checked else []), *done(T1)]
    assert completed_unchecked(instants(on("main", before))) == (set() if is_checked else {T1})


def test_a_transaction_that_got_no_lock_has_no_end():
    without_end = [*begun(T1), starting(T1, "deltacommit"), ending(T1)]
    records = [*without_end, *write(T2), *write(T3, checked=False)]
    assert instants(on("main", records)).checked == {T2}
    assert completed_unchecked(instants(on("main", records))) == {T3}


def lines_of(name):
    return (LOGS / name).read_text().splitlines()


def later(lines):
    """Return a log as the same job's next write would make it: with another requested time."""
    (own,) = driver_log(lines).own_instants
    return [line.replace(own, str(int(own) + 1)) for line in lines]


def without_check(lines):
    return [line for line in lines if "Successfully resolved conflicts" not in line]


def as_facts(lines, thread):
    """Return the records of a log as the runner reports them."""
    records = (line.split(" ", 4)[3:] for line in lines if " INFO " in line)
    return [fact("hudi", logger=name.rstrip(":"), message=text, thread=thread) for name, text in records]


def driver_log(lines):
    log = DriverLog()
    for line in lines:
        log.take(line)
    return log


@pytest.mark.parametrize("name", COMMITTED)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("threads", [("", ""), ("main", "main"), ("Thread-5", "Thread-6")], ids=str)
def test_the_recorded_writes_of_each_release_as_one_job(name, is_first, threads):
    lines = lines_of(name)
    writes = [lines, without_check(later(lines))] if is_first else [without_check(lines), later(lines)]
    if threads[0]:
        facts = [as_facts(each, thread) for each, thread in zip(writes, threads, strict=True)]
        are_at_once = threads[0] != threads[1]
        writes = [[PROTECTED], *(map(list, zip(*facts, strict=False)) if are_at_once else facts)]
    log = driver_log([line for each in writes for line in each])
    assert completed_unchecked(log.instants) == {log.own_instants[is_first]}
    log.take(fact("left_out", lines=7))  # the records of the check may be among them
    assert completed_unchecked(log.instants) == set()


def test_the_recorded_write_of_a_single_writer_beside_a_checked_one():
    single = lines_of("unchecked_single_writer.exit0.log")
    (unchecked,) = driver_log(single).own_instants
    for lines in ([*lines_of("committed_info.exit0.log"), *single], [*single, *lines_of(COMMITTED[0])]):
        assert completed_unchecked(driver_log(lines).instants) == {unchecked}


@pytest.mark.parametrize("is_first", [True, False])
def test_the_unchecked_write_is_named(is_first):
    writes = [*write(T1, checked=is_first), *write(T2, checked=not is_first)]
    log = instants(on("main", [*writes, *write(T3)]))
    assert f"{T2 if is_first else T1}_" in log.unchecked


def test_a_clustering_that_0_15_names_as_an_overwrite_is_no_unchecked_write():
    records = [*write(T1), *write(T2, checked=False, action="replacecommit")]
    assert instants(on("main", records)).unchecked is None


@pytest.mark.parametrize("kinds", [("write", "write_unchecked"), ("write_unchecked", "write")])
def test_an_unchecked_write_of_many_is_told(scripted, kinds):
    scripted.plan((kinds[0], T1), (kinds[1], T2), ("end", 0))
    with pytest.raises(MisconfigurationError, match="check for conflicts did not run") as told:
        scripted.run(commits="many")
    assert f"instant {T1 if kinds[0] == 'write_unchecked' else T2}" in told.value.message
    assert (told.value.retry, told.value.committed) == (False, True)


def test_only_the_writes_of_the_tasks_table_are_judged(scripted, tmp_path):
    scripted.plan(("write", T1), ("write_unchecked", T2, str(tmp_path / "other")), ("end", 0))
    assert scripted.run(commits="many")["instants"] == [T1]


def test_many_checked_writes_are_committed(scripted):
    scripted.plan(("write", T1), ("begin", T2), ("write", T3), ("end", 0))
    assert scripted.run(commits="many")["instants"] == [T1, T3]


# Conflicts.


def loses(time, table=TABLE):
    return [*begun(time, table=table), lost(time), ending(time)]


def unfinished(records):
    conflict = instants(records).unfinished_conflict
    return conflict and next(time for time in (T1, T2, T3) if time in conflict)


def test_of_two_lost_conflicts_the_one_that_nothing_made_up_for_is_told():
    both = [*loses(T1), *loses(T2, OTHER)]
    assert unfinished(both) == T2
    assert unfinished([*both, *write(T3)]) == T2
    assert unfinished([*both, *write(T3, table=OTHER)]) == T1
    assert unfinished([*loses(T1), *write(T3), *loses(T2, OTHER)]) == T2
    assert unfinished([*loses(T1), *loses(T2), *write(T3)]) is None  # the second may be the first, again


def test_a_conflict_that_was_named_first_is_told_if_the_other_write_completed():
    """Two writes at once: the first to begin is the last to lose, and completes."""
    records = [*begun(T1), *begun(T2), lost(T2), lost(T1), *done(T1)]
    assert unfinished(records) == T2
    assert (instants(records).rival_of(T1), instants(records).rival_of(T2)) == (T0, T0)


def test_a_write_whose_table_is_unknown_may_have_made_up_for_it():
    assert unfinished([created(T1), lost(T1), *write(T3)]) is None
    assert unfinished([*loses(T1), created(T3), *done(T3)[:1]]) is None


def test_the_last_of_several_lost_conflicts_is_the_outcome():
    log = DriverLog()
    for logger, message in [*loses(T1), *loses(T2, OTHER), *write(T3)]:
        log.take(fact("hudi", logger=logger, message=message, thread="main"))
    reading = log.read(1)
    assert (reading.outcome, reading.instant, reading.rival) == (Outcome.COMMIT_CONFLICT, T2, T0)


def test_conflicts_without_end_are_not_all_remembered():
    times = [str(int(T1) + number) for number in range(1000)]
    log = instants([record for time in times for record in (created(time), lost(time))])
    assert len(log.conflicts) < 100
    assert times[-1] in log.unfinished_conflict


def test_a_lost_write_of_many_is_told_with_its_own_rival(scripted, tmp_path):
    other = str(tmp_path / "other")
    elsewhere = (("begin", T1, other), ("conflict", T1, T0))
    here = (("begin", T2), ("conflict", T2, "20260101000000000"), ("write", T3))
    scripted.plan(*elsewhere, *here, ("raise", "no"), ("end", 1), ("exit", 1))
    with pytest.raises(WriteConflictError, match=f"{T1} lost to {T0}"):
        scripted.run(commits="many")


def test_a_conflict_that_the_job_made_up_for_does_not_excuse_its_own_error(scripted):
    failed = (("raise", "no"), ("end", 1), ("exit", 1))
    scripted.plan(("begin", T1), ("conflict", T1, T0), ("write", T3), *failed)
    with pytest.raises(JobError):
        scripted.run(commits="many")

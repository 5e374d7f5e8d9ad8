"""Table services on real Hudi: ``python -m tests.table_services --store s3``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JJavaError

from airflow_occ_provider.attempts.service_attempt import below
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.writer.table_service import DeadPlan, PlanRule, Service, ServiceOp
from tests.support.stores import LOCAL, STORES, started_store
from tests.support.writers import commit_lock_held
from tests.table_services.rig import Rig, Table

COMPACTION, CLUSTERING = Service.COMPACTION, Service.CLUSTERING
HOUR_MS = 3_600_000
DEAD_AT_ONCE = PlanRule(ServiceOp.RUN, DeadPlan.ROLL_BACK, 0)
YOUNG = PlanRule(ServiceOp.RUN, DeadPlan.ROLL_BACK, HOUR_MS)
PREFER_WRITER = {
    STRATEGY_OPTION.removeprefix("hoodie.").replace(".", "__"): Strategy.PREFER_WRITER.class_name
}


def refusal(work, *saying):
    """Return the text of the error with which Hudi refuses work that it has to refuse."""
    try:
        work()
    except Py4JJavaError as error:
        text = str(error)
        assert any(one in text for one in saying), text[:4000]
        return text
    raise AssertionError(f"Hudi let through what it should have refused: {saying}")


def compaction(rig: Rig) -> None:
    """A merge-on-read table is compacted, and its plan is recognised as ours."""
    table = rig.table("compacted", merge_on_read=True, metadata_table=True)
    table.write([("a-0", "a", 1), ("b-0", "b", 1)])
    before = table.rows()
    table.serve(COMPACTION, "schedule")
    (plan,) = table.plans(COMPACTION, own=True)
    assert plan.is_ours, plan
    assert plan.partitions == ("a", "b"), plan
    assert table.choose(COMPACTION, YOUNG).run.keys() == {plan.time}
    table.serve(COMPACTION, f"run={plan.time}")
    assert table.completed(plan.time)
    assert table.rows() == before
    table.serve(COMPACTION, "schedule_and_run")
    assert table.plans(COMPACTION) == (), "there was nothing to plan"
    # A plan that was never run is removed, too.
    table.write([("a-0", "a", 2)])
    table.serve(COMPACTION, "schedule")
    time.sleep(0.05)
    (plan,) = table.plans(COMPACTION)
    assert table.choose(COMPACTION, DEAD_AT_ONCE).roll_back.keys() == {plan.time}
    table.serve(COMPACTION, f"roll_back={plan.time}")
    assert table.files_of(plan.time) == []
    assert table.rows()["a-0"] == 2


def clustering(rig: Rig) -> None:
    """Only the scope is clustered."""
    table = rig.table("clustered")
    before = table.rows()
    pattern = {"clustering__plan__strategy__partition__regex__pattern": below(("a",))}
    table.serve(CLUSTERING, "schedule", **pattern)
    (plan,) = table.plans(CLUSTERING)
    assert plan.partitions == ("a",), plan
    table.serve(CLUSTERING, f"run={plan.time}", "schedule", **pattern)
    assert table.completed(plan.time)
    assert table.rows() == before


def killed_clustering(rig: Rig) -> None:
    """A dead clustering rejects an upsert; rolled back, it does not."""
    table = rig.table("killed_clustering", metadata_table=True)
    table.serve(CLUSTERING, "schedule")
    (plan,) = table.plans(CLUSTERING)
    with commit_lock_held(rig.stack.zookeeper.hosts):
        table.killed(
            CLUSTERING, plan.time, lambda: table.is_inflight(plan.time) and table.markers(plan.time)
        )
    refusal(lambda: table.write([("a-0", "a", 1)]), "HoodieClusteringUpdateException")
    young = table.choose(CLUSTERING, YOUNG)
    assert young.leave.keys() == {plan.time}, young
    dead = table.choose(CLUSTERING, DEAD_AT_ONCE)
    assert dead.roll_back.keys() == {plan.time}, dead
    table.serve(CLUSTERING, *dead.steps(ServiceOp.RUN))
    assert table.files_of(plan.time) == [], table.files_of(plan.time)
    table.write([("a-0", "a", 1)])
    assert table.rows()["a-0"] == 1
    assert len(table.rows()) == 8


def killed_compaction(rig: Rig) -> None:
    """A dead compaction is run again once its heartbeat is gone, and not before."""
    table = rig.table("killed_compaction", merge_on_read=True)
    table.write([("a-0", "a", 1)])
    before = table.rows()
    table.serve(COMPACTION, "schedule")
    (plan,) = table.plans(COMPACTION)
    table.killed(COMPACTION, plan.time, lambda: table.is_inflight(plan.time))
    assert not table.completed(plan.time), "it was killed too late"
    alive = table.choose(COMPACTION, DEAD_AT_ONCE)
    assert "heartbeat is alive" in alive.leave[plan.time], alive
    refusal(lambda: table.serve(COMPACTION, f"run={plan.time}"), "HoodieLockException")
    ours = table.choose(COMPACTION, YOUNG, own=True)
    assert ours.run.keys() == {plan.time}, ours
    assert table.hudi.retire_heartbeat(plan.time)
    table.serve(COMPACTION, *ours.steps(ServiceOp.RUN))
    assert table.completed(plan.time)
    assert table.rows() == before


def writers_preferred(rig: Rig) -> None:
    """A writer commits while a clustering runs, and the clustering loses."""
    table = rig.table("preferred")
    writer = rig.latched(table.path, lambda: table.write([("a-0", "a", 1)], **PREFER_WRITER))
    assert writer.run_to("inflight")
    refusal(
        lambda: table.serve(CLUSTERING, "schedule_and_run", **PREFER_WRITER),
        "HoodieWriteConflictException",
    )
    error = writer.finish()
    assert error is None, error
    (plan,) = table.plans(CLUSTERING, own=True)
    assert plan.overtaken_by, plan
    assert not plan.runs_again, plan
    # If run all the same, by Hudi's default strategy, it silently reverts the writer's update.
    spoiled = table.copy("spoiled")
    spoiled.serve(CLUSTERING, f"run={plan.time}")
    assert spoiled.rows()["a-0"] == 0
    again = table.choose(
        CLUSTERING, PlanRule(ServiceOp.SCHEDULE_AND_RUN, DeadPlan.RUN, HOUR_MS), own=True
    )
    assert again.roll_back.keys() == {plan.time}, again
    assert again.schedule, again
    table.serve(CLUSTERING, *again.steps(ServiceOp.SCHEDULE_AND_RUN), **PREFER_WRITER)
    assert table.plans(CLUSTERING) == ()
    assert table.rows()["a-0"] == 1
    assert len(table.rows()) == 8


def service_conflicts(rig: Rig) -> None:
    """Check which writers lose to a service that runs beside them; those services run alone."""
    table = rig.table("beside", merge_on_read=True)
    table.write([("a-0", "a", 1)])
    error = beside(rig, table, COMPACTION, {})
    assert error is None, error
    table.write([("a-0", "a", 3)])
    assert "HoodieWriteConflictException" in str(beside(rig, table, COMPACTION, PREFER_WRITER))
    clustered = rig.table("beside_clustering")
    assert "HoodieWriteConflictException" in str(beside(rig, clustered, CLUSTERING, {}))


def beside(rig: Rig, table: Table, service: Service, options: dict[str, str]) -> BaseException | None:
    """Plan and run a service while a writer is inflight; return the writer's error."""
    writer = rig.latched(table.path, lambda: table.write([("a-0", "a", 2)], **options))
    assert writer.run_to("inflight")
    table.serve(service, "schedule_and_run", **options)
    assert table.plans(service) == ()
    return writer.finish()


ANYWHERE = (compaction, clustering, killed_clustering, killed_compaction)
LATCHED = (writers_preferred, service_conflicts)  # the latches are in the local file system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=(LOCAL, *STORES), default=LOCAL)
    parser.add_argument("--only", default="", help="a scenario")
    args = parser.parse_args()
    scenarios = ANYWHERE if args.store != LOCAL else ANYWHERE + LATCHED
    chosen = [one for one in scenarios if args.only in ("", one.__name__)]
    with (
        tempfile.TemporaryDirectory(prefix="airflow_occ_services_") as scratch,
        started_store(args.store, Path(scratch, "store")) as store,
        EmbeddedStack(Path(scratch, "stack"), store=store) as stack,
    ):
        rig = Rig(stack)
        ended_well = [play(one, rig) for one in chosen]
    return 0 if all(ended_well) else 1


def play(scenario: Callable[[Rig], None], rig: Rig) -> bool:
    """Run a scenario; return and print whether it ended as it has to."""
    started = time.monotonic()
    try:
        scenario(rig)
        verdict = "well"
    except Exception:  # noqa: BLE001 - the other scenarios still run
        traceback.print_exc()
        verdict = "WRONG"
    print(f"{scenario.__name__}: {verdict}, {time.monotonic() - started:.1f} s", flush=True)
    return verdict == "well"


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.faults --runs 60 --seed 7``: seeded faults; prints each run and a summary."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.faults.aftermath import inspect, make_tables
from tests.faults.command import add_reports, main, print_run, print_wrong
from tests.faults.plan import KINDS, draw
from tests.faults.rig import FaultyRun, RunByBash, airflow
from tests.support.stores import LOCAL, LOCKS, STORES, started_store


def play(args, folder):
    assert args.lock != "storage" or args.store == LOCAL, "a lock file of Hudi's needs the local disk"
    assert not args.via or args.store == LOCAL, "its drivers are known by a folder on the local disk"
    # A driver that another operator has started names no host that could be recorded as lost.
    kinds = "kills" if args.via else args.kinds
    faults = draw(args.runs, args.seed, only=args.only, kinds=kinds)
    run_type = RunByBash if args.via else FaultyRun

    def one(fault):
        report = run_type(running, stack, folder, fault).run()
        print_run(report)
        return report

    with (
        started_store(args.store, folder / "store") as store,
        EmbeddedStack(folder / "stack", lock=args.lock, store=store) as stack,
    ):
        make_tables(stack, folder, faults)
        with airflow(folder / "airflow", stack) as running, ThreadPoolExecutor(args.jobs) as pool:
            reports = list(pool.map(one, faults))
        inspect(stack, folder, reports)
    chosen = (args.store != LOCAL and args.store, args.lock != LOCKS[0] and args.lock, args.via)
    rig = " ".join(("faults", *filter(None, chosen)))
    add_reports(rig, reports, args.seed)
    return print_wrong(reports, args.seed)


if __name__ == "__main__":
    choices = {"store": (LOCAL, *STORES), "lock": LOCKS, "kinds": KINDS, "via": ("", "bash")}
    main(__doc__, "a point, victim or step of the fence", play, **choices)

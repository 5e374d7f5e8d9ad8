"""``python -m tests.faults.contended --runs 60 --seed 7``: seeded faults among contending tasks.

Each run is one DAG run of three tasks that all update one row, with ``early_stop="act"``, in a real
Airflow on a real ZooKeeper. It prints each run and a summary; the exit code is 0 if all runs are as they
should be. After every ten runs it checks their tables, so that a series may be ended early.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.faults.aftermath import inspect, make_tables
from tests.faults.command import add_reports, main, print_run, print_wrong
from tests.faults.contended.dags.contended import WRITERS
from tests.faults.contended.plan import draw
from tests.faults.contended.rig import ContendedRun, Services, airflow
from tests.faults.contended.stops import summary

PORTION = 10
ROWS = dict.fromkeys(("first", *WRITERS), 1)


def play(args, folder):
    faults = draw(args.runs, args.seed, only=args.only)
    outcomes, delays_s = Counter(), []

    def one(fault):
        run = ContendedRun(running, stack, folder, fault, services)
        report = run.run()
        print_run(report, f", met {report.reached or 'nothing'}")
        outcomes.update(run.outcomes)
        delays_s.extend(run.delays_s)
        return report

    reports = []
    with (
        EmbeddedStack(folder / "stack") as stack,
        airflow(folder / "airflow", stack) as running,
        Services(running, stack, folder / "services") as services,
        ThreadPoolExecutor(args.jobs) as pool,
    ):
        for begin in range(0, len(faults), PORTION):
            some = faults[begin : begin + PORTION]
            make_tables(stack, folder, some)
            done = list(pool.map(one, some))
            inspect(stack, folder, done, ROWS)
            reports += done
            print(summary(delays_s))
            print("attempts: " + ", ".join(f"{count} {end}" for end, count in outcomes.most_common()))
            wrong = print_wrong(reports, args.seed)
    add_reports("contended faults", reports, args.seed)
    return wrong


if __name__ == "__main__":
    main(__doc__, "a moment or victim, or both, such as planned_jvm", play)

"""``python -m tests.faults.yarn --runs 60 --seed 7``: seeded faults in YARN's cluster mode.

Each run is one task run of ``HudiWriteOperator`` in a real Airflow, on a real ResourceManager and
NodeManager. It prints each run and a summary; the exit code is 0 if all runs are as they should be.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.faults.aftermath import inspect, make_tables
from tests.faults.command import add_reports, main, print_run, print_wrong
from tests.faults.yarn.leftovers import print_staging, processes_of
from tests.faults.yarn.plan import draw
from tests.faults.yarn.rig import YARN_SETTINGS, RemoteRun, airflow
from tests.faults.yarn.services import Services
from tests.services.yarn import EmbeddedYarn


def play(args, folder):
    faults = draw(args.runs, args.seed, only=args.only)
    with contextlib.ExitStack() as running:
        stack = running.enter_context(EmbeddedStack(folder / "stack"))
        make_tables(stack, folder, faults)
        yarn = running.enter_context(EmbeddedYarn(folder / "yarn", YARN_SETTINGS))
        reports = _all(faults, folder, stack, yarn, args.jobs)
        left = processes_of(yarn)
        print_staging(yarn)
        inspect(stack, folder, reports)
    add_reports("faults on YARN", reports, args.seed)
    wrong = print_wrong(reports, args.seed)
    if left:
        print(f"left on the node: {'; '.join(left)}")
    return wrong or left


def _all(faults, folder, stack, yarn, jobs):
    with (
        airflow(folder / "airflow", stack, yarn) as running,
        Services(running, yarn, folder / "components") as services,
        ThreadPoolExecutor(jobs) as pool,
    ):

        def one(fault):
            run = RemoteRun(running, stack, folder, fault, yarn, services)
            report = run.run()
            print_run(report, f", {len(run.applications)} applications")
            return report

        return list(pool.map(one, faults))


if __name__ == "__main__":
    main(__doc__, "a point or victim, or both, such as unrecorded_task", play)

"""Shapes of PySpark jobs, plainly and by a task: ``python -m tests.corpus [--only NAME ...]``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

BATCH = 6
"""The shapes whose tables one driver reads."""
_HOME = tempfile.TemporaryDirectory(prefix="airflow_occ_corpus_home_")
os.environ.update(
    AIRFLOW_HOME=_HOME.name,
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    PYTHONPATH=f"{sys.prefix}/corpus",  # what jobs import, such as pandas, apart from what tests do
)


def main() -> int:
    from airflow_occ_provider.embedded.stack import EmbeddedStack
    from tests.conftest import SMALL_TABLES
    from tests.corpus.report import table, write_page
    from tests.corpus.rig import Rig
    from tests.corpus.shapes import SHAPES, SMOKE
    from tests.support.results import Result, add_result

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="names of jobs, or of shapes")
    parser.add_argument("--smoke", action="store_const", dest="only", const=SMOKE, help="a few jobs")
    parser.add_argument("--folder", type=Path, help="where tables and logs stay")
    parser.add_argument("--page", action="store_true", help="write docs/reference/job-shapes.md")
    arguments = parser.parse_args()
    names = set(arguments.only)
    shapes = [shape for shape in SHAPES if not names or names & {shape.job, shape.name}]
    with tempfile.TemporaryDirectory(prefix="airflow_occ_corpus_") as scratch, EmbeddedStack() as stack:
        with (stack.folder / "spark" / "conf" / "spark-defaults.conf").open("a") as conf:
            conf.write(SMALL_TABLES)
        rig = Rig(stack, arguments.folder or Path(scratch))
        rows = []
        for first in range(0, len(shapes), BATCH):
            batch = run_all(rig, shapes[first : first + BATCH])
            if arguments.page:
                write_page([row for row in batch if not row.wrong])
            rows += batch
    print(table(rows))
    wrong = [f"{row.cells[0]}: {reason}" for row in rows for reason in row.wrong]
    result = Result("job shapes", stack.hudi_version, 0, len(rows), sum(bool(row.wrong) for row in rows))
    add_result(result)
    print(f"{len(rows)} shapes, {len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0


def run_all(rig, shapes):
    """Run shapes, one after the other; return their rows of the table."""
    from tests.corpus.report import compared

    runs = []
    for shape in shapes:
        without_many = {key: value for key, value in shape.task.items() if key != "commits"}
        plain = rig.plainly(shape)
        task = rig.by_task(shape, shape.task)
        undeclared = rig.by_task(shape, without_many, "undeclared") if shape.without_many else None
        print(
            f"{shape.name}: plain {plain.seconds:.0f} s, task {task.seconds:.0f} s, {task.mib} MiB;",
            *(plain.error or "ok", "|", task.error[:300] or "ok", task.instants),
            flush=True,
        )
        runs.append((shape, plain, task, undeclared))
    rig.read([run for _, plain, task, _ in runs for run in (plain, task)])
    rows = [compared(*each) for each in runs]
    print(*(f"WRONG {row.cells[0]}: {row.wrong}" for row in rows if row.wrong), sep="\n", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())

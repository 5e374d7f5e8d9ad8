"""The published results of ``tests.bench.conflict`` are those of the raw data in the repository."""

from __future__ import annotations

from pathlib import Path

from tests.bench import conflict
from tests.bench.conflict.events import read_runs
from tests.bench.conflict.plot import plot
from tests.bench.conflict.summary import summaries
from tests.bench.conflict.table import table

ROOT = Path(__file__).parents[2]
RAW = sorted(Path(conflict.__file__).parent.glob("results/*.jsonl"))
FOUND = summaries([run for path in RAW for run in read_runs(path)])


def test_the_page_has_the_table_of_the_raw_data():
    page = (ROOT / "docs/explanation/benchmark.md").read_text()
    assert f"```text\n{table(FOUND).strip()}\n```\n" in page


def test_the_plot_is_that_of_the_raw_data():
    assert (ROOT / "docs/images/bench-conflict.svg").read_text() == plot(FOUND)

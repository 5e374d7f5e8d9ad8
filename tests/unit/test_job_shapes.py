"""The page of job shapes, and the files that it is about; ``make rig NAME=corpus`` runs them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.corpus.shapes import JOBS, SHAPES, SMOKE

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "job-shapes.md"


def test_each_job_is_a_shape_and_each_shape_has_its_row():
    files = {path.stem for path in JOBS.glob("*.py")}
    assert files == {shape.job for shape in SHAPES}
    names = [shape.name for shape in SHAPES]
    assert len(set(names)) == len(names)
    assert set(SMOKE) <= files
    assert re.findall(r"^\| `(.+?)` \|", PAGE.read_text(), re.MULTILINE) == names


def test_the_page_has_what_is_declared():
    rows = dict(re.findall(r"^\| `(.+?)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    for shape in SHAPES:
        cells = rows[shape.name].split(" | ")
        kind, text = shape.refused or ("", "")
        result = f"refused: `{kind}`, which names `{text}`" if kind else "the same"
        assert cells[2] == result, shape.name
        assert f'`"{shape.commits}"`' in cells[3]
        assert cells[-1].strip() == shape.remark


def test_no_job_knows_the_provider():
    for path in JOBS.glob("*.py"):
        assert "airflow" not in path.read_text().lower(), path

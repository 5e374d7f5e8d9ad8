"""Compares the runs of a shape, and makes the page of all."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tests.corpus.rig import Run
from tests.corpus.shapes import SHAPES, Shape

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "job-shapes.md"
_COLUMNS = ("shape", "what it does", "plain result", "through the operator", "`commits=`", "remark")
_HEAD = """# Job shapes

Ordinary PySpark jobs, each run plainly by `spark-submit` and as a task of `HudiWriteOperator`, on real
Spark and Hudi 1.2.0. `make rig NAME=corpus` runs them all, and writes this page. The jobs are files of
`tests/corpus/jobs`, and contain nothing of this provider. *The same* means: the same rows, as Spark
reads them; as many completed writes and table services of the same kinds, in every table of the job;
and the result of the task names all commits that the task run made. Any other result is *refused*, that
of a job that fails by itself too: the task fails, and its error names the reason. `"many"` is needed
where `make rig NAME=corpus` has seen the task fail by `commits='one'` without it.

"""


@dataclass(frozen=True)
class Row:
    """A line of the page; ``wrong`` says what was not as declared."""

    cells: tuple[str, ...]
    wrong: tuple[str, ...] = ()


def compared(shape: Shape, plain: Run, task: Run, undeclared: Run | None) -> Row:
    """Compare what came of a shape with what is declared."""
    wrong = [*_of_plain(shape, plain), *_of_task(shape, plain, task)]
    if undeclared and shape.without_many:
        wrong += _of_refusal(undeclared, shape.without_many, "without commits='many'")
    cells = (
        f"`{shape.name}`",
        purpose(shape),
        _plain_result(plain),
        _task_result(shape, task),
        f'`"{shape.commits}"`' + (" needed" if shape.without_many else ""),
        shape.remark,
    )
    return Row(cells, tuple(wrong))


def purpose(shape: Shape) -> str:
    """Return what a job does, by its own docstring."""
    doc = ast.get_docstring(ast.parse(shape.path.read_text())) or ""
    return doc.rstrip(".")


def _of_plain(shape: Shape, plain: Run) -> list[str]:
    if plain.ok is bool(shape.fails):
        return [f"plain: {'succeeded' if plain.ok else plain.output[-1500:]}"]
    if shape.fails not in plain.output:
        return [f"plain: no {shape.fails!r} in its output"]
    # Two empty results would be the same, whatever the job did.
    return [] if shape.base or any(plain.rows.values()) else ["plain: no rows in its tables"]


def _of_task(shape: Shape, plain: Run, task: Run) -> list[str]:
    if shape.refused:
        return _of_refusal(task, shape.refused, "task")
    if not task.ok:
        return [f"task: {task.error}"]
    wrong = []
    if plain.rows != task.rows:
        wrong.append(f"rows: plain {plain.rows}, task {task.rows}")
    if plain.commits() != task.commits():
        wrong.append(f"commits: plain {plain.commits()}, task {task.commits()}")
    written = task.written()
    base = len(written) - len(task.instants)
    if written[base:] != task.instants or (not shape.base and base):
        wrong.append(f"the result names {task.instants}, the table has {written}")
    return wrong


def _of_refusal(run: Run, expected: tuple[str, str], what_ran: str) -> list[str]:
    kind, text = expected
    if run.ok:
        return [f"{what_ran}: succeeded, and should have failed by {kind}"]
    is_as_declared = run.error.startswith(f"{kind}:") and text in run.error
    return [] if is_as_declared else [f"{what_ran}: not {expected}, but {run.error}"]


def _plain_result(plain: Run) -> str:
    if not plain.ok:
        return f"fails, {_counted(plain)}"
    return _counted(plain)


def _counted(run: Run) -> str:
    """Return the rows and commits of a run in words."""
    tables = [name for name in run.rows if run.rows[name] or run.commits()[name].total()]
    parts = []
    for name in tables:
        commits = run.commits()[name]
        actions = ", ".join(
            f"`{action}`" + (f" x {count}" if count > 1 else "")
            for action, count in sorted(commits.items())
        )
        parts.append(f"{len(run.rows[name])} rows, {actions or 'no commit'}")
    return "; ".join(parts) or "no table"


def _task_result(shape: Shape, task: Run) -> str:
    if not shape.refused:
        return "the same" if task.ok else f"**wrong**: {task.error}"
    kind, text = shape.refused
    return f"refused: `{kind}`, which names `{text}`"


def table(rows: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *(row.cells for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def rows_of_page() -> dict[str, Row]:
    """Return the rows of the page as it is, by shape."""
    if not PAGE.exists():
        return {}
    lines = re.findall(r"^\| (`.+?`) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: Row((name, *(cell.strip() for cell in rest.split(" | ")))) for name, rest in lines}


def write_page(rows: list[Row]) -> None:
    """Write the page, with the rows that did not run this time as they were."""
    of_name = {**rows_of_page(), **{row.cells[0]: row for row in rows}}
    ordered = [of_name[f"`{shape.name}`"] for shape in SHAPES if f"`{shape.name}`" in of_name]
    PAGE.write_text(_HEAD + table(ordered))

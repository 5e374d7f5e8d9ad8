"""How the commands print: a table, plain columns, JSON or YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from airflow.cli.simple_table import AirflowConsole
from airflow.utils import yaml

Rows: TypeAlias = Iterable[dict[str, str]]


def print_described(
    described: object, output: str, print_text: Callable[[Callable[[Rows], None]], None]
) -> None:
    """Print JSON values in the chosen format.

    :param output: ``table``, ``json``, ``yaml`` or ``plain``, as in Airflow's own commands.
    :param print_text: prints text for people, given what prints rows in the chosen format.
    """
    text = json.dumps(described, indent=2)
    if output == "json":
        print(text)
    elif output == "yaml":
        print(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True), end="")
    else:
        print_text(partial(print_rows, plain=output == "plain"))


def print_rows(rows: Rows, *, plain: bool = False) -> None:
    """Print rows as text: a partition's name may contain rich's markup.

    :param plain: whether in columns without lines, to be piped.
    """
    console = AirflowConsole(markup=False, emoji=False)
    (console.print_as_plain_table if plain else console.print_as_table)(list(rows))


def task_text(described: Mapping[str, Any]) -> str:
    """Return the task that made the described write, as text."""
    task = described["task"]
    return task["text"] if task else "-"


def format_groups(groups: Sequence[Sequence[str]]) -> str:
    """Return file groups as text, one a line."""
    return "\n".join(f"{partition}/{file_id}".lstrip("/") for partition, file_id in groups) or "-"

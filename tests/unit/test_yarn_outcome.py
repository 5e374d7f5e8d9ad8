"""The outcome of real drivers in YARN's cluster mode, by what ``yarn logs`` has printed of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from airflow.cli.cli_parser import get_parser

from tests.unit.test_outcome import FROM_LOG_ALONE

LOGS = Path(__file__).parents[1] / "golden" / "logs" / "yarn"


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.txt")), ids=lambda path: path.stem)
def test_the_command_reads_what_yarn_logs_has_printed_of_an_application(path, capsys):
    name, exit_code = re.fullmatch(r"(\w+)\.exit(-?\d+)", path.stem).groups()
    args = get_parser().parse_args(["hudi", "outcome", str(path), "--exit-code", exit_code])
    args.func(args)
    assert f"outcome    {FROM_LOG_ALONE[name]}" in capsys.readouterr().out

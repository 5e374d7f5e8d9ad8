"""Runs ``airflow hudi`` commands in this process."""

from __future__ import annotations

import pytest
from airflow.cli.cli_parser import get_parser


def run_command(*arguments, code=0):
    """Run a command, and check the code with which it exits."""
    args = get_parser().parse_args(["hudi", *arguments])
    if code:
        with pytest.raises(SystemExit) as left:
            args.func(args)
        assert left.value.code == code
    else:
        args.func(args)

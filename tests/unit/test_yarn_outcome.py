"""The outcome of real drivers in YARN's cluster mode, by each form of their saved logs."""

from __future__ import annotations

import re

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.submitters.yarn.saved_logs import aggregated_lines, printed_lines
from tests.golden.log_scenarios import yarn_scenarios
from tests.golden.record_yarn_logs import YARN_LOGS
from tests.unit.test_outcome import FROM_LOG_ALONE, read

RECORDED = sorted(YARN_LOGS.glob("*.log"))
each_driver = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
each_form = pytest.mark.parametrize("form", ["log", "txt", "tfile"])


def recorded(path):
    name, code = re.fullmatch(r"(\w+)\.exit(-?\d+)", path.stem).groups()
    return name, int(code)


def lines_of(path, form):
    """Return the driver's lines in a form of its log."""
    if form == "log":
        return path.read_text().splitlines(keepends=True)
    if form == "txt":
        text = path.with_suffix(".txt").read_text()
        return [
            one.text for one in printed_lines(text.splitlines(keepends=True)) if hasattr(one, "text")
        ]
    with path.with_suffix(".tfile").open("rb") as file:
        return [one.text for one in aggregated_lines(file)]


def test_each_driver_is_recorded_in_each_form():
    names = {recorded(path)[0] for path in RECORDED}
    assert names == set(yarn_scenarios())
    for form in ("txt", "tfile"):
        assert {path.stem for path in YARN_LOGS.glob(f"*.{form}")} == {path.stem for path in RECORDED}


@each_driver
@each_form
def test_the_outcome_is_that_of_client_mode(path, form):
    name, exit_code = recorded(path)
    reading = read(lines_of(path, form), exit_code)
    assert reading.outcome is FROM_LOG_ALONE[name]
    assert reading.remedy


@each_driver
def test_all_forms_show_the_same_instants(path):
    found = set()
    for form in ("log", "txt", "tfile"):
        log = DriverLog()
        for line in lines_of(path, form):
            log.feed(line)
        reading = log.read(recorded(path)[1])
        found.add((log.own_instants, reading.instant, reading.rival, reading.outcome))
    assert len(found) == 1


@each_driver
@pytest.mark.parametrize("form", ["txt", "tfile"])
def test_the_command_reads_the_saved_logs_of_an_application(path, form, capsys):
    name, exit_code = recorded(path)
    arguments = [str(path.with_suffix(f".{form}")), "--exit-code", str(exit_code)]
    args = get_parser().parse_args(["hudi", "outcome", *arguments])
    args.func(args)
    assert f"outcome    {FROM_LOG_ALONE[name]}" in capsys.readouterr().out


@each_driver
@each_form
def test_no_recorded_log_has_a_place_of_the_machine_that_recorded_it(path, form):
    text = "".join(lines_of(path, form))
    if form == "txt":
        text = path.with_suffix(".txt").read_text()
    roots = set(re.findall(r"(?<![\w/:.\-])/([A-Za-z_][\w.\-]*)", text))
    assert roots <= {"lake", "hudi", "tmp", "_", "__", "____"}
    assert "/tmp/airflow_occ_golden" not in text

"""``airflow hudi outcome`` with what ``yarn logs`` has printed of an application."""

from __future__ import annotations

import io
import sys

import pytest
from airflow.cli.cli_parser import get_parser

from airflow_occ_provider.cli.yarn_logs import DriverLine, SavedLogError, printed_lines

FIRST = "container_1795443032368_0001_01_000001"
SECOND = "container_1795443032368_0001_02_000001"
EXECUTOR = "container_1795443032368_0001_01_000002"


def printed(container, **logs):
    parts = [f"Container: {container} on localhost_43211\n", "LogAggregationType: AGGREGATED\n", "===\n"]
    for name, text in logs.items():
        parts += [f"LogType:{name}\n", "LogLastModifiedTime:Mon Nov 23 14:10:33 +0000 2026\n"]
        parts += [f"LogLength:{len(text)}\n", "LogContents:\n", *text.splitlines(keepends=True), "\n"]
        parts += [f"End of LogType:{name}\n", "*****\n", "\n"]
    return parts


def outcome(*arguments):
    args = get_parser().parse_args(["hudi", "outcome", *map(str, arguments)])
    args.func(args)


def test_only_the_drivers_streams_are_read_from_what_yarn_logs_printed():
    lines = printed(EXECUTOR, stderr="of an executor\n", stdout="x\n")
    lines += printed(
        FIRST, **{"prelaunch.out": "y\n", "stderr": "of the JVM\n", "stdout": "of Python\n"}
    )
    found = [one for one in printed_lines(lines) if one.text.strip()]
    assert found == [DriverLine(1, "of the JVM\n"), DriverLine(1, "of Python\n")]


def test_a_job_may_print_the_titles_of_yarn_logs():
    told = f"Container: {EXECUTOR} on there\n===\nLogType:stderr\nLogContents:\nEnd of LogType:stderr\n"
    lines = [one.text for one in printed_lines(printed(FIRST, stdout=told)) if one.text.strip()]
    assert "".join(lines) == told


def test_another_log_is_returned_as_it_is_even_if_it_names_a_container():
    lines = ["a\n", f"Container: {FIRST} on node_1\n", "b\n", f"Container: {FIRST} on node_1\n"]
    assert list(printed_lines(lines)) == lines


def test_logs_of_hadoop_2_and_ids_with_an_epoch_are_read():
    lines = [
        "Container: container_e17_1410901177871_0001_01_000001 on node_45454\n",
        "=================\n",
        "LogType: stdout\n",
        "LogLength: 3\n",
        "Log Contents:\n",
        "hello\n",
        "End of LogType:stdout\n",
    ]
    assert list(printed_lines(lines)) == [DriverLine(1, "hello\n")]


def test_logs_without_the_drivers_are_refused_with_the_remedy():
    with pytest.raises(SavedLogError, match=rf"{EXECUTOR}.*yarn logs -applicationId"):
        list(printed_lines(printed(EXECUTOR, stderr="x\n")))
    other = FIRST.replace("_0001_01", "_0002_01")
    with pytest.raises(SavedLogError, match="several applications"):
        list(printed_lines([*printed(FIRST, stdout="x\n"), *printed(other, stdout="x\n")]))


@pytest.mark.parametrize("form", ["file", "input"])
def test_of_several_attempts_the_last_decides(form, tmp_path, monkeypatch, capsys):
    conflict = "org.apache.hudi.exception.HoodieWriteConflictException: x\n"
    traceback = f"Traceback (most recent call last):\npy4j.protocol.Py4JJavaError: x\n: {conflict}"
    lines = [*printed(SECOND, stdout="ValueError: y\n"), *printed(FIRST, stdout=traceback)]
    if form == "input":
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(lines)))
        outcome("-", "--exit-code", "1")
    else:
        (log := tmp_path / "log").write_text("".join(lines))
        outcome(log, "--exit-code", "1")
    assert "outcome    job_error" in capsys.readouterr().out


def test_what_cannot_be_read_is_refused_with_the_remedy(tmp_path):
    (log := tmp_path / "node").write_bytes(b"an IndexedFile\0\1\2")
    with pytest.raises(SystemExit, match=r"binary file.*yarn logs -applicationId"):
        outcome(log)
    log.write_text("".join(printed(EXECUTOR, stderr="x\n")))
    with pytest.raises(SystemExit, match="application master"):
        outcome(log)

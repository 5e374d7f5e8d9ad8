"""Aggregated logs as a real NodeManager wrote them, and the line-by-line reading of a driver's log."""

from __future__ import annotations

import io
import json
import tracemalloc

import pytest

from airflow_occ_provider.submitters.yarn.aggregated_logs import AggregatedLogError, contents
from airflow_occ_provider.submitters.yarn.container import Container
from airflow_occ_provider.submitters.yarn.driver_log import DriverLog
from tests.golden.record_yarn import FOLDER, LINES

STDOUT = "".join(f"line {number}\n" for number in range(1, LINES + 1)).encode()
RUNNING = json.loads((FOLDER / "running.json").read_text())["app"]
CONTAINER = Container.of(RUNNING["amContainerLogs"], RUNNING["masterNodeId"])


def recorded(compression):
    return io.BytesIO((FOLDER / f"{compression}.tfile").read_bytes())


@pytest.mark.parametrize("compression", ["none", "gz"])
def test_a_log_is_read_whole_and_from_any_offset(compression):
    file, container = recorded(compression), (FOLDER / f"{compression}.container").read_text()
    assert b"".join(contents(file, container, "stdout")) == STDOUT
    assert b"".join(contents(file, container, "stderr")) == b"said to stderr\n"
    for offset in (1, 7, 4096, 10_000, len(STDOUT) - 1, len(STDOUT), len(STDOUT) + 5):
        assert b"".join(contents(file, container, "stdout", offset)) == STDOUT[offset:]


def test_a_log_that_is_not_there_is_empty():
    assert list(contents(recorded("none"), CONTAINER.id, "syslog")) == []
    assert list(contents(recorded("none"), "container_1_0001_01_000002", "stdout")) == []


def test_what_is_not_readable_is_refused_with_the_setting_to_change():
    whole = recorded("none").getvalue()
    with pytest.raises(AggregatedLogError, match="file-formats=TFile"):
        list(contents(io.BytesIO(b"an indexed file"), CONTAINER.id, "stdout"))
    with pytest.raises(AggregatedLogError, match="cut off"):
        list(contents(io.BytesIO(whole[:-9]), CONTAINER.id, "stdout"))
    lzo = io.BytesIO(whole.replace(b"\x04none", b"\x04lzo4"))
    with pytest.raises(AggregatedLogError, match=r"'lzo4'.*compression-type"):
        list(contents(lzo, CONTAINER.id, "stdout"))


class Chunks:
    """Writes a TFile of one container whose log is cut into chunks, as Hadoop cuts a large one."""

    @staticmethod
    def number(value):
        return b"\x83" + value.to_bytes(4, "big", signed=True)

    def file(self, container, log, chunk):
        entry = b"\0\6stdout" + len(str(len(log))).to_bytes(2, "big") + str(len(log)).encode() + log
        key = len(container).to_bytes(2, "big") + container.encode()
        pieces = [entry[start : start + chunk] for start in range(0, len(entry), chunk)]
        value = b"".join(self.number(-len(one)) + one for one in pieces) + self.number(0)
        block = self.number(len(key)) + key + value
        index = b"\x04none" + self.number(1) + b"".join(map(self.number, (16, len(block), len(block))))
        name = b"data:BCFile.index"
        entry = self.number(1) + bytes([len(name)]) + name + b"\x04none"
        entry += b"".join(map(self.number, (16 + len(block), len(index), len(index))))
        magic = recorded("none").getvalue()[:16]
        at = (16 + len(block) + len(index)).to_bytes(8, "big")
        return io.BytesIO(magic + block + index + entry + at + b"\0\1\0\0" + magic)


def test_a_large_log_takes_little_memory():
    log = b"0123456789abcde\n" * 1_000_000
    file = Chunks().file("container_1", log, 1 << 20)
    tracemalloc.start()
    size = sum(len(part) for part in contents(file, "container_1", "stdout", 5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == len(log) - 5
    assert peak < len(log) / 10


class Node:
    """A container whose logs a test lets grow and vanish."""

    def __init__(self):
        self.id = CONTAINER.id
        self.node = CONTAINER.node
        self.logs = {"stdout": b"", "stderr": b""}

    def log(self, name, offset):
        return None if self.logs is None else self.logs[name][offset : offset + 7]


def drain(log, node, logs="RUNNING"):
    found = []
    while (lines := log.after(node, "application_1_12345", "me", logs)) is not None:
        found += lines
    return found


def test_a_line_appears_once_when_it_is_complete():
    node, log = Node(), DriverLog(None)
    node.logs["stdout"] = b"one\ntw"
    assert log.live(node) == ["one\n"]
    assert log.live(node) == []
    node.logs["stdout"] += b"o\n\xc3"
    assert log.live(node) == ["two\n"]
    node.logs["stdout"] += b"\xa4\nend"
    node.logs["stderr"] += b"late\n"
    assert log.live(node) == ["late\n", "\u00e4\n"]
    assert drain(log, node) == ["end\n"]


def test_the_rest_comes_from_the_aggregated_log_once_it_is_there(tmp_path):
    node, opened = Node(), []

    def open_log(path):
        opened.append(path)
        return (tmp_path / path).open("rb")

    log = DriverLog(open_log)
    node.logs["stdout"] = STDOUT[:7]
    assert log.live(node) == ["line 1\n"]
    node.logs = None
    assert log.after(node, "application_1_12345", "me", "NOT_START") == []
    place = tmp_path / "me" / "bucket-logs-tfile" / "2345" / "application_1_12345"
    place.mkdir(parents=True)
    (place / CONTAINER.node.replace(":", "_")).write_bytes(recorded("none").getvalue())
    found = drain(log, node)
    assert found == ["said to stderr\n", *STDOUT[7:].decode().splitlines(keepends=True)]
    assert opened[2].startswith("me/logs/application_1_12345/")  # where older releases put it


def away(path):
    raise FileNotFoundError(path)


@pytest.mark.parametrize(
    ("open_log", "logs", "reason"),
    [
        (None, "SUCCEEDED", "no open_log is given"),
        (away, "DISABLED", "YARN has not aggregated it (DISABLED)"),
        (away, "SUCCEEDED", "YARN has not aggregated it (SUCCEEDED)"),
        (lambda path: io.BytesIO(b"x" * 99), "SUCCEEDED", "is not a TFile"),
    ],
)
def test_a_rest_that_cannot_be_read_is_named(open_log, logs, reason):
    node, log = Node(), DriverLog(open_log)
    node.logs["stdout"] = b"one\ntwo"
    log.live(node)
    node.logs = None
    lines = drain(log, node, logs)
    assert lines[1] == "two\n"
    assert [line.partition(":")[0] for line in (lines[0], lines[2])] == [
        "The rest of the driver's stderr cannot be read",
        "The rest of the driver's stdout cannot be read",
    ]
    assert reason in lines[2]

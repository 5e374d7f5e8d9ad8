from __future__ import annotations

from pathlib import Path

import pytest

from airflow_occ_provider.attempts.own_writes import OneTable
from airflow_occ_provider.errors import MisconfigurationError
from tests.unit.reports import fact

LOGS = Path(__file__).parents[1] / "golden" / "logs"
BEGUN = "26/11/21 10:18:15 INFO ActiveTimelineV2: Create new file for toInstant ?{}/.hoodie/{}.inflight"
SENTENCE = BEGUN.partition(": ")[2]
TOLD = [log for log in sorted(LOGS.rglob("*.log")) if "Create new file for toInstant" in log.read_text()]


@pytest.mark.parametrize("log", TOLD, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_writer_of_one_table_is_left_alone(log):
    one = OneTable(f"/lake/{log.name.split('.exit')[0]}/t")
    assert [line for line in log.read_text().splitlines() if one.on_entry(line)] == []
    one.refuse(committed=True)


@pytest.mark.parametrize("release", [".", "0.15.0", "1.0.2"])
def test_a_recorded_writer_of_another_table_is_detected(release):
    one = OneTable("/lake/another/t")
    (log,) = (LOGS / release).glob("committed_warn.exit0.log")
    assert any(one.on_entry(line) for line in log.read_text().splitlines())


def test_another_table_is_detected_if_only_the_runner_reports_it():
    reported = fact("hudi", logger="ActiveTimelineV2", message=SENTENCE.format("/lake/b", "2026"))
    assert OneTable("/lake/a").on_entry(reported)
    assert not OneTable("/lake/b").on_entry(reported)
    assert not OneTable("/lake/a").on_entry({**reported, "logger": "MyJob"})


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ("file:///lake/t", "file:/lake/t"),
        ("/lake/t/", "file:/lake/t"),
        ("hdfs://nn:8020/lake/t", "hdfs:/lake/t"),
        ("hdfs://nn1/lake/t", "hdfs://NN1:8020/lake/t"),
        ("hdfs:///lake/t", "hdfs://nn1:8020/lake/t"),
        ("viewfs://lake/t", "hdfs://nn1:8020/data/t"),
        ("hdfs://nn1/data/t", "viewfs://lake/t"),
        ("s3a://lake:443/t", "s3a://lake/t"),
        ("s3n://lake/t", "s3://lake/t/"),
        ("wasbs://c@a.blob.core.windows.net/t", "abfss://c@A.dfs.core.windows.net/t"),
        ("s3://lake/t", "s3a://lake/t"),
        ("/lake/t", "relative/t"),
    ],
)
def test_another_spelling_is_no_second_table(own, told):
    assert not OneTable(own).on_entry(BEGUN.format(told, "20261121101815232"))


def test_a_link_is_no_second_table(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    assert not OneTable(str(tmp_path / "link")).on_entry(
        BEGUN.format(tmp_path / "t", "20261121101815232")
    )


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        (BEGUN, True),
        (f'{{"level":"INFO","msg":"{SENTENCE}","logger":"o.a.h.ActiveTimelineV2"}}', True),
        (SENTENCE, False),
        (f"the neighbour's log: {BEGUN}", False),
        (f"26/11/21 10:18:15 INFO my.Copier: {BEGUN}", False),
        (f"INFO:root:{BEGUN}", False),
    ],
)
def test_only_what_hudis_own_logger_says_ends_a_driver(line, ends):
    assert (
        OneTable("/lake/a").on_entry(line.replace("{}", "/lake/b", 1).replace("{}", "2026")) is not None
    ) == ends


@pytest.mark.parametrize(
    "made",
    ["timeline/20261121101815232.commit", "20261121101815232", "timeline/20261121101815232.clean"],
)
def test_a_second_table_is_reported(made):
    one = OneTable("s3://lake/a")
    assert not one.on_entry(BEGUN.format("s3a://lake/a", made))
    assert not one.on_entry(BEGUN.format("s3a://lake/a/.hoodie/metadata", made))
    assert not one.on_entry(BEGUN.format("s3a://lake/b/.hoodie/metadata", made))
    one.refuse(committed=False)
    assert one.on_entry(BEGUN.format("s3a://lake/b", made))
    assert one.on_entry("the next line") == one.stop
    assert "s3a://lake/b" in one.stop.line
    with pytest.raises(MisconfigurationError, match=r"lake/b beside s3://lake/a.*Remedy: ") as refused:
        one.refuse(committed=True)
    assert refused.value.committed
    assert not refused.value.retry

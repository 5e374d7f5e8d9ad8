from __future__ import annotations

from pathlib import Path

import pytest

from airflow_occ_provider.errors import MisconfigurationError
from airflow_occ_provider.jobs.one_table import OneTable

LOGS = Path(__file__).parents[1] / "golden" / "logs"
BEGUN = "26/11/21 10:18:15 INFO ActiveTimelineV2: Create new file for toInstant ?{}/.hoodie/{}.inflight"


@pytest.mark.parametrize("log", sorted(LOGS.rglob("*.log")), ids=lambda path: path.stem)
def test_a_recorded_writer_of_one_table_is_left_alone(log):
    one = OneTable(f"/lake/{log.name.split('.exit')[0]}/t")
    assert [line for line in log.read_text().splitlines() if one.feed(line)] == []
    one.refuse(committed=True)


def test_a_recorded_writer_of_another_table_is_told():
    one = OneTable("/lake/another/t")
    assert any(map(one.feed, (LOGS / "committed_info.exit0.log").read_text().splitlines()))


@pytest.mark.parametrize(
    "made",
    ["timeline/20261121101815232.commit", "20261121101815232", "timeline/20261121101815232.clean"],
)
def test_a_second_table_is_told(made):
    one = OneTable("s3://lake/a")
    assert not one.feed(BEGUN.format("s3a://lake/a", made))
    assert not one.feed(BEGUN.format("s3a://lake/a/.hoodie/metadata", made))
    assert not one.feed(BEGUN.format("s3a://lake/b/.hoodie/metadata", made))
    one.refuse(committed=False)
    assert one.feed(BEGUN.format("s3a://lake/b", made))
    assert one.feed("and the next line")
    with pytest.raises(MisconfigurationError, match=r"lake/b beside s3://lake/a.*Remedy: ") as refused:
        one.refuse(committed=True)
    assert refused.value.committed
    assert not refused.value.retry

"""What concurrent writing has cost a table, of tables that real Hudi wrote and of made instants."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.commit_metadata import read_rolled_back
from airflow_occ_provider.hudi.format.instant import from_naive_ms
from airflow_occ_provider.hudi.report.losses import (
    Cause,
    Completed,
    EndedWrite,
    Loss,
    Spans,
    losses,
)
from airflow_occ_provider.hudi.report.summary import Pair, Sum, summarize
from airflow_occ_provider.reading import report as reports
from airflow_occ_provider.reading.doctor import STUCK_AFTER_MS, examine
from airflow_occ_provider.reading.report import report
from airflow_occ_provider.reading.report_page import chart, render
from airflow_occ_provider.reading.report_text import describe_report, sentence, span_ms
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import FOLDER, unpack
from tests.unit.commands import run_command
from tests.unit.timed_writes import DAY, instant

HEALTHY = (
    *("archived_beyond_savepoint", "bucket_index", "cleaned", "clustering", "compaction", "created"),
    *("history_merge_on_read", "hive_style_encoded", "indexed", "log_compaction", "operations"),
    *("restored", "several_levels", "unchecked", "unpartitioned", "version_6_history"),
)
# What the script does: a shorter one wins, then an earlier one, then a shorter one, and one fails.
CAUSES = [Cause.LIKELY_CONFLICT, Cause.CONFLICT, Cause.LIKELY_CONFLICT, Cause.ENDED]
WINNERS = [1, 3, 5]  # of the commits, in the order of their completion
PENDING_WINNER = 9
PENDING = {"bucket_index": 1}  # a write that failed, and was not rolled back yet
GROUP = ("p", "g")


def reported(release, name, folder, since_ms=0):
    table = HudiTable(str(unpack(FOLDER / release / f"{name}.zip", folder)))
    return report(table, since_ms, examine(table))


@pytest.fixture(params=["lost_writes", "lost_and_archived"])
def lost(request):
    return request.param


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_the_lost_writes_of_real_writers_and_what_they_lost_to(lost, release, tmp_path, monkeypatch):
    """Three lose and one fails; a fifth loses to a shorter one, and waits for its rollback."""
    table = HudiTable(str(unpack(FOLDER / release / f"{lost}.zip", tmp_path)))
    monkeypatch.setattr(reports, "_now_ms", lambda: round(time.time() * 1000) + STUCK_AFTER_MS)
    found, snapshot = report(table, 0), table.snapshot()
    rolled_back, pending = found.losses[:4], found.losses[4:]
    assert [loss.cause for loss in rolled_back] == CAUSES
    assert [loss.write.partitions for loss in rolled_back] == [("p1",)] * 3 + [("p3",)]
    instants = [*snapshot.history(), *snapshot.timeline]
    done = [one for one in instants if one.is_write and one.completed]
    done.sort(key=lambda one: one.time)
    assert [loss.winner for loss in rolled_back[:3]] == [done[place].time for place in WINNERS]
    rollbacks = sorted(one.time for one in instants if one.action == "rollback")
    assert [loss.write.rollback for loss in rolled_back] == rollbacks
    for loss in rolled_back:
        assert loss.write.driver_ms == seconds(loss.write.time, loss.write.rollback) * 1000
    assert len(pending) == (lost == "lost_writes")
    for loss in pending:
        assert (loss.cause, loss.write.rollback) == (Cause.LIKELY_CONFLICT, "")
        winner = done[PENDING_WINNER]
        assert loss.winner == winner.time
        assert winner.completion_time <= loss.write.ended
        assert loss.write.driver_ms == pytest.approx(
            seconds(loss.write.time, winner.completion_time) * 1000, rel=0.05
        )
    conflicts = [loss for loss in found.losses if loss.cause is not Cause.ENDED]
    total = Sum(len(conflicts), sum(loss.write.driver_ms for loss in conflicts))
    assert found.summary.by_partition == {"p1": total}
    assert found.summary.by_pair == {Pair("p1", "UPSERT, not signed"): total}
    assert not found.gaps


def seconds(first, second):
    begun, until = (datetime.strptime(f"{at}000", "%Y%m%d%H%M%S%f") for at in (first, second))  # noqa: DTZ007
    return (until - begun).total_seconds()


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_the_overwrite_that_a_real_writer_lost_to_an_upsert(release, tmp_path):
    table = HudiTable(str(unpack(FOLDER / release / "lost_overwrite.zip", tmp_path)))
    (loss,) = report(table, 0).losses
    assert (loss.cause, loss.write.action) == (Cause.LIKELY_CONFLICT, "replacecommit")
    done = table.snapshot().timeline.completed_writes()
    assert loss.winner == done[1].time  # after the first insert, and before the write that cleans
    assert {partition for partition, _ in loss.shared} == {"p1"}


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_a_write_that_an_eager_writer_rolled_back_alive(release, tmp_path):
    (loss,) = reported(release, "rolled_back_alive", tmp_path).losses
    assert loss.cause is Cause.ROLLED_BACK_EARLY


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_a_young_write_without_a_heartbeat_may_be_that_of_a_single_writer(release, tmp_path):
    path = unpack(FOLDER / release / "unchecked.zip", tmp_path)
    table = HudiTable(str(path))
    last = max(table.snapshot().timeline.completed_writes())
    (path / table.config().timeline_folder / last.file_name).unlink()
    now = from_naive_ms(round(time.time() * 1000))
    for file in (path / table.config().timeline_folder).glob(f"{last.time}*"):
        file.rename(file.with_name(file.name.replace(last.time, now)))
    assert report(HudiTable(str(path)), 0).losses == ()


@pytest.mark.parametrize("release", HUDI_RELEASES)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_table_whose_writers_all_completed_has_lost_nothing(name, release, tmp_path):
    if not (FOLDER / release / f"{name}.zip").exists():
        pytest.skip("no table of this release")
    found = reported(release, name, tmp_path)
    assert len(found.losses) == PENDING.get(name, 0)
    assert all(loss.cause is Cause.ENDED for loss in found.losses)
    if not found.losses:
        assert sentence(found).startswith("No write was lost since ")


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_a_write_that_waits_for_its_rollback_counts_once(release, tmp_path):
    found = reported(release, "rollbacks", tmp_path)
    times = [loss.write.time for loss in found.losses]
    assert len(times) == len(set(times)) == 3
    assert [bool(loss.write.rollback) for loss in found.losses] == [True, False, True]


def test_what_was_requested_before_does_not_count(tmp_path):
    everything = reported("1.2.0", "lost_writes", tmp_path / "all")
    third = everything.losses[2].write.time
    since_ms = everything.epoch_ms(third)
    later = reported("1.2.0", "lost_writes", tmp_path / "later", since_ms)
    assert [loss.write.time for loss in later.losses] == [
        loss.write.time for loss in everything.losses[2:]
    ]
    assert later.commits.writes < everything.commits.writes


def done(at, ended):
    return instant(at, ended)


def ended(at, until, rollback="", groups=(GROUP,)):
    return EndedWrite(
        f"{DAY}{at}000",
        "commit",
        f"{DAY}{until}000",
        f"{DAY}{rollback}000" if rollback else "",
        frozenset(groups),
    )


def judged(write, *completed, early=(), **known):
    """Return the loss of a write beside others of its file group."""
    written = dict.fromkeys(completed, Completed(frozenset([GROUP]), **known))
    (loss,) = losses([write], Spans(completed), written, early)
    return loss


def test_it_lost_to_the_one_that_completed_first():
    first, later = done("100500", "101000"), done("100100", "102000")
    loss = judged(ended("100000", "103000", "103000"), later, first)
    assert (loss.cause, loss.winner) == (Cause.LIKELY_CONFLICT, first.time)


@pytest.mark.parametrize(
    ("at", "until"), [("090000", "095959"), ("104000", "105000")], ids=["before", "after"]
)
def test_one_that_completed_before_or_after_its_time_is_no_rival(at, until):
    assert judged(ended("100000", "103000", "103000"), done(at, until)) == Loss(
        ended("100000", "103000", "103000")
    )


def test_one_of_other_file_groups_is_no_rival():
    write = ended("100000", "103000", "103000", [("p", "other")])
    assert judged(write, done("100500", "101000")).cause is Cause.ENDED


def test_one_whose_own_clean_took_it_back_may_be_its_repetition():
    repetition = done("101000", "102959")
    assert judged(ended("100000", "103000", "103000"), repetition).cause is Cause.ENDED
    # The clean of a write that ran beside it is no sign of that, nor is a clean much later.
    beside = judged(ended("100000", "103000", "103000"), done("095900", "102959"))
    assert beside.cause is Cause.CONFLICT
    assert judged(ended("100000", "104000", "104000"), repetition).cause is Cause.LIKELY_CONFLICT
    between = done("102900", "102958")
    assert judged(ended("100000", "103000", "103000"), between, repetition).winner == between.time


def test_a_dead_write_that_is_still_pending_lost_as_well():
    assert judged(ended("100000", "102000"), done("095500", "101959")).cause is Cause.CONFLICT
    assert judged(ended("100000", "102000"), done("095500", "102001")).cause is Cause.ENDED
    failed_at_commit = replace(ended("100000", "102000"), at_commit=True)
    loss = judged(failed_at_commit, done("095500", "102001"))
    assert (loss.cause, loss.write.driver_ms) == (Cause.CONFLICT, 1_201_000)
    assert judged(failed_at_commit, done("095000", "101000")).write.driver_ms == 1_200_000
    assert judged(failed_at_commit, done("095000", "103001")).cause is Cause.ENDED


def test_a_second_try_that_began_later_is_the_repetition():
    repetition, neighbour = done("101000", "102900"), done("102959", "102959")
    for write in (ended("100000", "103000", "103000"), ended("100000", "103000")):
        assert judged(write, repetition, neighbour).cause is Cause.LIKELY_CONFLICT
        assert judged(write, repetition, neighbour, is_repetition=True).cause is Cause.ENDED
    earlier = done("095900", "102900")
    write = ended("100000", "103000", "103000")
    assert judged(write, earlier, is_repetition=True).cause is Cause.CONFLICT


def test_a_compaction_refuses_older_writes_alone():
    write = ended("100000", "103000", "103000")
    younger, older = done("100500", "101000"), done("095500", "101000")
    assert judged(write, younger, is_compaction=True).cause is Cause.LIKELY_CONFLICT
    assert judged(write, older, is_compaction=True).cause is Cause.ENDED


def test_an_overwrite_lost_to_a_write_of_its_partition():
    overwrite = replace(ended("100000", "103000", "103000", [("p", "new")]), action="replacecommit")
    loss = judged(overwrite, done("095900", "101000"))
    assert (loss.cause, loss.shared) == (Cause.LIKELY_CONFLICT, frozenset([GROUP]))
    elsewhere = replace(overwrite, file_groups=frozenset([("q", "new")]))
    assert judged(elsewhere, done("095900", "101000")).cause is Cause.ENDED


def test_a_write_that_was_rolled_back_early_lost_no_conflict():
    write = ended("100000", "103000", "103000")
    loss = judged(write, done("095900", "101000"), early={write.time})
    assert (loss.cause, loss.winner) == (Cause.ROLLED_BACK_EARLY, "")


def test_losses_are_added_up_by_day_pair_and_partition():
    other = frozenset([GROUP, ("q", "h")])
    found = [
        Loss(ended("100000", "100010", groups=other), Cause.CONFLICT, "w1", other),
        Loss(ended("110000", "110001"), Cause.CONFLICT, "w2", frozenset([GROUP])),
        Loss(ended("120000", "120004")),
    ]
    summary = summarize(found, {"w1": "nightly / load"})
    assert summary.lost == Sum(3, 15_000)
    assert summary.by_cause == {Cause.CONFLICT: Sum(2, 11_000), Cause.ENDED: Sum(1, 4_000)}
    assert summary.by_day == {DAY: summary.by_cause}
    assert list(summary.by_partition.items()) == [("p", Sum(2, 11_000)), ("q", Sum(1, 10_000))]
    assert list(summary.by_pair) == [Pair("p, q", "nightly / load"), Pair("p", "w2")]


def test_the_plan_of_a_rollback_names_files_too(tmp_path):
    path = unpack(FOLDER / "1.2.0" / "lost_writes.zip", tmp_path)
    snapshot = HudiTable(str(path)).snapshot()
    folder = path / snapshot.config.timeline_folder
    (first, *_) = [one for one in snapshot.timeline if one.action == "rollback"]
    assert read_rolled_back((folder / first.requested_file).read_bytes()) == read_rolled_back(
        (folder / first.file_name).read_bytes()
    )


def test_the_sentence_names_conflicts_and_likely_ones(tmp_path):
    everything = reported("1.2.0", "lost_writes", tmp_path)
    by_cause = {cause: [one for one in everything.losses if one.cause is cause] for cause in Cause}

    def said(*of_causes):
        return sentence(replace(everything, losses=tuple(one for of in of_causes for one in of)))

    certain, likely, failed = (
        by_cause[cause] for cause in (Cause.CONFLICT, Cause.LIKELY_CONFLICT, Cause.ENDED)
    )
    texts = {
        said(certain, failed): r"^2 writes were lost .*Of these, 1 \(.*\) lost a conflict, which a",
        said(likely): r"Of these, \d \(.*\) likely lost a conflict\.$",
        said(certain, likely): r"Of these, 1 .* lost a conflict, .*, and \d \(.*\) likely did\.$",
        said(failed): r"^1 write was lost .* of driver time\. None shows a conflict\.$",
    }
    assert all(re.search(pattern, text) for text, pattern in texts.items())


@pytest.mark.parametrize(("text", "hours"), [("1h", 1), ("30d", 720), ("4w", 672)])
def test_a_length_of_time(text, hours):
    assert span_ms(text) == hours * 3_600_000


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1.5d", "30m", "٣d"])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(ConfigurationError, match="give hours"):
        span_ms(text)


class _Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.loaded, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += f"{data} "


def test_the_page_needs_no_other_file_and_shows_what_the_values_say(tmp_path):
    described = describe_report(reported("1.2.0", "lost_writes", tmp_path))
    page = _Page(render([{**described, "table": "<b>lake</b>"}]))
    assert page.loaded == []
    assert page.tags.count("rect") == 3  # the causes of one day
    assert "<b>lake</b>" in page.text
    for loss in described["losses"]:
        assert loss["time"] in page.text
    assert described["sentence"] in page.text


def test_the_page_of_a_healthy_table_has_no_drawing(tmp_path):
    described = describe_report(reported("1.2.0", "created", tmp_path))
    page = _Page(render([described]))
    assert {"svg", "table"}.isdisjoint(page.tags)
    assert chart(described) is None


def test_a_day_without_a_loss_has_its_place_and_a_long_time_is_cut():
    one = {"ended": {"writes": 1, "driver_ms": 1000}}
    drawn = chart({"days": [{"day": day, "causes": one} for day in ("2026-11-01", "2026-11-11")]})
    first, last = (block.x for block in drawn["blocks"])
    assert last - first == pytest.approx(10 * (drawn["blocks"][0].width + 2))
    drawn = chart({"days": [{"day": day, "causes": one} for day in ("2025-11-01", "2026-11-11")]})
    assert (len(drawn["blocks"]), drawn["first"]) == (1, "2026-07-15")


def test_the_command_prints_each_format(tmp_path, capsys):
    path = str(unpack(FOLDER / "1.2.0" / "lost_writes.zip", tmp_path))
    arguments = ("report", path, "--since", "5200w", "--output")
    run_command(*arguments, "json")
    (described,) = json.loads(capsys.readouterr().out)
    assert [loss["cause"] for loss in described["losses"]][:4] == [cause.value for cause in CAUSES]
    run_command(*arguments, "plain")
    text = capsys.readouterr()
    assert described["sentence"] in text.out
    assert described["losses"][0]["winner"] in text.out
    assert re.search(r"reading 4 rollbacks of .*\.\.\.", text.err)
    missing = str(tmp_path / "missing")
    with pytest.raises(SystemExit, match="is not a Hudi table"):
        run_command("report", missing, *arguments[1:], "plain")
    assert described["sentence"] in capsys.readouterr().out
    with pytest.raises(SystemExit, match="is not a Hudi table"):
        run_command("report", missing, "--output", "json")
    assert not capsys.readouterr().out
    with pytest.raises(SystemExit, match="give hours"):
        run_command("report", path, "--since", "soon")
    run_command(*arguments, "html")
    assert capsys.readouterr().out.startswith("<!doctype html>")


def test_a_program_without_airflow_prints_it(tmp_path):
    path = str(unpack(FOLDER / "0.15.0" / "lost_writes.zip", tmp_path))
    code = (
        "import sys; sys.modules['airflow'] = None; import runpy; "
        "runpy.run_module('airflow_occ_provider.reading', run_name='__main__')"
    )

    def run(*arguments):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    printed = run(path, "--since", "5200w")
    assert printed.returncode == 0, printed.stderr
    assert "which a queue prevents" in printed.stdout
    assert json.loads(run(path, "-o", "json", "--since", "5200w").stdout)[0]["table"] == path
    assert run(path, "-o", "html").stdout.startswith("<!doctype html>")
    refused = run(str(Path(path) / "missing"))
    assert refused.returncode == 1
    assert "is not a Hudi table" in refused.stderr


def test_the_requests_are_bounded(tmp_path, monkeypatch):
    """One for each rollback and each commit beside a lost write, whatever else the timeline has.

    A write that waits for its rollback is listed, with the times of its files.
    """
    path = str(unpack(FOLDER / "1.2.0" / "lost_writes.zip", tmp_path))
    monkeypatch.setattr(reports, "_now_ms", lambda: round(time.time() * 1000) + STUCK_AFTER_MS)
    requests, ask = [], TableFolder.ask
    monkeypatch.setattr(TableFolder, "ask", lambda *call: requests.append(call[1]) or ask(*call))
    table_report = report(HudiTable(path), 0)
    count, snapshot = len(requests), HudiTable(path).snapshot()
    spans = [(loss.write.time, loss.write.ended) for loss in table_report.losses]
    beside = {
        commit.time
        for commit in snapshot.timeline.completed_writes()
        if any(begun < commit.completion_time <= until for begun, until in spans)
    }
    assert table_report.names.keys() == beside
    rollbacks = sum(bool(loss.write.rollback) for loss in table_report.losses)
    pending = len(table_report.losses) - rollbacks
    assert pending == 1
    assert rollbacks + len(beside) + 2 * pending + 9 >= count

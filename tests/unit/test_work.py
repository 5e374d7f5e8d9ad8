"""The digest of a task run's work: the same in each process, version of the bundle and folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.dag_processing.bundles.local import LocalDagBundle

from airflow_occ_provider.attempts.jobs import Function, MainClass, PythonFile, Sql, work_digest
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.task.run import bundle_folders
from tests.support.table_properties import table_properties

PROGRAM = """
from airflow_occ_provider.attempts.jobs import Function, PythonFile
from airflow_occ_provider.attempts.jobs import work_digest

names = {"a", "b", "c", "dd", "eee"}
arguments = {"wanted": names, "nested": [{"of": frozenset(names)}], "pairs": {(1, "x"), (2, "y")}}
print(work_digest(Function("f", "def f(spark, wanted): pass", "/t", arguments).work()))
print(work_digest(PythonFile("job.py", (names, [names])).work()))
"""


def function(**arguments):
    return Function("f", "def f(spark): pass", "/t", arguments)


def digest(job, *folders):
    return work_digest(job.work(), folders)


def test_sets_have_the_same_digest_in_each_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        ).stdout
        for seed in "1234"
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("value", "equal", "other"),
    [
        (["ab c", "ab c"], json.loads('["ab c", "ab c"]'), ["ab c", "ab d"]),  # one text, and two
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}),
        ({"k": {"x", "y"}}, {"k": {"y", "x"}}, {"k": ["x", "y"]}),
        ({date(2026, 1, 2), date(2026, 1, 1)}, {date(2026, 1, 1), date(2026, 1, 2)}, set()),
        ((Decimal("1.50"), 2**70), (Decimal("1.50"), 2**70), (Decimal("1.5"), 2**70)),
        ([datetime(2026, 1, 1, tzinfo=UTC)] * 2, json.loads("[1, 1]"), None),
        (OrderedDict(a=1, b=2), OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (b"ab", bytes(bytearray(b"ab")), "ab"),
    ],
    ids=["identity", "order", "set", "dates", "numbers", "times", "ordered", "bytes"],
)
def test_equal_arguments_are_the_same_work_and_others_are_not(value, equal, other):
    assert (digest(function(a=value)) == digest(function(a=equal))) is (value == equal)
    assert digest(function(a=value)) != digest(function(a=other))


def test_an_argument_that_contains_itself_is_refused_by_name():
    endless = []
    endless.append(endless)
    with pytest.raises(ConfigurationError, match=r"^op_kwargs: rows is a builtins\.list, which"):
        function(rows=endless).work()
    with pytest.raises(ConfigurationError, match=r"^application_args: .*Remedy: give text"):
        digest(PythonFile("job.py", (endless,)))


def test_arguments_name_and_source_distinguish_work():
    same = digest(PythonFile("a.py", ("1", 2)))
    assert same == digest(PythonFile("a.py", ("1", "2")))
    others = (PythonFile("b.py", ("1", 2)), PythonFile("a.py", ("12",)), MainClass("a.py", "", ("1", 2)))
    sql = (Sql("DELETE FROM t", "/t"), Sql("DELETE FROM t", "/t", "t"))
    assert len({same, *map(digest, (*others, *sql))}) == 6


def versions(folder):
    """Return the folders of two versions of one bundle."""
    paths = [folder / "versions" / commit for commit in ("4f2a", "9bc1")]
    for path in paths:
        (path / "jobs").mkdir(parents=True)
        (path / "jobs" / "job.py").write_text(f"# of {path.name}", encoding="utf-8")
    return paths


@pytest.mark.parametrize(
    "job",
    [
        lambda folder: PythonFile(f"{folder}/jobs/job.py", (f"--conf={folder}/c.yaml", folder / "x")),
        lambda folder: PythonFile(f"file://{folder}/jobs/job.py", (str(folder),)),
        lambda folder: MainClass("org.example.Main", f"{folder}/jobs/job.jar", (f"{folder}/c", "--x")),
        lambda folder: function(path=f"{folder}/c.yaml", all={"x": [folder / "a", f"{folder}/b"]}),
        lambda folder: Sql(f"INSERT INTO t SELECT * FROM csv.`{folder}/a.csv`", "/t"),
    ],
    ids=["file", "url", "jar", "function", "sql"],
)
@pytest.mark.parametrize("is_linked", [False, True])
def test_another_version_of_the_bundle_is_the_same_work(tmp_path, job, is_linked):
    first, second = versions(tmp_path)
    paths = first, second
    if is_linked:  # a bundle's path is a link, and the DAG's file resolves itself
        paths = tmp_path / "first", tmp_path / "second"
        for link, target in zip(paths, (first, second), strict=True):
            link.symlink_to(target)
    bundles = [LocalDagBundle(name="dags", path=str(path)) for path in paths]
    folders = [bundle_folders({"ti": SimpleNamespace(bundle_instance=bundle)}) for bundle in bundles]
    assert digest(job(first), *folders[0]) == digest(job(second), *folders[1])
    assert digest(job(first), *folders[0]) != digest(job(second / "sub"), *folders[1])


def test_a_folder_is_no_part_of_other_names():
    for text in ("/data/dags/x", "/dags-2/x", "/dags.old/x", "a/dags"):
        assert digest(function(a=text), "/dags", "/") == digest(function(a=text))


def test_a_job_outside_the_bundle_is_known_by_its_content(tmp_path):
    first, second = versions(tmp_path)
    job = Path("jobs", "job.py")
    assert digest(PythonFile(str(first / job))) != digest(PythonFile(str(second / job)))
    (second / job).write_bytes((first / job).read_bytes())
    same = {
        digest(PythonFile(f"{prefix}{path / job}"))
        for path in (first, second)
        for prefix in ("", "file://")
    }
    assert len(same) == 1
    renamed = first / "jobs" / "other.py"
    renamed.write_bytes((first / job).read_bytes())
    assert digest(PythonFile(str(renamed))) not in same
    remote = [digest(PythonFile(f"s3a://code/{version}/job.py")) for version in ("1", "2")]
    assert remote[0] != remote[1]


class _Instance:
    dag_id, run_id, task_id, map_index, try_number, max_tries = "d", "r", "t", -1, 1, 3

    def __init__(self, folder):
        self.bundle_instance = LocalDagBundle(name="dags", path=str(folder))


def test_an_operators_work_is_the_same_in_each_version_and_order_of_its_scope(tmp_path):
    def of(folder, scope=("a", "b")):
        task = HudiWriteOperator(
            task_id="t", application=f"{folder}/jobs/job.py", table="/lake/t", scope=list(scope)
        )
        return task._protected_run({"ti": _Instance(folder)}).work_digest

    first, second = versions(tmp_path)
    assert of(first) == of(second) == of(first, ("b", "a"))
    assert of(first) != of(first, ("a",))


def test_the_work_of_a_partitioned_run_stays_the_same_once_its_table_is_there(tmp_path):
    def digest_of_try():
        task = HudiWriteOperator(task_id="t", application="job.py", table=str(tmp_path / "trips"))
        run = task._protected_run({"ti": _Instance(tmp_path), "partition_key": "2026-11-29"})
        return run.claim.partitions, run.work_digest

    before, first = digest_of_try()
    properties = tmp_path / "trips" / ".hoodie" / "hoodie.properties"
    properties.parent.mkdir(parents=True)
    properties.write_text(table_properties(table__partition__fields="dt"))
    after, second = digest_of_try()
    assert (before, after) == (None, ("2026-11-29",))
    assert first == second

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from airflow_occ_provider.attempts.log.facts import parse_fact
from airflow_occ_provider.driver import contract
from airflow_occ_provider.driver.shipped import runner_source
from airflow_occ_provider.in_driver import guard, run_job, run_sql, session_rules
from airflow_occ_provider.in_driver.folder import HadoopFolder
from tests.support.suspended import suspended

RUN = """
import pathlib, sys
from airflow_occ_provider.in_driver import report, run_job as r
r.REPORTS.append(report.LocalReport(pathlib.Path(sys.argv[2])))
r.run(sys.argv[1], ['x', 'y'])
"""


def run(folder, code, program=RUN):
    """Run a job as the runner does; return its exit code and output, and what was reported."""
    job, reports = folder / "job.py", folder / "reports"
    job.write_text(code)
    reports.mkdir()
    command = [sys.executable, "-c", program, str(job), str(reports)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, facts_in(reports)


def facts_in(reports):
    lines = (reports / contract.FACTS).read_text().splitlines()
    return [fact for line in lines if (fact := parse_fact(line))]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("pass", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit(-1)", 255),
        ("import sys; sys.exit('no')", 1),
        ("raise SystemExit(4)", 4),
        ("import sys; sys.stderr.close(); sys.exit(5)", 5),
        ("import sys; sys.stderr = None", 0),
        ("import os; os._exit(3)", 3),
        ("import os; os.close(2)", 0),
        ("import os; os.closerange(3, 99); os.chdir('/')", 0),
        ("import os; os.umask(0o777)", 0),
        ("import os; os.fork()", 0),
        ("import os, sys\nif os.fork(): os.wait()\nelse: sys.exit(7)", 0),
        ("import os\nif os.fork(): os.wait()\nelse: 1 / 0", 0),
        ("import os\nif os.fork(): os.wait()\nelse: os._exit(7)", 0),
        ("import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2)", 0),
        ("import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2); os._exit(3)", 3),
        ("import os; os.closerange(3, 99)", 0),
        ("import os; child = os.fork() or os._exit(7); os.waitpid(child, 0)", 0),
    ],
)
def test_the_end_is_reported_with_the_programs_exit_code(tmp_path, code, exit_code):
    done, facts = run(tmp_path, code)
    assert done.returncode == exit_code
    assert facts == [{"fact": "end", "exit_code": exit_code}]


def test_no_fact_goes_to_a_file_of_the_job(tmp_path):
    code = (
        "import os, subprocess, sys\n"
        "os.closerange(3, 99)\n"
        "file = open(sys.argv[0] + '.out', 'w')\n"
        "if os.fork() == 0:\n"
        "    nowhere = os.open(os.devnull, os.O_RDWR)\n"
        "    [os.dup2(nowhere, each) for each in range(3)]\n"
        "    os.execvp('sleep', ['sleep', '60'])\n"
    )
    _, facts = run(tmp_path, code)
    assert facts == [{"fact": "end", "exit_code": 0}]
    assert (tmp_path / "job.py.out").read_text() == ""


def test_what_the_job_died_of_is_reported_and_printed(tmp_path):
    raised = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k')"
    done, (fatal, end) = run(tmp_path, raised)
    assert (done.returncode, end) == (1, {"fact": "end", "exit_code": 1})
    assert [(one["type"], one["message"]) for one in fatal["causes"]] == [
        ("KeyError", "'k'"),
        ("ZeroDivisionError", "division by zero"),
    ]
    assert done.stderr.rstrip().endswith("KeyError: 'k'")
    assert "job.py" in done.stderr


@pytest.mark.parametrize("leave", ["sys.exit(3)", "raise SystemExit(3) from error"])
def test_what_the_job_handles_as_it_leaves_is_reported(tmp_path, leave):
    code = f"import sys\ntry:\n    1 / 0\nexcept ZeroDivisionError as error:\n    {leave}"
    done, (fatal, end) = run(tmp_path, code)
    assert (done.returncode, end) == (3, {"fact": "end", "exit_code": 3})
    assert [cause["type"] for cause in fatal["causes"]] == ["ZeroDivisionError"]


@pytest.mark.parametrize("leave", ["sys.exit()", "sys.exit(0)", "raise SystemExit(3) from None"])
def test_what_the_job_made_up_for_or_hid_as_it_leaves_is_not_reported(tmp_path, leave):
    code = f"import sys\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    {leave}"
    _, facts = run(tmp_path, code)
    assert [fact["fact"] for fact in facts] == ["end"]


def test_what_the_job_hid_is_not_reported(tmp_path):
    hidden = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise OSError('disk') from None"
    _, (fatal, _) = run(tmp_path, hidden)
    assert [one["type"] for one in fatal["causes"]] == ["OSError"]


def test_an_exception_without_a_message_is_reported(tmp_path):
    mute = "class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute"
    _, (fatal, end) = run(tmp_path, mute)
    assert [(one["type"], one["message"]) for one in fatal["causes"]] == [("Mute", "")]
    assert end["exit_code"] == 1


def test_the_job_is_the_main_module(tmp_path):
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    code = (
        "import pickle, sys, beside\n"
        "class Row: pass\n"
        "assert type(pickle.loads(pickle.dumps(Row()))) is Row\n"
        "assert sys.modules['__main__'].Row is Row and 'run' not in globals()\n"
        "print(__name__, __file__ == sys.argv[0], sys.argv[1:], beside.NAME)\n"
    )
    done, _ = run(tmp_path, code)
    assert done.stdout == "__main__ True ['x', 'y'] beside\n", done.stderr


SHAPES = {
    "a typed function with a local import": """
        def main():
            import decimal, inspect, typing
            def double(s: decimal.Decimal) -> decimal.Decimal: return s * 2
            assert typing.get_type_hints(double)["s"] is decimal.Decimal
            assert inspect.signature(double).parameters["s"].annotation is decimal.Decimal
        main()
    """,
    "an overload for a local class": """
        import functools
        def main():
            class Row: pass
            @functools.singledispatch
            def kind(row): return "other"
            @kind.register
            def _(row: Row): return "row"
            assert kind(Row()) == "row"
        main()
    """,
    "a dataclass": """
        import dataclasses
        @dataclasses.dataclass
        class Row: k: int = 1
        assert dataclasses.fields(Row)[0].type is int
    """,
    "annotations as text, by its own choice": """
        from __future__ import annotations
        def f(x: NotThere): pass
        assert f.__annotations__ == {"x": "NotThere"}
    """,
    "globals": """
        print(sorted(name for name in globals() if name != "__annotations__"))
        print(__name__, __file__, __doc__, __spec__, __package__, __loader__ is None)
    """,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_means_the_same_as_without_the_runner(tmp_path, shape):
    code = inspect.cleandoc(SHAPES[shape])
    done, facts = run(tmp_path, code)
    command = [sys.executable, str(tmp_path / "job.py")]
    plain = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, plain.returncode) == (0, 0), (done.stderr, plain.stderr)
    assert facts == [{"fact": "end", "exit_code": 0}]
    if shape != "globals":
        assert done.stdout == plain.stdout


@pytest.mark.parametrize("flags", [[], ["-P"]])
def test_the_first_folder_of_the_path_is_the_scripts_if_python_adds_one(tmp_path, flags):
    """With ``-P`` the first entry of the path is a file of ``--py-files``, such as one in PYTHONPATH."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "library.py").write_text("NAME = 'library'")
    (tmp_path / "job.py").write_text("import library; print(library.NAME)")
    folder = str(Path(run_job.__file__).parent)
    script = tmp_path / "runner.py"
    script.write_text(
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('run_job', {folder + '/run_job.py'!r})\n"
        "runner = importlib.util.module_from_spec(spec); spec.loader.exec_module(runner)\n"
        "runner.run(sys.argv[1], [])\n"
    )
    command = [sys.executable, *flags, str(script), str(tmp_path / "job.py")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "shared")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "library\n", done.stderr


IN_DRIVER = [*sorted(Path(run_job.__file__).parent.glob("*.py")), Path(contract.__file__)]
LATER_THAN_3_7 = re.compile(
    r"\.(removeprefix|removesuffix|is_relative_to|readlink|unparse|prod|isqrt|dist|cache)\("
    r"|cached_property|zoneinfo|graphlib|tomllib|functools\.cache\b|missing_ok|\bmatch \w+:$",
    re.MULTILINE,
)


@pytest.mark.parametrize("file", IN_DRIVER, ids=lambda file: file.name)
def test_what_runs_in_a_driver_is_python_3_7(file):
    source = file.read_text()
    ast.parse(source, feature_version=(3, 7))
    assert not LATER_THAN_3_7.search(source)


def older_pythons():
    """Return the older interpreters of this machine, each of which Spark 3.3 to 3.5 may have."""
    folders = (Path.home() / ".pyenv" / "versions").glob("3.[789].*")
    paths = [shutil.which("python3", path=str(folder / "bin")) for folder in sorted(folders)]
    paths += [shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin") for minor in (7, 8, 9)]
    return [path for path in paths if path]


@pytest.mark.parametrize("python", older_pythons() or [pytest.param("", marks=pytest.mark.skip("none"))])
def test_older_pythons_load_every_file_and_run_a_job(tmp_path, python):
    for file in IN_DRIVER:
        code = f"import runpy; runpy.run_path({str(file)!r}, run_name='loaded')"
        subprocess.run([python, "-c", code], check=True, timeout=60)
    (tmp_path / "runner.py").write_bytes(runner_source())
    code = "import runpy, sys; runpy.run_path('runner.py'); print('airflow_occ_provider' in sys.modules)"
    command = [python, "-c", code]
    loaded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert loaded.stdout == "False\n", loaded.stderr
    (tmp_path / "job.py").write_text("import sys; print(__name__, sys.argv[1:]); sys.exit(3)")
    code = f"import pathlib, sys; sys.path.insert(0, {str(tmp_path)!r}); import runner\n"
    code += "report = sys.modules['airflow_occ_shipped.in_driver.report']\n"
    code += "r = sys.modules['airflow_occ_shipped.in_driver.run_job']\n"
    code += f"r.REPORTS.append(report.LocalReport(pathlib.Path({str(tmp_path)!r})))\n"
    code += f"r.run('file://{tmp_path / 'job.py'}', ['x'])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "__main__ ['x']\n"), done.stderr
    assert facts_in(tmp_path) == [{"fact": "end", "exit_code": 3}]


# In the place of the JVM: a process that starts the runner, which is paused or busy for a while.
JVM = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); print('it lives')"
PROGRAM = """
import os, pathlib, threading, time
from airflow_occ_provider.in_driver import report, run_job as runner
runner.REPORTS.append(report.LocalReport(pathlib.Path("FOLDER")))
threading.Thread(target=runner.die_after_pause, args=(LIMIT,), daemon=True).start()
time.sleep(0.1)
print(os.getpid(), flush=True)
JOB
"""


def jvm(limit_s, job, reports):
    program = PROGRAM.replace("LIMIT", str(limit_s)).replace("JOB", job).replace("FOLDER", str(reports))
    return subprocess.Popen(
        [sys.executable, "-c", JVM, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def pause(running):
    """Pause the program until its clock has passed a second."""
    program = int(running.stdout.readline())
    with suspended(program):
        subprocess.run(["sleep", "1.2"], check=True)


def test_a_driver_that_was_paused_for_too_long_ends_itself(tmp_path):
    with jvm(1, "time.sleep(60)", tmp_path) as running:
        pause(running)
        assert running.wait(60) == -signal.SIGKILL
    assert [fact["fact"] for fact in facts_in(tmp_path)] == ["paused"]


def test_a_shorter_pause_does_not_end_a_driver(tmp_path):
    with jvm(3600, "time.sleep(3)", tmp_path) as running:
        pause(running)
        assert running.stdout.read() == "it lives\n"


def test_a_call_that_keeps_all_threads_from_running_is_no_pause(tmp_path):
    """Its limit is long enough for a machine that has other things to do, and the call longer."""
    with jvm(3, "pow(7, 6_000_000)", tmp_path) as running:
        assert running.stdout.read().endswith("it lives\n")


@pytest.mark.parametrize(
    "name", ["/a/b.py", "b.py", "file:/a/b.py", "file:///a/b.py", "local:///a/b.py"]
)
def test_a_local_file_is_used_where_it_lies(name):
    assert run_job.local_path(name) in ("/a/b.py", "b.py")


def test_a_job_of_ours_reports_as_the_runner_does(tmp_path):
    program, _, _ = Path(run_sql.__file__).read_text().partition("if __name__")
    done, facts = run(tmp_path, f"{program}refuse('a problem')")
    reason = "a problem; no statement was run"
    assert done.returncode == run_job.EXIT_UNPROTECTED
    assert facts == [
        {"fact": "not_protected", "reason": reason},
        {"fact": "end", "exit_code": run_job.EXIT_UNPROTECTED},
    ]


@pytest.mark.parametrize(("content", "exit_code"), [("pass", 0), ("print('of another')", 78)])
def test_another_job_than_the_tasks_is_refused(tmp_path, content, exit_code):
    arguments = f"['x', 'y'], {contract.digest(b'pass')!r}"
    done, facts = run(tmp_path, content, RUN.replace("['x', 'y']", arguments))
    assert done.returncode == exit_code
    assert ("is not what its task has written" in str(facts)) == bool(exit_code)
    assert "of another" not in done.stdout


class FakeHudi:
    """In the place of a JVM whose Hudi loads some classes."""

    def __init__(self, *names):
        self.org = MagicMock()
        self.org.apache.hudi.common.util.ReflectionUtils.getClass = {n: n for n in names}.__getitem__


def test_a_class_that_is_missing_is_named_with_its_remedy():
    classes = [{"name": "a.B", "remedy": "add one"}, {"name": "a.C", "remedy": "add two"}]
    assert run_job.missing_class(FakeHudi(), []) is None
    assert run_job.missing_class(FakeHudi("a.B", "a.C"), classes) is None
    told = run_job.missing_class(FakeHudi("a.B"), classes)
    assert told == "the driver cannot load the class a.C (KeyError: 'a.C'): add two"


class ReportOfTest:
    def __init__(self):
        self.lines, self.closed = [], False

    def add(self, line):
        assert not self.closed
        self.lines.append(line)

    def close(self):
        self.closed = True


def test_the_facts_of_a_granted_driver_are_reported_until_the_end(monkeypatch, capfd):
    report = ReportOfTest()
    monkeypatch.setattr(run_job, "REPORTS", [report])

    def exits():
        with run_job.reporting():
            run_job.report("a", b=1)
            sys.exit(3)

    with pytest.raises(SystemExit):
        exits()
    assert report.lines == [b'{"fact": "a", "b": 1}\n']
    assert capfd.readouterr() == ("", "")
    assert report.closed


@pytest.mark.parametrize("module", [session_rules, guard])
def test_what_is_run_from_the_payload_needs_nothing_of_ours(module):
    program = Path(module.__file__).read_text(encoding="utf-8")
    assert "airflow_occ_provider." not in program


@pytest.mark.parametrize(
    ("scheme", "written"), [("s3a", "u/1.jsonl"), ("abfss", "u/1.jsonl"), ("hdfs", "u/.1.jsonl.part")]
)
def test_a_reader_never_sees_a_half_written_file(scheme, written, monkeypatch):
    """An object appears as a whole; a file of HDFS is renamed when it is whole."""
    jvm, renamed = MagicMock(), []
    jvm.org.apache.hadoop.fs.Path = lambda url: MagicMock(url=url)
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance.return_value
    files.getUri().getScheme.return_value = scheme
    folder = HadoopFolder(jvm, MagicMock(), "u")
    monkeypatch.setattr(folder, "_rename", lambda *both: renamed.append(tuple(one.url for one in both)))
    folder.write("1.jsonl", b"x")
    folder.write("1.jsonl", b"xy")
    assert [call.args[0].url for call in files.create.call_args_list] == [written] * 2
    assert [call.args for call in files.create().write.call_args_list] == [(b"x",), (b"xy",)]
    assert renamed == [("u/.1.jsonl.part", "u/1.jsonl")] * (2 if scheme == "hdfs" else 0)
    assert jvm.org.apache.hadoop.fs.FileSystem.newInstance.call_count == 1

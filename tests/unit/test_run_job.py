from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_occ_provider.attempts.log.facts import read_fact

RUN = (
    "import sys; from airflow_occ_provider.in_driver import run_job as r; r.run(sys.argv[1], ['x', 'y'])"
)


def run(folder, code):
    """Run a job as the runner does; its exit code, its output, and what was reported."""
    job = folder / "job.py"
    job.write_text(code)
    command = [sys.executable, "-c", RUN, str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    facts = [fact for line in done.stderr.splitlines() if (fact := read_fact(line))]
    return done, facts


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
    ],
)
def test_the_end_is_reported_with_the_programs_exit_code(tmp_path, code, exit_code):
    done, facts = run(tmp_path, code)
    assert done.returncode == exit_code
    assert facts == [{"fact": "end", "exit_code": exit_code}]


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

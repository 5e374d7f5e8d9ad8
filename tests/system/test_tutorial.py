"""The tutorial as it stands, from a wheel in environments of its own, by nothing but the page."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest

from airflow_occ_provider.embedded.bundle import trust_store
from airflow_occ_provider.embedded.ports import free_ports

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"[Ss]ave it as `([^`]+)`:\s*$")
# What would lead out of the new user's account.
PRIVATE = re.compile(r"^(AIRFLOW|PYSPARK|SPARK|JAVA|HADOOP|VIRTUAL_ENV|PYTHON|HUDI|PYTEST)")
END = "::end of block"


def blocks():
    """Yield each block of the page: its language, its text, and the prose before it."""
    text, position = PAGE.read_text(), 0
    for match in BLOCK.finditer(text):
        yield match[1], match[2], text[position : match.start()]
        position = match.end()


def script():
    """Return the page as one script: files are written where the page says that they are saved.

    With job control, as at a prompt: without it ``kill %1`` ends a command, and not what that started.
    """
    lines = ["set -meuo pipefail"]
    for language, text, prose in blocks():
        if language == "python":
            path = FILE.search(prose.rstrip())[1]
            lines += [
                f"mkdir -p $(dirname {path})",
                f"cat > {path} <<'END OF FILE'",
                f"{text}END OF FILE",
            ]
        elif language == "bash":
            lines += [text, f"echo '{END}'"]
    return "\n".join(lines)


def shape(line):
    """Return a line without what differs from run to run: numbers and the width of columns."""
    return " ".join(re.sub(r"\d+", "0", line).split())


def processes_of(home):
    """Return the processes of an account; the title of some is written over their environment."""
    return [
        process
        for process in psutil.process_iter(["environ", "cwd"])
        if (process.info["environ"] or {}).get("HOME") == str(home)
        or Path(process.info["cwd"] or "/").is_relative_to(home)
    ]


@pytest.fixture
def account(tmp_path):
    """The environment of a new user on a machine where other Airflows may run, and that may be slow."""
    ports = free_ports(3)
    home = tmp_path / "home"
    (home / "hudi-tutorial").mkdir(parents=True)
    trusted = trust_store(tmp_path)
    variables = {name: value for name, value in os.environ.items() if not PRIVATE.match(name)}
    database = home / "hudi-tutorial" / "airflow" / "airflow.db"
    variables |= {
        "HOME": str(home),
        # What this machine has installed before, the page need not download again.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "PATH": os.pathsep.join(
            path for path in os.environ["PATH"].split(os.pathsep) if ".venv" not in Path(path).parts
        ),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": " ".join([*trusted, f"-Duser.home={home}"]),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(ports[0]),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{ports[0]}/execution/",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports[1]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports[2]),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database}?timeout=300",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "UV_SYSTEM_CERTS": "1",
        "COLUMNS": "200",
    }
    yield variables
    for process in processes_of(home):
        process.kill()


def test_the_commands_of_the_tutorial_lead_to_a_conflict_and_its_retry(account, tmp_path):
    log = tmp_path / "output"
    with log.open("w") as output:
        done = subprocess.run(
            ["bash", "-c", script()],
            cwd=ROOT,
            env=account,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=1500,
            check=False,
        )
    text = log.read_text()
    assert done.returncode == 0, text[-8000:]
    answers = text.split(f"{END}\n")
    shapes, commands = {shape(line) for line in text.splitlines()}, 0
    for language, block, _ in blocks():
        commands += language == "bash"
        # Which of two detections sees the conflict first is up to the machine.
        if language == "text" and "Early conflict: " not in text:
            assert {shape(line) for line in block.splitlines()} <= shapes
    assert len(answers) == commands + 1
    tasks = dict(re.findall(r"^trips +(\w+) +(\w+)", text, re.MULTILINE))
    assert tasks == {"create": "success", "slow": "success", "quick": "success"}, text[-8000:]
    _, alive = psutil.wait_procs(processes_of(account["HOME"]), 120)
    assert not alive
    folder = Path(account["HOME"]) / "hudi-tutorial"
    tries = folder.glob("airflow/logs/dag_id=trips/run_id=first/task_id=*/attempt=*.log")
    assert {path.parent.name.removeprefix("task_id=") + path.name[7:-4] for path in tries} >= {
        *("create=1", "slow=1", "slow=2", "quick=1"),
    }

"""Record answers of a real YARN: ``python -m tests.golden.record_yarn``."""

from __future__ import annotations

import shutil
import tempfile
import time
import urllib.request
from pathlib import Path

from airflow_occ_provider.attempts.submitter import Ended
from tests.services.yarn import EmbeddedYarn
from tests.support.yarn_script import script_driver

FOLDER = Path(__file__).parent / "yarn"
SCRIPT = """
for number in $(seq 200); do echo "error $number" >&2; done
while [ ! -e {latch} ]; do sleep 0.1; done
kill -9 $PPID
"""
_SCRIPTS_OF_THIS_MACHINE = {"yarn.nodemanager.log-container-debug-info.enabled": "false"}


def get(address):
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
        return answer.read()


def record(folder: Path) -> None:
    """Run a script that is killed, and keep the answers about it."""
    latch = folder / "latch"
    with EmbeddedYarn(folder / "yarn", _SCRIPTS_OF_THIS_MACHINE) as yarn:
        driver = script_driver(yarn, folder / "attempt", SCRIPT.format(latch=latch))
        handle = driver.submit(lambda _: None)
        manager = driver.place._manager
        running = manager.application(handle.facts["application"])
        address = f"{yarn.resource_manager}/ws/v1/cluster/apps/{running.id}"
        log = f"{running.container.manager}/ws/v1/node/containers/{running.container.id}/logs/stderr"
        while "error 200" not in get(f"{log}?size=-8192").decode():
            time.sleep(0.1)
        answers = {"running.json": get(address), "attempts.json": get(f"{address}/appattempts")}
        latch.touch()
        while not isinstance(driver.place.state(handle), Ended):
            time.sleep(0.1)
    for name, answer in answers.items():
        (FOLDER / name).write_bytes(answer.replace(str(folder).encode(), b"/yarn"))


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_yarn_"))
    try:
        record(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

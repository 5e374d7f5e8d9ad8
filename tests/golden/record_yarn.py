"""Record answers and logs of a real YARN: ``python -m tests.golden.record_yarn``."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.request
from pathlib import Path

from airflow_occ_provider.attempts.submitter import Ended
from airflow_occ_provider.embedded.yarn import EmbeddedYarn
from tests.yarn_script import script_cluster

FOLDER = Path(__file__).parent / "yarn"
LINES = 2000
SCRIPT = """
for number in $(seq {lines}); do echo "line $number"; done
echo "said to stderr" >&2
while [ ! -e {latch} ]; do sleep 0.1; done
exit 78
"""
_COMPRESSION = "yarn.nodemanager.log-aggregation.compression-type"
_SCRIPTS_OF_THIS_MACHINE = "yarn.nodemanager.log-container-debug-info.enabled"


def get(address):
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
        return answer.read()


def record(folder: Path, compression: str) -> None:
    """Run the script once and keep its aggregated logs; of the first run also the answers."""
    latch, script = folder / "latch", folder / "script.sh"
    folder.mkdir(parents=True)
    script.write_text(SCRIPT.format(latch=latch, lines=LINES))
    settings = {_COMPRESSION: compression, _SCRIPTS_OF_THIS_MACHINE: "false"}
    with EmbeddedYarn(folder / "yarn", settings) as yarn:
        one = script_cluster(yarn, script)
        handle = one.submit("key", lambda _: None)
        while "said to stderr\n" not in one.read(handle, 0.1):
            pass
        running = one.manager.application(handle.facts["application"])
        address = f"{yarn.resource_manager}/ws/v1/cluster/apps/{running.id}"
        log = f"{running.container.manager}/ws/v1/node/containers/{running.container.id}/logs/stderr"
        answers = {"running.json": get(address), "log.txt": get(f"{log}?size=-100")}
        latch.touch()
        while not isinstance(one.poll(handle), Ended):
            time.sleep(0.1)
        while one.read(handle, 0.1) is not None:
            pass
        while json.loads(get(address))["app"]["logAggregationStatus"] != "SUCCEEDED":
            time.sleep(0.1)
        answers["failed.json"] = get(address)
        (kept,) = yarn.aggregated_logs.glob(f"*/*/*/{running.id}/localhost_*")
        shutil.copy(kept, FOLDER / f"{compression}.tfile")
        (FOLDER / f"{compression}.container").write_text(running.container.id)
    for name, answer in answers.items() if compression == "none" else ():
        (FOLDER / name).write_bytes(answer.replace(str(folder).encode(), b"/yarn"))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_yarn_"))
    try:
        for compression in ("none", "gz"):
            record(folder / compression, compression)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

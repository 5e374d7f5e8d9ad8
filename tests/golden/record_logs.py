"""Record drivers' logs from real Hudi into ``logs/``: ``python -m tests.golden.record_logs``.

Paths of this machine are replaced, and INFO of loggers that say nothing about the write is left out;
nothing else is changed. The scenarios are those of ``log_scenarios``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from airflow_occ_provider.embedded.bundle import HUDI_VERSION, cache_folder
from airflow_occ_provider.embedded.stack import EmbeddedStack
from tests.golden import HUDI_RELEASES
from tests.golden.log_scenarios import log_scenarios

LOGS = Path(__file__).parent / "logs"
_INFO_OF = re.compile(r" (?:INFO|DEBUG) ([\w$]+): ")
_KEPT = re.compile(
    r"\w*ActiveTimeline\w*|Transaction\w+|\w*ConflictResolutionStrategy|BaseHoodieWriteClient|LockManager"
    r"|BaseZookeeperBased\w+|HoodieHeartbeatClient|HeartbeatUtils|HoodieSparkSqlWriterInternal"
    r"|DFSPropertiesConfiguration|SparkContext|ShutdownHookManager|TaskSchedulerImpl"
)


def clean(lines: list[str], folder: Path) -> str:
    """Remove this machine's paths, and INFO of other loggers, from a log."""
    loggers = ((line, _INFO_OF.search(line)) for line in lines)
    text = "".join(line for line, info in loggers if not info or _KEPT.fullmatch(info[1]))
    places = {
        str(folder): "/lake",
        str(Path(__file__).parents[2]): "/opt/project",
        sys.prefix: "/opt/venv",
        sys.base_prefix: "/opt/python",
        str(cache_folder()): "/opt/jars",
        str(Path.home()): "/home/user",
    }
    for place in sorted(places, key=len, reverse=True):  # one may lie in another
        text = text.replace(place, places[place])
    return re.sub(r"/tmp/(?:spark|airflow_occ)[-_\w]+", "/tmp/scratch", text)


def record(hudi_version: str, wanted: list[str]) -> None:
    """Run a release's scenarios, all by default, and keep the logs of their attempts.

    :param hudi_version: the release; the logs of others than the default one get a folder of its name.
    :param wanted: names of scenarios.
    """
    default = hudi_version == HUDI_VERSION
    logs = LOGS if default else LOGS / hudi_version
    logs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_golden_"))
    try:
        with EmbeddedStack(folder / "stack", hudi_version) as stack:
            for name, scenario in log_scenarios(everything=default).items():
                if name in wanted or not wanted:
                    writer = scenario(stack, folder / name)
                    print(f"{name}: exit {writer.exit_code}", flush=True)
                    file = logs / f"{name}.exit{writer.exit_code}.log"
                    file.write_text(clean(writer.lines, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hudi", choices=HUDI_RELEASES, help="one release; all by default")
    parser.add_argument("wanted", nargs="*", help="names of scenarios; all by default")
    arguments = parser.parse_args()
    for version in [arguments.hudi] if arguments.hudi else HUDI_RELEASES:
        record(version, arguments.wanted)


if __name__ == "__main__":
    main()

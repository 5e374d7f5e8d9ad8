"""Record drivers' logs from YARN's cluster mode: ``python -m tests.golden.record_yarn_logs``.

Each driver's log is kept in three forms below ``logs/yarn``: as its task logs it (``.log``), as
``yarn logs`` prints it with those of the executors (``.txt``), and as a node aggregates it
(``.tfile``). They are cleaned as those in client mode. A cleaned log gets back into an aggregated
file by a container that prints it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.submitters.yarn.aggregated_logs import contents
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from tests.golden.in_yarn import YarnStack
from tests.golden.log_scenarios import yarn_scenarios
from tests.golden.record_logs import LOGS, clean
from tests.yarn_script import script_cluster

YARN_LOGS = LOGS / "yarn"
_AGGREGATION_S = 60
_LAUNCH = re.compile(r"={79}\nDefault YARN executor launch context:\n.*?\n={79}\n", re.DOTALL)
_STREAMS = ("stdout", "stderr")


class _Recorder:
    """Keeps the logs of one driver after another.

    :param folder: of the stack and of the scenarios, whose paths are removed.
    """

    def __init__(self, stack: YarnStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder

    def keep(self, file: Path, lines: list[str], handle: Handle) -> None:
        """Write the forms of one driver's log beside a file."""
        application = handle.facts["application"]
        file.with_name(f"{file.name}.log").write_text(self._clean(lines))
        _, container = self._aggregated(application)
        text = self._stack.yarn_logs(application)
        file.with_name(f"{file.name}.txt").write_text(self._clean(text.splitlines(keepends=True)))
        said = {name: self._clean(self._lines(application, container, name)) for name in _STREAMS}
        file.with_name(f"{file.name}.tfile").write_bytes(self._printed(said).read_bytes())

    def _clean(self, lines: list[str]) -> str:
        """Clean a log, also of how Spark starts an executor, which is long."""
        return _LAUNCH.sub("", clean(lines, self._folder))

    def _aggregated(self, application: str) -> tuple[Path, str]:
        """Return the file with an application's logs, and the container of its driver."""
        manager = script_cluster(self._stack.yarn, "").manager
        deadline = time.monotonic() + _AGGREGATION_S
        while (found := manager.application(application)) and found.logs != "SUCCEEDED":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert found
        assert found.container
        (file,) = self._stack.yarn.aggregated_logs.glob(f"*/*/*/{application}/localhost_*")
        return file, found.container.id

    def _lines(self, application: str, container: str, name: str) -> list[str]:
        with self._aggregated(application)[0].open("rb") as file:
            whole = b"".join(contents(file, container, name))
        return whole.decode(errors="replace").splitlines(keepends=True)

    def _printed(self, said: dict[str, str]) -> Path:
        """Return the aggregated log of a container that prints some text."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        for name, text in said.items():
            (folder / name).write_text(text)
        place = shlex.quote(str(folder))
        (script := folder / "print.sh").write_text(f"cat {place}/stdout; cat {place}/stderr >&2\n")
        one = script_cluster(self._stack.yarn, script)
        handle = one.submit("print", lambda _: None)
        _follow(one, handle, lambda _: None)
        return self._aggregated(handle.facts["application"])[0]


def _follow(one: YarnCluster, handle: Handle, listen: Callable[[str], object]) -> None:
    while (lines := one.read(handle, 0.1)) is not None:
        for line in lines:
            listen(line)


def record(wanted: list[str]) -> None:
    """Run the scenarios, all by default, and keep the logs of their attempts.

    :param wanted: names of scenarios.
    """
    YARN_LOGS.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_golden_"))
    try:
        with YarnStack(folder / "stack") as stack:
            recorder = _Recorder(stack, folder)
            for name, scenario in yarn_scenarios().items():
                if name in wanted or not wanted:
                    writer = scenario(stack, folder / name)
                    print(f"{name}: exit {writer.exit_code}", flush=True)
                    assert writer.handle
                    file = YARN_LOGS / f"{name}.exit{writer.exit_code}"
                    recorder.keep(file, writer.lines, writer.handle)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="*", help="names of scenarios; all by default")
    record(parser.parse_args().wanted)


if __name__ == "__main__":
    main()

"""Kills one of Airflow's components, and starts another one."""

from __future__ import annotations

import sys
from contextlib import suppress

import psutil

from airflow_occ_provider.embedded.process import Server

# It outlives the component, so that its guard ends what a killed component leaves.
_SHELL = ("bash", "-c", '"$@"; exec sleep infinity', "bash")
_ENDS_S = 300
COMPONENTS = """
"$0" -m airflow db migrate || exit
for component in api-server scheduler dag-processor triggerer; do
    "$0" -m airflow $component &
done
wait -n
"""
"""Runs a Python's Airflow: ``airflow standalone`` has one executor and one auth manager."""


class Component:
    """One of the components of an ``EmbeddedAirflow``, such as ``triggerer``.

    :param folder: of the logs of those that are started.
    :param settings: environment variables of those that are started.
    """

    def __init__(self, airflow, name, folder, settings=None):
        self._airflow, self._name, self._folder = airflow, name, folder
        self._settings = settings or {}
        self._environment = {}
        self._started = []

    def kill(self, *, alone=False):
        """Kill it with all its processes; ``alone`` leaves the others running."""
        first = self._running()
        self._environment = {**first.environ(), **self._settings}
        for one in (first, *([] if alone else first.children(recursive=True))):
            with suppress(psutil.Error):
                one.kill()

    def terminate(self):
        """Ask it to end, as a deployment does, and wait until it has."""
        first = self._running()
        self._environment = {**first.environ(), **self._settings}
        first.terminate()
        first.wait(_ENDS_S)

    def start(self):
        """Start another one, which runs until ``stop``."""
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{self._name}{len(self._started)}.log"
        command = [*_SHELL, sys.executable, "-m", "airflow", self._name]
        self._started.append(Server(self._name, command, self._environment, log))

    def stop(self):
        """Stop all that were started."""
        for one in self._started:
            one.stop()

    def _running(self):
        servers = (self._airflow._server, *self._started)
        processes = [one for server in servers for one in _below(server._guard.pid)]
        found = [one for one in processes if self._is_one(one)]
        children = {child for one in found for child in one.children()}
        (first,) = set(found) - children
        return first

    def _is_one(self, process):
        with suppress(psutil.Error):
            command = process.cmdline()
            return command[-1:] == [self._name] and "python" in command[0]


def _below(guard):
    return psutil.Process(guard).children(recursive=True)

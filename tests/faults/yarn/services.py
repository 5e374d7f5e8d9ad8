"""The services that all runs share: killed or frozen, and mended after an outage."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from tests.support.airflow_component import Component

SETTINGS = {"AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8"}


class Services:
    """YARN's servers and Airflow's components; one of them is out at a time.

    :param folder: of the logs of components that are started.
    """

    def __init__(self, airflow, yarn, folder):
        self._yarn = yarn
        self._triggerer = Component(airflow, "triggerer", folder, SETTINGS)
        self._scheduler = Component(airflow, "scheduler", folder)
        self._one = threading.Lock()
        self.lost = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._triggerer.stop()
        self._scheduler.stop()

    @contextlib.contextmanager
    def without(self, victim, outage_s):
        """Kill a service; mend it some seconds after the end of the block."""
        kill, mend = {
            "node": (lambda: self._signal_node(signal.SIGKILL), self._yarn.restart_node_manager),
            "frozen_node": (
                lambda: self._signal_node(signal.SIGSTOP),
                lambda: self._signal_node(signal.SIGCONT),
            ),
            "manager": (self._kill_manager, self._yarn.restart_resource_manager),
            "triggerer": (self._triggerer.kill, self._triggerer.start),
            "scheduler": (lambda: self._scheduler.kill(alone=True), self._scheduler.start),
            "host": (self._scheduler.kill, self._scheduler.start),
        }[victim]
        with self._one:
            self.lost.append(victim)
            kill()
            mended_s = time.monotonic() + outage_s
            try:
                yield
            finally:
                time.sleep(max(0, mended_s - time.monotonic()))
                mend()

    def _signal_node(self, number):
        os.kill(self._yarn.node_manager_pid, number)

    def _kill_manager(self):
        os.kill(self._yarn.resource_manager_pid, signal.SIGKILL)

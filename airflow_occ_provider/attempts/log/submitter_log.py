"""Pure: where the driver's log is, by the log of ``spark-submit`` alone."""

from __future__ import annotations

import re

_POD = re.compile(r"\bpod name: (?P<pod>\S+)")
_NAMESPACE = re.compile(r"^\s*namespace: (?P<namespace>\S+)$")
_APPLICATION = re.compile(r"\b(application_\d+_\d+)\b")
_OF_YARN = re.compile(
    r"\bClient: (?:Submitting application|Application report)|YarnClientImpl: Submitted"
)
_STANDALONE = re.compile(r"\b(?:Driver successfully submitted as|submission) (driver-\d+-\d+)")
_OF_DRIVER = re.compile(
    r"airflow_occ_provider: |\b(?:SparkContext|DAGScheduler): |ActiveTimeline"
    r"|Traceback \(most recent call last\)"
)
_TRACEBACK_ELSEWHERE = re.compile(r"User application exited with(?: status)? (?P<status>\d+)")


class SubmitterLog:
    """Collects what a log says of the place of the driver's log.

    :ivar is_drivers_own: whether the driver wrote the log.
    """

    def __init__(self) -> None:
        self.is_drivers_own = False
        self._pod = self._namespace = self._application = self._driver = ""
        self._is_of_yarn = False
        self._status = ""

    def feed(self, line: str) -> None:
        """Take the next line of the log."""
        self.is_drivers_own |= _OF_DRIVER.search(line) is not None
        if pod := _POD.search(line):
            self._pod = pod["pod"]
        if namespace := _NAMESPACE.match(line):
            self._namespace = namespace["namespace"]
        if application := _APPLICATION.search(line):
            self._application = application[1]
        if driver := _STANDALONE.search(line):
            self._driver = driver[1]
        if status := _TRACEBACK_ELSEWHERE.search(line):
            self._status = status["status"]
        self._is_of_yarn |= _OF_YARN.search(line) is not None

    @property
    def place(self) -> str | None:
        """The place of what this log lacks, in a sentence; ``None`` if it lacks nothing."""
        application = self._application or "ID"
        if self._status and self.is_drivers_own:
            return (
                f"The job ended with status {self._status}; its traceback is in the stdout of the "
                f"driver's container: yarn logs -applicationId {application} -log_files stdout"
            )
        if self.is_drivers_own:
            return None
        elsewhere = "This is the log of spark-submit, without a line of the driver."
        if self._pod:
            namespace = f" -n {self._namespace}" if self._namespace else ""
            return f"{elsewhere} Read that of its pod: kubectl logs{namespace} {self._pod}"
        if self._is_of_yarn:
            return (
                f"{elsewhere} Read the stdout and stderr of its container: "
                f"yarn logs -applicationId {application} > FILE"
            )
        if self._driver:
            return f"{elsewhere} Read the stdout and stderr of {self._driver} on its worker."
        return None

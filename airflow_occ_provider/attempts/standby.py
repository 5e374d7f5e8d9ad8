"""A driver that is started before the lease of its attempt is granted.

A grant starts the job, so the driver may be there before it: see ``driver/contract.py``. It costs a
worker slot and memory, so only the next task in the queue has one, and only by choice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from airflow_occ_provider.attempts.driver import Driver, DriverRun
from airflow_occ_provider.attempts.submission import SparkJob, private_payload
from airflow_occ_provider.driver.contract import STANDBY
from airflow_occ_provider.hudi.writer.options import SPARK_SETTINGS
from airflow_occ_provider.in_driver.standby import WarmUp

_LOOK_S = 0.3


@dataclass
class Standby:
    """A driver of this host on standby; none is started before it is looked at.

    As a block it ends one that was not granted; one that was, its attempt ends.

    :param job: that it is to run.
    :param options: of the attempt, as far as they are known.
    :param limit_s: after which the driver leaves by itself.
    :param on_over: called with the seconds for which the driver has stood by.
    """

    spark: DriverRun
    job: SparkJob
    options: Mapping[str, str]
    limit_s: float
    on_over: Callable[[float], None]
    log: Any
    _driver: Driver | None = field(default=None, init=False)
    _begun_s: float = field(default=0.0, init=False)
    _is_offered: bool = field(default=False, init=False)
    _folder: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._folder:
            if self._driver and self._driver.handle is None:
                self._driver.submitter.give_up()
                if not self._is_offered:
                    self.on_over(self._stood_by_s)

    def look_until(self, changed: threading.Event, longest_s: float) -> None:
        """Start the driver once, and log what it prints until an event.

        :param longest_s: seconds, if there is none.
        :raises NotSubmittedError: if it cannot be started, or the task was asked to stop.
        """
        driver = self._driver or self._started()
        until_s = time.monotonic() + longest_s
        while not changed.is_set() and time.monotonic() < until_s:
            if not driver.submitter.stand_by(driver.echo):
                changed.wait(_LOOK_S)

    def offered(self, job: SparkJob, options: Mapping[str, str]) -> Driver | None:
        """Return the driver, to be submitted; ``None`` if none was started.

        :param job: with what the lease says of it.
        :param options: of the attempt.
        :raises NotSubmittedError: if it has ended, or the task was asked to stop.
        """
        if self._driver:
            self._driver.submitter.offer(private_payload(job, options), job.lease_ttl_s)
            self._is_offered = True
            self.on_over(self._stood_by_s)
            self.log.info("The lease is held; the driver stood by for %.0f s.", self._stood_by_s)
        return self._driver

    @property
    def _stood_by_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _started(self) -> Driver:
        submission = self._folder.enter_context(self.spark.prepared(self.job, self.options))
        submission.files.write(STANDBY, WarmUp(self.limit_s, SPARK_SETTINGS).to_bytes())
        self.log.info("Next in the queue: the driver is started, and stands by until the lease is held.")
        self._begun_s = time.monotonic()
        self._driver = self.spark.driver(submission)
        return self._driver

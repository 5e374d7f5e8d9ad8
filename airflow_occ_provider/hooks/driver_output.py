"""What a task shows of its driver: its output in a folded group, and a link."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

from airflow_occ_provider.attempts.submitter import URL_FACT, Handle

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

# Airflow's UI folds what a log has between these.
_BEGIN = "::group::The driver's output"
_END = "::endgroup::"
_URL = "driver_url"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class FoldedOutput:
    """A driver's output in one group of the task's log, which Airflow's UI folds.

    :param log: logs one line.
    """

    log: Callable[[str], object]
    _is_open: bool = field(default=False, init=False)

    def add(self, line: str) -> None:
        """Log a line; the first one opens the group."""
        if not self._is_open:
            self._is_open = True
            self.log(_BEGIN)
        self.log(line.strip())

    def close(self) -> None:
        """Close the group: what follows is visible without a click."""
        if self._is_open:
            self._is_open = False
            self.log(_END)


class HudiDriverLink(BaseOperatorLink):
    """The link to the page of a task's driver, where its place has one."""

    name = "Driver"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the URL of the page; empty if the driver has none."""
        return str(vars(operator).get(_URL, ""))


def show_driver(context: Context, handle: Handle) -> None:
    """Publish the link to a driver; Airflow pushes links at a task's end."""
    url = handle.facts.get(URL_FACT)
    if not url:
        return
    try:
        setattr(context["task"], _URL, str(url))
        context["ti"].xcom_push(HudiDriverLink().xcom_key, str(url))
    except Exception as error:  # noqa: BLE001 - what the UI shows must not fail the job
        _log.debug("The UI does not show the driver yet: %s", error)

"""Pure: how long a task waits until its driver's job begins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class StartLimit:
    """The longest wait for the begin of a driver's job.

    :param on_worker: while ``spark-submit`` runs on the worker, and holds the task's slot.
    :param in_cluster: while the driver waits in its cluster, which may be full for hours.
    """

    on_worker: timedelta = timedelta(minutes=30)
    in_cluster: timedelta = timedelta(hours=12)

    @classmethod
    def of(cls, timeout: timedelta | None) -> StartLimit:
        """Return the limit of a task.

        :param timeout: its ``start_timeout``; ``None`` for the defaults.
        """
        return cls() if timeout is None else cls(timeout, timeout)


NO_LIMIT = StartLimit(timedelta.max, timedelta.max)


def late_start(waited_s: float, limit: timedelta) -> str:
    """Return why a driver is ended whose job has not begun; empty if it is not late.

    Such a driver has committed nothing.

    :param waited_s: seconds since the driver was submitted.
    """
    if waited_s < limit.total_seconds():
        return ""
    return (
        f"the job has not begun within {limit}, the start_timeout: look in the log whether spark-submit "
        "waits for Ivy's repositories or for its cluster, and whether the cluster has resources"
    )

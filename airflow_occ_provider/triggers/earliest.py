"""When a trigger may fire."""

from __future__ import annotations

import asyncio
import time
from functools import cache

from airflow.sdk import conf

_TOLD_S = 2.0


@cache
def earliest_s() -> float:
    """Return for how many seconds after its start a trigger does not fire.

    Airflow's scheduler (3.3.2) fails a task that is queued again before it was told that the first
    process ended. The supervisor of that process may notice its end only at its next heartbeat.
    """
    return conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0) + _TOLD_S


async def until_earliest(begun_s: float) -> None:
    """Wait until a trigger may fire.

    :param begun_s: ``time.monotonic()`` at its start.
    """
    await asyncio.sleep(begun_s + earliest_s() - time.monotonic())

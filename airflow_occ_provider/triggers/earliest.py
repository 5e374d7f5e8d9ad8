"""When a trigger may fire."""

from __future__ import annotations

import asyncio
import time

EARLIEST_S = 3.0
"""Seconds after its start in which a trigger tells nothing.

Airflow's scheduler (3.3.2) fails a task that is queued again before it has taken note that the first
process ended.
"""


async def until_earliest(begun_s: float) -> None:
    """Wait until a trigger may fire.

    :param begun_s: ``time.monotonic()`` at its start.
    """
    await asyncio.sleep(begun_s + EARLIEST_S - time.monotonic())

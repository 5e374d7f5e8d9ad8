"""Drivers that follow the contract of their folders, without Spark, in a process of their own."""

from __future__ import annotations

import heapq
import json
import os
import random
import time
from multiprocessing import Event, Process
from multiprocessing.synchronize import Event as EventType
from typing import Self

from airflow_occ_provider.driver.contract import (
    FACTS,
    GRANT,
    HELLO_PREFIX,
    LIFE,
    TICK_S,
    Hello,
    answer_from_bytes,
)
from tests.bench.remote_load import RemoteLoad

_PATIENCE_S = 600


class Ticking:
    """Granted drivers during a ``with`` block.

    Each ticks as a real one does, and reports another fact as often.

    :param load: whose drivers they are.
    :param seed: of their begins.
    """

    def __init__(self, load: RemoteLoad, seed: int = 7) -> None:
        self._load, self._all_tick = load, Event()
        self._process = Process(target=_tick, args=(load, seed, self._all_tick), daemon=True)

    def __enter__(self) -> Self:
        for number, (_, instant) in enumerate(self._load.writes()):
            folder, grant = self._load.folder(number), self._load.grant(number)
            folder.write(HELLO_PREFIX + grant.nonce, Hello(grant.nonce).to_bytes())
            folder.write(GRANT, grant.to_bytes())
            folder.write(FACTS, _lines(_first(instant)))
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def wait(self) -> None:
        """Wait until each driver has reported something of its own, by a client that is open then."""
        assert self._all_tick.wait(_PATIENCE_S), "not all drivers tick"

    def answered(self) -> int:
        """Return how many drivers have an answer to one of their last two ticks."""
        return sum(self._is_answered(number) for number in range(self._load.drivers))

    def _is_answered(self, number: int) -> bool:
        folder = self._load.folder(number)
        facts = map(json.loads, (folder.read(FACTS) or b"").splitlines())
        newest = max(fact["number"] for fact in facts if fact["fact"] == "tick")
        return (answer_from_bytes(folder.read(LIFE) or b"") or 0) >= newest - 1


def _first(instant: str) -> list[dict[str, object]]:
    message = f"Creating a new instant [==>{instant}__commit__REQUESTED]"
    hudi = {"fact": "hudi", "logger": "ActiveTimelineV2", "message": message, "thread": "main"}
    granted = {"fact": "granted"}
    return [granted, {"fact": "tick", "number": 1}, {"fact": "protected", "reports_end": True}, hudi]


def _lines(facts: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(fact).encode() + b"\n" for fact in facts)


def _tick(load: RemoteLoad, seed: int, all_tick: EventType) -> None:
    os.environ.update(load.environment())
    folders = [load.folder(number) for number in range(load.drivers)]
    facts = [_first(instant) for _, instant in load.writes()]
    rng, now_s = random.Random(seed), time.monotonic()
    due = [(now_s + rng.uniform(0, TICK_S / 2), number, 2) for number in range(load.drivers)]
    heapq.heapify(due)
    while True:
        due_s, number, step = due[0]
        time.sleep(max(0.0, due_s - time.monotonic()))
        hudi = {"fact": "hudi", "logger": "TaskSetManager", "message": f"{step}", "thread": "main"}
        facts[number].append(hudi if step % 2 else {"fact": "tick", "number": 1 + step // 2})
        folders[number].write(FACTS, _lines(facts[number]))
        # A driver that was late does not catch up: two hundred of one process would do so in step.
        heapq.heapreplace(due, (time.monotonic() + TICK_S / 2, number, step + 1))
        if due[0][2] > 2:
            all_tick.set()

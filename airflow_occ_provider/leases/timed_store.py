"""A store that reports its slow and failed calls, to restart the terms of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.store import Store

_SLOW_S = 0.1


@dataclass(eq=False)
class TimedStore:
    """The calls of a ``Store``, of which the slow and failed ones are reported.

    :param on_delay: called with the seconds that a slow call took, infinite for a failed one.
    """

    store: Store
    clock: Callable[[], float]
    on_delay: Callable[[float], None]

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            started_s = self.clock()
            try:
                answer = getattr(self.store, call)(*arguments, **options)
            except LockUnreachableError:
                self.on_delay(float("inf"))
                raise
            took_s = self.clock() - started_s
            if took_s > _SLOW_S:
                self.on_delay(took_s)
            return answer

        return timed

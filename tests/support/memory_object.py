"""An object in memory whose answers may be lost."""

from __future__ import annotations

import threading

from airflow_occ_provider.leases.storage.objects import ObjectContent, SupersededError, UnansweredError

LOST, REFUSED = "lost", "refused"


class Memory:
    """A shared object whose answers can be lost.

    :param faults: of the next writes: ``LOST`` is carried out, ``REFUSED`` is not; neither is answered.
    """

    place = "memory://queue"

    def __init__(self):
        self.content, self.lock = ObjectContent(b"", ""), threading.Lock()
        self.reads = self.writes = 0
        self.faults, self.is_away = [], False

    def read(self, tag):
        self.reads += 1
        if self.is_away:
            raise UnansweredError("away")
        return None if tag and tag == self.content.tag else self.content

    def write(self, data, tag):
        fault = self.faults.pop(0) if self.faults else None
        with self.lock:
            self.writes += 1
            if self.is_away or fault == REFUSED:
                raise UnansweredError("away")
            if tag != self.content.tag:
                raise SupersededError
            self.content = ObjectContent(data, f"t{self.writes}")
        if fault == LOST:
            raise UnansweredError("the answer was lost")
        return self.content.tag

"""Drivers that follow the contract of an attempt's folder, in a thread and without Spark."""

from __future__ import annotations

import json
import threading
import time

from airflow_occ_provider.driver.contract import Gate, Grant, Hello, Leave, Moment, Run


class FolderDriverOfTest:
    """A driver that waits in a folder.

    :param ran: the payload, once it was granted.
    :param left: why it left instead.
    """

    def __init__(self, folder, nonce):
        self.folder, self.nonce = folder, nonce
        self.ran, self.left, self.facts = None, None, []
        self._thread = threading.Thread(target=self.wait, daemon=True)

    def start(self):
        self._thread.start()

    def join(self):
        self._thread.join(30)
        assert not self._thread.is_alive()

    def wait(self):
        (self.folder / f"hello.{self.nonce}").write_bytes(Hello(self.nonce).to_bytes())
        gate = Gate(self.nonce, Moment(0, 0), limit_s=60)
        while True:
            content = (self.folder / "grant").read_bytes() if (self.folder / "grant").exists() else b""
            step = gate.decide(Moment(0, 0), Grant.from_bytes(content), revoked=self.is_revoked)
            if isinstance(step, Leave):
                self.left = step.why
                hello = Hello(self.nonce, step.why)
                (self.folder / f"hello.{self.nonce}").write_bytes(hello.to_bytes())
                return
            if isinstance(step, Run):
                payload = (self.folder / "payload").read_bytes()
                assert step.refusal(payload) is None
                (self.folder / "payload").unlink()
                self.ran = payload
                return
            time.sleep(0.01)

    @property
    def is_revoked(self):
        return (self.folder / "revoked").exists()

    def revoke(self):
        if self.folder.exists():
            (self.folder / "revoked").touch()

    def report(self, *facts):
        self.facts += facts
        lines = "".join(f"{json.dumps(fact)}\n" for fact in self.facts)
        (self.folder / "part").write_text(lines)
        (self.folder / "part").replace(self.folder / "facts.jsonl")

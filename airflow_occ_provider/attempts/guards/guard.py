"""What may stop a running driver: one protocol, one loop."""

from __future__ import annotations

from typing import Protocol

from airflow_occ_provider.attempts.outcome import Stop


class Guard(Protocol):
    """Watches one danger of a running driver; neither call waits for anything."""

    def on_line(self, line: str) -> Stop | None:
        """Take a line of the driver's log; return why the driver must end, if it must."""

    def on_tick(self) -> Stop | None:
        """Look at the danger, a few times a second; return why the driver must end, if it must."""

"""The protocol of the guards that may stop a running driver."""

from __future__ import annotations

from typing import Protocol

from airflow_occ_provider.attempts.outcome import Stop


class Guard(Protocol):
    """Watches one danger of a running driver; neither call waits for anything."""

    def on_line(self, line: str) -> Stop | None:
        """Take a line of the driver's log; return the reason to stop it, if any."""

    def on_tick(self) -> Stop | None:
        """Check the danger; return the reason to stop the driver, if any.

        Called a few times a second.
        """

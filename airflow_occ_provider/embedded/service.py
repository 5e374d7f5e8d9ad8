"""The start and the end of an embedded service."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from airflow_occ_provider.embedded.ports import free_port, refuse_busy_port
from airflow_occ_provider.embedded.process import EmbeddedError, Server

PORT_TAKEN = "address already in use"
"""What a server says, in capitals or not, whose port was taken."""
_PORT_TRIES = 3
_CONNECT_TIMEOUT_S = 5.0


class EmbeddedService(ABC):
    """A server that runs during a ``with`` block.

    :param folder: folder of its files.
    :param port: its port; ``None`` for a free one.
    """

    _NAME: ClassVar[str]
    _LOG: ClassVar[str]
    _START_TIMEOUT_S: ClassVar[float] = 300.0

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or 0
        self._fixed = port is not None
        self._server: Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return when it answers.

        :raises EmbeddedError: if it does not answer; then nothing is left running.
        """
        for tries_left in reversed(range(1 if self._fixed else _PORT_TRIES)):
            try:
                self.launch()
                self.wait()
            except EmbeddedError as error:
                if not tries_left or PORT_TAKEN not in str(error).lower():
                    raise
            else:
                return

    def launch(self) -> None:
        """Start it without waiting for it.

        :raises EmbeddedError: if its port is in use.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._fixed:
            refuse_busy_port(self._NAME, self.port)
        else:
            self.port = free_port()
        self._server = Server(self._NAME, self._command(), self._variables(), self.folder / self._LOG)

    def wait(self) -> None:
        """Wait until it answers.

        :raises EmbeddedError: if it does not answer; then it is stopped.
        """
        if self._server is None:
            raise EmbeddedError(f"{self._NAME} was not started")
        try:
            self._server.wait_until(self._answers, self._START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it with all its processes; safe to repeat. Its files stay."""
        if self._server:
            self._server.stop()
            self._server = None

    def _variables(self) -> Mapping[str, str]:
        """Return the environment of the process."""
        return os.environ

    @abstractmethod
    def _command(self) -> list[str]:
        """Write the configuration for the current port and return the command."""

    def _answers(self) -> bool:
        """Return whether the server is ready; by default, whether it accepts a connection."""
        try:
            socket.create_connection(("127.0.0.1", self.port), _CONNECT_TIMEOUT_S).close()
        except OSError:
            return False
        return True

"""Livy's REST API for batches, in bounded calls that are repeated if lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_occ_provider.errors import SubmitterUnreachableError

_TIMEOUT_S = 60.0
_PAUSES_S = (1.0, 3.0)
_UNKNOWN = 404
_DONE = range(200, 300)
_REFUSED = range(400, 500)
_BUSY = (408, 429)
_ALL = 10_000


class Response(Protocol):
    """An answer of the server."""

    @property
    def status_code(self) -> int:
        """HTTP's status."""

    @property
    def text(self) -> str:
        """The body."""


class LivyConnection(Protocol):
    """What is used of Airflow's ``LivyHook``."""

    extra_options: dict[str, Any]
    extra_headers: dict[str, Any]

    def run_method(
        self,
        endpoint: str,
        method: str = "GET",
        data: Any | None = None,
        headers: dict[str, Any] | None = None,
    ) -> Any:
        """Make one request; an answer of any status is returned."""


class LivyRefusedError(ValueError):
    """Livy refused a request; the message is its answer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as Livy describes it.

    :param state: such as ``starting``, ``running``, ``success``, ``dead`` or ``killed``.
    :param application: its id at the cluster manager that Livy asks for its state, if any.
    """

    id: int
    name: str
    state: str
    application: str

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Batch:
        """Read the description."""
        return cls(
            int(answer["id"]),
            str(answer.get("name") or ""),
            str(answer["state"]),
            str(answer.get("appId") or ""),
        )

    @property
    def is_over(self) -> bool:
        """Whether Livy has seen its end."""
        return self.state in ("success", "dead", "killed", "error")


@dataclass
class LivyApi:
    """The batches of one server.

    Only one thread makes a request at a time: the hook keeps the method of the request in itself. A
    signal handler may make one while it interrupts another.

    :param hook: Airflow's ``LivyHook``; requests without a time-out of its own are given one.
    """

    hook: LivyConnection
    timeout_s: float = _TIMEOUT_S
    sleep: Callable[[float], object] = time.sleep
    _one: Any = field(default_factory=threading.RLock, init=False, repr=False)

    def __post_init__(self) -> None:
        own = {"check_response": False, "timeout": self.timeout_s}
        self.hook.extra_options = {**own, **self.hook.extra_options}

    def batch(self, number: int) -> Batch | None:
        """Return a batch; ``None`` if Livy does not know it."""
        answer = self._ask("GET", f"/batches/{number}")
        return None if answer is None else Batch.of(answer)

    def batches(self) -> Iterator[Batch]:
        """Return all batches that Livy knows."""
        answer = self._ask("GET", f"/batches?from=0&size={_ALL}") or {}
        yield from map(Batch.of, answer.get("sessions", ()))

    def named(self, name: str) -> Batch | None:
        """Return the batch of a name, if Livy knows it."""
        return next((batch for batch in self.batches() if batch.name == name), None)

    def create(self, body: Mapping[str, Any]) -> Batch:
        """Create a batch under a name of its own; a lost answer creates no second one.

        :raises LivyRefusedError: if Livy refuses it; then it does not know it.
        :raises SubmitterUnreachableError: if Livy does not answer; then it may know it.
        """
        name = str(body["name"])
        try:
            answer = self._ask("POST", "/batches", json.dumps(body))
        except LivyRefusedError as refused:
            made = self.named(name)
            if made and str(refused).startswith("Duplicate session name"):
                return made
            if made:  # Livy keeps what it could not start
                self.delete(made.id)
            raise
        return Batch.of(answer or {})

    def delete(self, number: int) -> bool:
        """End a batch and have Livy forget it; whether this request did."""
        return self._ask("DELETE", f"/batches/{number}") is not None

    def log(self, number: int) -> list[str]:
        """Return the last lines of the log of ``spark-submit``, as many as Livy keeps."""
        answer = self._ask("GET", f"/batches/{number}/log?from=0&size={_ALL}") or {}
        lines = "\n".join(map(str, answer.get("log", ()))).splitlines()
        headings = ("stdout: ", "stderr: ", "YARN Diagnostics: ")
        return [line for line in lines if line and line not in headings]

    def _ask(self, method: str, endpoint: str, body: str | None = None) -> dict[str, Any] | None:
        for pause_s in (*_PAUSES_S, None):
            try:
                with self._one:
                    answer = self.hook.run_method(endpoint, method, body, self.hook.extra_headers)
                return _content(answer)
            except OSError as error:  # of requests, too
                if pause_s is None:
                    raise SubmitterUnreachableError(
                        f"Livy did not answer {method} {endpoint}: {error}",
                        remedy="check that the worker can reach Livy",
                    ) from error
            self.sleep(pause_s)
        raise AssertionError


def _content(answer: Response) -> dict[str, Any] | None:
    """Return the content of an answer; ``None`` if it is about something that does not exist.

    :raises LivyRefusedError: if it is a refusal.
    :raises OSError: if it is an error of the server, or of a proxy before it.
    """
    code, text = answer.status_code, answer.text
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    is_livys = isinstance(content, dict)  # a proxy's 404 says nothing about the batch
    if code == _UNKNOWN and is_livys:
        return None
    if code in _REFUSED and code not in (_UNKNOWN, *_BUSY):
        raise LivyRefusedError(str(content.get("msg", text)) if isinstance(content, dict) else text)
    if code not in _DONE or not isinstance(content, dict):
        raise ConnectionError(f"HTTP {code}: {text[:200]!r}")
    return content


def unreadable(what: str, refused: LivyRefusedError) -> SubmitterUnreachableError:
    """Return the error for something that Livy refuses to show."""
    return SubmitterUnreachableError(
        f"Livy refuses to show {what}: {refused}", remedy="check the Livy connection"
    )

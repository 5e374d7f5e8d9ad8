"""A signed-in client of Airflow without a browser, which takes the time of its requests."""

from __future__ import annotations

import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.pages.rig import wait_for

REFRESH_S = 10.0
_TIMEOUT_S = 60
_PAUSE_S = 0.2
_TAG = re.compile("<[^>]+>")


class Client:
    """A client of one API server."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token

    def get(self, path: str) -> tuple[float, str]:
        """Return the seconds that an answer took, and its text without tags."""
        headers = {"Authorization": f"Bearer {self._token}"}
        request = urllib.request.Request(self._url + path, headers=headers)  # noqa: S310
        began_s = time.perf_counter()
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            text = answer.read().decode()
        return time.perf_counter() - began_s, " ".join(_TAG.sub(" ", text).split())

    def answers(self) -> bool:
        """Return whether the server shows the page of all tables."""
        try:
            return bool(self.get("/hudi/"))
        except OSError:
            return False

    def wait_for(self, path: str, *words: str) -> str:
        """Wait until a page has words, and return its text."""

        def text() -> str:
            found = self.get(path)[1]
            return found if all(one in found for one in words) else ""

        return str(wait_for(f"{path}: {words}", text))

    def probe(self, seconds: float) -> list[float]:
        """Return the seconds of each request to Airflow's own API in a window."""
        end_s, took_s = time.monotonic() + seconds, list[float]()
        while time.monotonic() < end_s:
            took_s.append(self.get("/api/v2/dags")[0])
            time.sleep(_PAUSE_S)
        return took_s


@contextmanager
def viewers(client: Client, pages: Sequence[str]) -> Iterator[list[float]]:
    """Look at pages again and again during a ``with`` block, as ``page.js`` does.

    :param pages: each has a viewer of its own; they do not begin all at once.
    :return: the seconds of each look, so far.
    """
    ended, took_s = threading.Event(), list[float]()

    def look(page: str, first_s: float) -> None:
        pause_s = first_s
        while not ended.wait(pause_s):
            took_s.append(client.get(page)[0])
            pause_s = REFRESH_S

    first_s = [REFRESH_S * number / len(pages) for number in range(len(pages))]
    threads = [threading.Thread(target=look, args=one) for one in zip(pages, first_s, strict=True)]
    for one in threads:
        one.start()
    try:
        yield took_s
    finally:
        ended.set()
        for one in threads:
            one.join(_TIMEOUT_S)


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20)[18]


def slower(usual: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """Return how many times slower requests were: the median of windows compared with their neighbours.

    A machine may be slow for a minute; two windows that follow each other then are slow together.

    :param usual: the seconds of the requests of each window, in turn with those of ``other``.
    """
    ratios = [p95(slow) / p95(fast) for fast, slow in zip(usual, other, strict=True)]
    print("p95 of each pair of windows:", *(f"{one:.2f} x" for one in ratios), flush=True)
    return statistics.median(ratios)

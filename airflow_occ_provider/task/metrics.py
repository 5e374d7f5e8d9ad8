"""The metrics that this provider sends through Airflow's Stats.

Below Airflow's prefix all names begin with ``hudi.``; docs/reference/metrics.md lists them. Timings are
in milliseconds, as Airflow's are. No function here raises, and nothing is sent if metrics are disabled.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from airflow.sdk.observability import stats

from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome
from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.address import canonical_table

_log = logging.getLogger(__name__)
# Airflow's StatsD logger drops a metric whose name with InfluxDB tags has more than 250 characters, or
# an invalid character (Airflow 3.3.2, stat_name_default_handler).
_TAG_LENGTH = 60
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_./-]")
_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:(?P<user>[^/]*)@)?(?P<rest>.*)")
_CONTAINER_SCHEMES = ("abfs", "wasb")  # in these the part before the @ is a container, not a user


class Work(NamedTuple):
    """The task and table that a metric is about.

    :param dag_id: the task's DAG.
    :param task_id: the task; its mapped instances are counted together.
    :param table: base path of the table, in any spelling.
    """

    dag_id: str
    task_id: str
    table: str


def attempt(work: Work, outcome: Outcome, seconds: float) -> None:
    """Count a finished attempt.

    :param seconds: how long its driver ran.
    """
    meaning = MEANINGS[outcome]
    tags = {**work._asdict(), "outcome": outcome}
    _send(stats.incr, "hudi.attempts", 1, tags)
    if meaning.is_conflict:
        _send(stats.incr, "hudi.conflicts", 1, tags)
    if meaning.is_wasted:
        _send(stats.timing, "hudi.wasted", timedelta(seconds=max(seconds, 0.0)), tags)


def queue_wait(work: Work, seconds: float) -> None:
    """Send the time from a task's request until it continued with the lease."""
    _send(stats.timing, "hudi.queue_wait", timedelta(seconds=max(seconds, 0.0)), work._asdict())


def standby(work: Work, seconds: float) -> None:
    """Send for how long a driver stood by, before its lease or its end."""
    _send(stats.timing, "hudi.standby", timedelta(seconds=max(seconds, 0.0)), work._asdict())


def lease_age(work: Work, seconds: float) -> None:
    """Send how long a lease was held that has just been released."""
    _send(stats.timing, "hudi.lease_age", timedelta(seconds=max(seconds, 0.0)), work._asdict())


def own_heartbeat_margin(work: Work, seconds: float) -> None:
    """Send the seconds until a task's writer is dead for Hudi, negative afterwards.

    A gauge keeps its last value: send the whole tolerance once the driver has ended.
    """
    _send(stats.gauge, "hudi.own_heartbeat_margin", round(seconds, 3), work._asdict())


def writers(table: str, pending: Iterable[Writer], rule: HeartbeatRule) -> None:
    """Send the smallest heartbeat margin and the number of dead writes of a table.

    :param pending: all pending writes; without heartbeats the margin is the whole tolerance.
    """
    writes = tuple(pending)
    margins = [write.margin_ms for write in writes if write.fate.beating and write.margin_ms is not None]
    margin_ms = min(margins, default=rule.interval_ms * rule.tolerable_misses)
    _send(stats.gauge, "hudi.heartbeat_margin", margin_ms / 1000, {"table": table})
    _send(stats.gauge, "hudi.ghosts", sum(write.fate is Fate.DEAD for write in writes), {"table": table})


def _send(emit: Callable[..., None], name: str, value: object, tags: Mapping[str, str]) -> None:
    try:
        values = {key: _table(text) if key == "table" else text for key, text in tags.items()}
        emit(name, value, tags={key: _valid(text) for key, text in values.items()})
    except Exception as error:  # noqa: BLE001 - a metric must not fail a task
        _warn_once(f"{type(error).__name__}: {error}")


@lru_cache
def _warn_once(reason: str) -> None:
    _log.warning("Metrics are not sent: %s", reason)


def _table(table: str) -> str:
    """Return a table as a tag: its canonical path, with a scheme but without a user."""
    url = _SCHEME.fullmatch(canonical_table(table))
    if not url:
        return canonical_table(table)
    scheme = url["scheme"]
    user = (url["user"] or "").partition(":")[0]
    container = f"{user}_" if user and scheme in _CONTAINER_SCHEMES else ""
    return f"{scheme}/{container}{url['rest']}"


def _valid(text: str) -> str:
    """Return a valid, unique tag value; a long one keeps its end."""
    clean = _INVALID_CHARACTER.sub("_", text)
    if len(clean) <= _TAG_LENGTH:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{digest}..{clean[len(digest) + 2 - _TAG_LENGTH :]}"

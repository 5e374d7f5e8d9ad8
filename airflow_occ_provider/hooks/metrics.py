"""What people may watch on a dashboard: every name and tag that goes out through Airflow's own Stats.

Below Airflow's own prefix all names begin with ``hudi.``; docs/reference/metrics.md lists them. Timings
are sent in milliseconds, as Airflow's are. Nothing here raises, and nothing is sent where metrics are
off.
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

from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.outcome import Outcome
from airflow_occ_provider.storage.address import canonical_table

CONFLICTS = frozenset({Outcome.EARLY_CONFLICT, Outcome.COMMIT_CONFLICT, Outcome.CLUSTERING_CONFLICT})
"""The outcomes of an attempt that lost its files to another writer."""

WASTED = CONFLICTS | {Outcome.LOCK_TIMEOUT, Outcome.HEARTBEAT_EXPIRED, Outcome.ROLLED_BACK}
"""The outcomes of an attempt whose work was in vain because of others, and not of its own error."""

_log = logging.getLogger(__name__)
# Airflow's StatsD logger drops a metric whose name is longer than 250 with its InfluxDB tags, or has
# another character (Airflow 3.3.2, stat_name_default_handler).
_TAG_LENGTH = 60
_OTHER_CHARACTER = re.compile(r"[^A-Za-z0-9_./-]")
_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:(?P<user>[^/]*)@)?(?P<rest>.*)")
_CONTAINER_SCHEMES = ("abfs", "wasb")  # there the part before the @ is a container, and no user


class Work(NamedTuple):
    """Which task's work on which table a metric is about.

    :param dag_id: the task's DAG.
    :param task_id: the task; its mapped instances are counted together.
    :param table: base path of the table, however it is written.
    """

    dag_id: str
    task_id: str
    table: str


def attempt(work: Work, outcome: str, seconds: float) -> None:
    """Count an attempt that is over.

    :param outcome: what it came to, one of ``jobs.outcome.Outcome``.
    :param seconds: how long its driver ran.
    """
    tags = {**work._asdict(), "outcome": outcome}
    _send(stats.incr, "hudi.attempts", 1, tags)
    if outcome in CONFLICTS:
        _send(stats.incr, "hudi.conflicts", 1, tags)
    if outcome in WASTED:
        _send(stats.timing, "hudi.wasted", timedelta(seconds=max(seconds, 0.0)), tags)


def queue_wait(work: Work, seconds: float) -> None:
    """Tell how long a task stood in line, from its request until it went on with the lease."""
    _send(stats.timing, "hudi.queue_wait", timedelta(seconds=max(seconds, 0.0)), work._asdict())


def lease_age(work: Work, seconds: float) -> None:
    """Tell how long a lease that was released now had been held."""
    _send(stats.timing, "hudi.lease_age", timedelta(seconds=max(seconds, 0.0)), work._asdict())


def own_heartbeat_margin(work: Work, seconds: float) -> None:
    """Tell in how many seconds Hudi counts the writer of a task as dead, negative since then.

    A gauge stays where it is: give the whole tolerance once the driver has ended.
    """
    _send(stats.gauge, "hudi.own_heartbeat_margin", round(seconds, 3), work._asdict())


def writers(table: str, pending: Iterable[Writer], rule: HeartbeatRule) -> None:
    """Tell of a table's pending writes: how near the next is to being dead, and how many are.

    :param table: base path of the table.
    :param pending: all of them; where none beats, the margin is the whole tolerance.
    :param rule: by which they were judged.
    """
    seen = tuple(pending)
    margins = [one.margin_ms for one in seen if one.fate.beating and one.margin_ms is not None]
    margin_ms = min(margins, default=rule.interval_ms * rule.tolerable_misses)
    _send(stats.gauge, "hudi.heartbeat_margin", margin_ms / 1000, {"table": table})
    _send(stats.gauge, "hudi.ghosts", sum(one.fate is Fate.DEAD for one in seen), {"table": table})


def _send(emit: Callable[..., None], name: str, value: object, tags: Mapping[str, str]) -> None:
    try:
        told = {key: _table(text) if key == "table" else text for key, text in tags.items()}
        emit(name, value, tags={key: _valid(text) for key, text in told.items()})
    except Exception as error:  # noqa: BLE001 - a metric is no reason for a task to fail
        _warn_once(f"{type(error).__name__}: {error}")


@lru_cache
def _warn_once(reason: str) -> None:
    _log.warning("Metrics are not sent: %s", reason)


def _table(table: str) -> str:
    """Return a table as a tag: its canonical path, with a scheme but without a user."""
    url = _SCHEME.fullmatch(canonical_table(table))
    if not url:
        return canonical_table(table)
    scheme, user = url["scheme"], (url["user"] or "").partition(":")[0]
    container = f"{user}_" if user and scheme in _CONTAINER_SCHEMES else ""
    return f"{scheme}/{container}{url['rest']}"


def _valid(text: str) -> str:
    """Return a tag's value as every back end takes it; a long one keeps its end and stays apart."""
    clean = _OTHER_CHARACTER.sub("_", text)
    if len(clean) <= _TAG_LENGTH:
        return clean
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{digest}..{clean[len(digest) + 2 - _TAG_LENGTH :]}"

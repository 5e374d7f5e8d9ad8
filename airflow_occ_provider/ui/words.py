"""Amounts and states as the page words them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from airflow_occ_provider.hudi.doctor.finding import Finding
from airflow_occ_provider.hudi.doctor.locks import LOCK_CHECKS
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.spelling import spell_expiry

# What XML forbids, and what hides text or changes its direction.
_HIDING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_STATES = {
    Fate.ALIVE: "running",
    Fate.LATE: "late",
    Fate.DEAD: "dead",
    Fate.COMMITTED: "completed",
    Fate.ROLLED_BACK: "rolled back",
    Fate.GONE: "planned",
}


def clock(ms: int) -> str:
    """Return epoch milliseconds as hours and minutes in UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%H:%M}"


def state(fate: Fate) -> str:
    """Return the word for what became of a write."""
    return _STATES[fate]


def margin(margin_ms: int | None) -> str:
    """Return when a heartbeat expires, or how long ago it did."""
    if margin_ms is None:
        return "no heartbeat"
    return spell_expiry(margin_ms)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``2 bars``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def evidence(finding: Finding) -> str:
    """Return what shows a finding, without the servers that a lock's names."""
    if finding.check in LOCK_CHECKS:
        return "airflow hudi doctor shows the evidence, which names the lock"
    return finding.evidence


def shorten(text: str, most: int) -> str:
    """Return a text without its middle if it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    head = most // 3
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


def visible(value: object) -> object:
    """Return a text with what no page may contain replaced."""
    return _HIDING.sub("\ufffd", value) if type(value) is str else value

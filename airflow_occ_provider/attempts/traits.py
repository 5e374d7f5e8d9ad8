"""Decides which submitters can run an attempt safely, by their traits alone."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_occ_provider.attempts.submitter import Traits
from airflow_occ_provider.errors import ConfigurationError


def refuse_unsafe(traits: Traits, *, needs_live_log: bool = False) -> None:
    """Refuse a submitter with which an attempt would have no correct outcome.

    :param traits: of the submitter.
    :param needs_live_log: whether a guard has to read the log while the driver runs: Hudi's lock has
        one name for all tables, so that a second table must end the driver.
    :raises ConfigurationError: naming the trait.
    """
    found = next(_refusals(traits, needs_live_log=needs_live_log), None)
    if found:
        trait, why, remedy = found
        raise ConfigurationError("submitter", f"its trait {trait} means that {why}", remedy=remedy)


def _refusals(traits: Traits, *, needs_live_log: bool) -> Iterator[tuple[str, str, str]]:
    if traits.start == "neither":
        yield (
            "start='neither'",
            "a driver that was submitted, but not recorded, could commit beside the next try's",
            "use a submitter whose drivers are gated or findable by their key",
        )
    if not traits.exit_code:
        yield (
            "exit_code=False",
            "a job that failed cannot be distinguished from one that wrote nothing",
            "use a submitter that gives the driver's exit code",
        )
    if needs_live_log and traits.logs != "live":
        yield (
            f"logs='{traits.logs}'",
            "a second table is not seen before its data is written, under the lock of the first",
            "lock in ZooKeeper, where each table has its own lock",
        )

"""The typed choices of an operator, validated when the DAG is parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.typed_values import has_template, refuse_template, switch
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection

Choice = TypeVar("Choice", bound=StrEnum)
_ELSEWHERE = (
    "would follow the driver beside the task, which follows and ends it itself",
    "leave it out",
)
_UNFIT = {
    "post_submit_commands": (
        "would run after every submission, also of a clean before the job, and before the table is read",
        "run them in a task after this one, with trigger_rule='all_done'",
    ),
    "track_driver_via_k8s_api": _ELSEWHERE,
    "yarn_track_via_rm_api": _ELSEWHERE,
}


class AdmissionMode(StrEnum):
    """Whether a writer is queued for its table."""

    QUEUE = "queue"
    OFF = "off"


_OF_BOOL: dict[type[StrEnum], tuple[StrEnum, StrEnum]] = {
    AdmissionMode: (AdmissionMode.OFF, AdmissionMode.QUEUE),
    EarlyDetection: (EarlyDetection.OFF, EarlyDetection.ON),
    EarlyStop: (EarlyStop.OFF, EarlyStop.ACT),
}


def choice(field: str, choices: type[Choice], argument: object) -> Choice:
    """Return the choice that an argument of an operator names.

    :param argument: a choice or its name; of a choice that is a switch, also ``True`` and ``False``,
        or their text.
    :raises ConfigurationError: for anything else.
    """
    refuse_template(field, argument)
    if choices in _OF_BOOL and str(argument).strip().lower() in ("true", "false"):
        argument = _OF_BOOL[choices][switch(field, argument)]
    try:
        return choices(str(argument))
    except ValueError as error:
        names = ", ".join(repr(member.value) for member in choices)
        raise ConfigurationError(
            field, f"{argument!r} is not known", remedy=f"use one of {names}"
        ) from error


def resolution_choice(argument: object) -> Strategy | None:
    """Return the named conflict resolution strategy; ``None`` leaves it to Hudi."""
    return None if argument is None else choice("conflict_resolution", Strategy, argument)


def constant_options(argument: object) -> dict[str, Any]:
    """Return the Hudi options that are known when the DAG is parsed.

    Templates and XComs are not known by then.
    """
    options = argument if isinstance(argument, Mapping) else {}
    constant = (str, int, float)
    return {
        str(key): value
        for key, value in options.items()
        if isinstance(value, constant) and not has_template((key, value))
    }


def refuse_foreign(names: Iterable[str], foreign: Iterable[str], why: str) -> None:
    """Refuse arguments that an operator sets itself, or does not use.

    :raises ConfigurationError: with the first of them.
    """
    refused = sorted(set(foreign).intersection(names))
    if refused:
        raise ConfigurationError(refused[0], why, remedy="leave it out")


def refuse_unfit(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of ``SparkSubmitOperator`` that cannot be made safe.

    They exist from version 6.1 of the Spark provider on.

    :raises ConfigurationError: with the first of them, and the remedy.
    """
    for name, (why, remedy) in _UNFIT.items():
        if arguments.get(name):
            raise ConfigurationError(name, why, remedy=remedy)

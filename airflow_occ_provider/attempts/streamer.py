"""Hudi Streamer's arguments: how they are made, and which are not safe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX, contradictions
from airflow_occ_provider.storage.address import canonical_table

MERGE_ON_READ = "MERGE_ON_READ"
_TARGET, _OPTION = "--target-base-path", "--hoodie-conf"
_LOCK = "hoodie.write.lock."
_REFUSED = {
    "--continuous": (
        "commits again and again, and a task run makes one commit",
        "leave it out, and let Airflow schedule the rounds",
    ),
    "--props": (
        "names a file whose options go before the protection's",
        "give the options in hudi_options, which are checked",
    ),
    "--run-bootstrap": (
        "Hudi does not bootstrap a table beside other writers",
        "bootstrap the table while no writer runs",
    ),
    "--spark-master": ("would start Spark elsewhere", "name the master in the Spark connection"),
}


def streamer_arguments(
    table: str, name: str, kind: str, *, source: str | None, ordering: str | None, operation: str
) -> tuple[str, ...]:
    """Return the arguments of one round of Hudi Streamer.

    :param name: the table's name.
    :param kind: the table's type.
    :param source: the class of the source.
    :param ordering: the field by which the younger of two rows with one key is known.
    :param operation: Hudi's name of the write operation, in any case.
    """
    options = {
        _TARGET: table,
        "--target-table": name,
        "--table-type": kind,
        "--op": operation.upper(),
        "--source-class": source,
        "--source-ordering-field": ordering,
    }
    arguments = [part for key, value in options.items() if value for part in (key, value)]
    # Table services run in tasks of their own, which are queued for them.
    return (*arguments, *(("--disable-compaction",) if kind == MERGE_ON_READ else ()))


def refuse_unsafe_arguments(arguments: Sequence[object], table: str) -> None:
    """Refuse arguments of Hudi Streamer that take away the protection.

    :param table: base path of the task's table.
    :raises ConfigurationError: with the first of them, and the remedy.
    """
    targets = []
    for key, value in _pairs(arguments):
        if key in _REFUSED and value.lower() != "false":
            problem, remedy = _REFUSED[key]
            raise _refusal(f"{key}: {problem}", remedy)
        if key == _OPTION:
            _refuse_option(value)
        if key == _TARGET:
            targets.append(value)
    if [canonical_table(target) for target in targets] != [canonical_table(table)]:
        named = ", ".join(targets) or "no table"
        raise _refusal(f"{_TARGET} names {named}, and the task's table is {table}", f"name {table}")


def _refuse_option(option: str) -> None:
    key, _, value = option.partition("=")
    for contradiction in contradictions([(key, value)], _OPTION):
        raise _refusal(f"{_OPTION} {option} contradicts safe concurrent writing", contradiction.remedy)
    if key.strip().startswith((_LOCK, SIGNATURE_PREFIX)):
        raise _refusal(f"{_OPTION} {option} goes before the lock connection", "leave it out")


def _pairs(arguments: Sequence[object]) -> Iterator[tuple[str, str]]:
    """Yield each option with what follows it; JCommander also takes ``--key=value``."""
    words = [str(argument) for argument in arguments]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        key, equals, value = word.partition("=")
        if word.startswith("--"):
            yield (key, value) if equals else (word, "" if following.startswith("--") else following)


def _refusal(problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError("application_args", problem, remedy=remedy)

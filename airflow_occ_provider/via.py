"""Markers for ``via_kwargs``: where its values name an attempt's driver.

The values are known only once the task holds its lease; by then Jinja has rendered the arguments. So a
marker is plain text, which templates, JSON, YAML and shells leave as it is::

    HudiWriteOperator(
        ...,
        via=BashOperator,
        via_kwargs={"bash_command": f"spark-submit --master yarn {RUNNER} {ARGUMENTS}"},
    )
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

RUNNER = "__airflow_occ_runner__"
"""The PySpark file that the driver runs."""
ARGUMENTS = "__airflow_occ_arguments__"
"""Its arguments. An element of a list that is this marker becomes an element for each argument."""
FOLDER = "__airflow_occ_folder__"
"""The URL of the attempt's folder, for services whose arguments have names: ``--airflow_occ_folder``."""
ATTEMPT = "__airflow_occ_attempt__"
"""24 hexadecimal digits, others for each attempt: for the names and tokens of a service's runs."""

_MARKERS = (RUNNER, ARGUMENTS, FOLDER, ATTEMPT)


def markers_in(value: object) -> set[str]:
    """Return the markers in texts, lists and dictionaries, however deep."""
    if isinstance(value, str):
        return {marker for marker in _MARKERS if marker in value}
    if isinstance(value, Mapping):
        return markers_in(list(value.values()))
    if isinstance(value, list | tuple):
        return {marker for item in value for marker in markers_in(item)}
    return set()


def with_driver(value: Any, runner: str, arguments: Sequence[str]) -> Any:
    """Return a value with its markers replaced.

    The value may be a list or dictionary of values, however deep. A text that is a marker becomes what
    it stands for. Within a longer text, that is quoted for a shell.

    :param runner: path or URL of the PySpark file.
    :param arguments: of the file; the first is the URL of the attempt's folder.
    """
    if isinstance(value, str):
        return _text_with_driver(value, runner, arguments)
    if isinstance(value, Mapping):
        return {key: with_driver(item, runner, arguments) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for item in value:
            if item == ARGUMENTS:
                items.extend(arguments)
            else:
                items.append(with_driver(item, runner, arguments))
        return type(value)(items) if type(value) in (list, tuple) else items
    return value


def _text_with_driver(text: str, runner: str, arguments: Sequence[str]) -> str:
    folder = arguments[0]
    values = {
        RUNNER: (runner,),
        ARGUMENTS: tuple(arguments),
        FOLDER: (folder,),
        # A folder belongs to one attempt and is never used again.
        ATTEMPT: (hashlib.sha256(folder.encode()).hexdigest()[:24],),
    }
    words = values.get(text, ())
    if len(words) == 1:
        return words[0]
    for marker, words in values.items():
        text = text.replace(marker, shlex.join(words))
    return text

"""The values of an operator's arguments, by type."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from airflow_occ_provider.errors import ConfigurationError

_SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_TEMPLATE_MARKS = ("{{", "{%")


def has_template(value: object) -> bool:
    """Whether a value has a template or an XCom in it."""
    if isinstance(value, str):
        return any(mark in value for mark in _TEMPLATE_MARKS)
    if isinstance(value, Mapping):
        return any(map(has_template, (*value.keys(), *value.values())))
    if isinstance(value, Sequence | set | frozenset):
        return any(map(has_template, value))
    return hasattr(value, "iter_references")  # an XComArg, which Airflow resolves as the task starts


def switch(field: str, value: object) -> bool:
    """Return a switch; text is read as the boolean that it names.

    :raises ConfigurationError: for anything that is neither true nor false.
    """
    refuse_template(field, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str) and (text := str(value).strip().lower()) in _SWITCHES:
        return _SWITCHES[text]
    raise _refusal(field, value, "is neither true nor false", "give True or False")


def duration(field: str, value: object) -> timedelta:
    """Return a length of time; a number counts seconds.

    :raises ConfigurationError: if it is neither a ``timedelta`` nor a number of seconds.
    """
    refuse_template(field, value)
    remedy = "give a datetime.timedelta, or seconds as a number"
    if isinstance(value, timedelta):
        length = value
    else:
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
            length = timedelta(seconds=seconds)
        except (TypeError, ValueError, OverflowError):
            raise _refusal(field, value, "is no length of time", remedy) from None
    if length < timedelta(0):
        raise _refusal(field, value, "is negative", remedy)
    return length


def names(field: str, value: object) -> Any:
    """Return one name as text, or several as a list; ``None`` as it is.

    The text of a list, as a template renders it, is that list, alone or within a list.

    :raises ConfigurationError: for what is neither a name nor a list of names.
    """
    listed = words(field, value)
    if not isinstance(listed, list):
        return listed
    parts = [words(field, item) for item in listed]
    return [name for part in parts for name in (part if isinstance(part, list) else [part])]


def words(field: str, value: object) -> Any:
    """Return one text, or several as a list; ``None`` as it is.

    :raises ConfigurationError: for what is neither text nor a list of texts.
    """
    remedy = "give text, a list of texts, or a template that renders to one of them"
    if value is None:
        return None
    if isinstance(value, str):
        if value.strip() in ("None", "null"):
            raise _refusal(field, value, "was rendered from no value", remedy)
        if not value.strip().startswith(("[", "(", "{")):
            return value
        items = _parsed(value.strip())
    else:
        items = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(items, list | tuple | set | frozenset):
        raise _refusal(field, value, "is no list of names", remedy)
    listed = sorted(items, key=str) if isinstance(items, set | frozenset) else items
    for item in listed:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise _refusal(field, value, f"has {item!r}, which is no name", remedy)
    return [str(item) for item in listed]


def mapping(field: str, value: object) -> Any:
    """Return a dictionary, or ``None``; the text of a dictionary is that dictionary.

    :raises ConfigurationError: if it is none.
    """
    parsed = _parsed(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping | None):
        raise ConfigurationError(
            field,
            f"was rendered to {type(parsed).__name__} {str(value)[:80]!r}, which is no dictionary",
            remedy="give a dictionary, or a template or another task's result that is one, such as "
            f"'{{{{ var.json.{field} }}}}'",
        )
    return parsed


def option_texts(field: str, value: object) -> Any:
    """Return options as Hudi gets them, each as text.

    A boolean is in lower case. An option without a value is left out, since Hudi would read the
    text ``None``.

    :param value: a dictionary, its text, or ``None``.
    :raises ConfigurationError: for a value of any other type, or none that is a dictionary.
    """
    options = mapping(field, value)
    if options is None:
        return None
    return {str(key): option_text(field, key, item) for key, item in options.items() if item is not None}


def option_text(field: str, key: object, value: object) -> str:
    """Return the value of one option as Hudi gets it.

    :raises ConfigurationError: if it is neither text, nor a number, nor a boolean.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float | Decimal):
        raise ConfigurationError(
            field,
            f"{key} is {type(value).__name__} {str(value)[:80]!r}, which is no value of an option",
            remedy="give text, a number or a boolean; a list as text with commas",
        )
    return str(value)


def whole_number(field: str, value: object, *, at_least: int) -> int:
    """Return a whole number; text is read as the number that it names.

    :raises ConfigurationError: if it is none, or too small.
    """
    refuse_template(field, value)
    text = "" if isinstance(value, bool) else str(value).strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < at_least:
        raise _refusal(field, value, f"is no whole number of {at_least} or more", "give a number")
    return int(text)


def refuse_template(field: str, value: object) -> None:
    """Refuse a template in a field that is not rendered.

    :raises ConfigurationError: then.
    """
    if has_template(value):
        problem = "is known only when the task runs, and this field is no template"
        raise _refusal(field, value, problem, "give a value")


def _parsed(text: str) -> object:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text


def _refusal(field: str, value: object, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(field, f"{str(value)[:80]!r} {problem}", remedy=remedy)

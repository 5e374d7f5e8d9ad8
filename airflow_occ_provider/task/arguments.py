"""``TypedArguments``: an operator's arguments as the values that they name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.attempts.typed_values import (
    duration,
    has_template,
    mapping,
    names,
    option_texts,
    refuse_template,
    switch,
    words,
)
from airflow_occ_provider.attempts.write_spec import choice
from airflow_occ_provider.reading.new_commits import refuse_unknown_labels
from airflow_occ_provider.storage.address import named, named_partitions, parse_table_path

if TYPE_CHECKING:
    from airflow.sdk import Context

_PACKAGE = __name__.partition(".")[0]


def _labels(field: str, value: Any) -> Any:
    labels = mapping(field, value)
    refuse_unknown_labels(labels)
    return labels


def _isolation(field: str, value: Any) -> Isolation:
    return choice(field, Isolation, value)


def _switch_or_none(field: str, value: Any) -> bool | None:
    return None if value is None else switch(field, value)


def _duration_or_none(field: str, value: Any) -> timedelta | None:
    return None if value is None else duration(field, value)


TYPES: Mapping[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("scope", "tables", "partitions", "operations", "instants"), names),
    "streamer_args": words,
    "hudi_options": option_texts,
    "isolation": _isolation,
    "require_commit": _switch_or_none,
    "start_timeout": _duration_or_none,
    "signed": _labels,
    **dict.fromkeys(("deferrable", "wait", "start_from_trigger"), switch),
    **dict.fromkeys(("wait_timeout", "plan_timeout"), duration),
}
"""The type of each argument that is neither text nor a choice, the same for all classes."""


class TypedArguments:
    """Give arguments their types: at once, and templates once they are rendered."""

    template_fields: Any

    def take_arguments(self) -> None:
        """Convert the arguments that are known when the DAG is parsed, and judge them.

        A constructor calls it last.

        :raises ConfigurationError: with the first field that is wrong, or is no template and has one.
        """
        for name in self._argument_names():
            value = getattr(self, name, None)
            if name not in self.template_fields:
                refuse_template(name, value)
            if not has_template(value):
                self._convert(name)
                _judge(name, getattr(self, name, None))

    def _convert(self, name: str) -> None:
        if name in TYPES and hasattr(self, name):
            setattr(self, name, TYPES[name](name, getattr(self, name)))

    def _argument_names(self) -> list[str]:
        """Return the arguments that classes of this provider declare."""
        ours = [base for base in type(self).__mro__ if base.__module__.partition(".")[0] == _PACKAGE]
        constructors = [vars(base)["__init__"] for base in ours if "__init__" in vars(base)]
        # Airflow gives each class a constructor, of which some are only those of its own classes.
        constructors = [init for init in constructors if init.__module__.partition(".")[0] == _PACKAGE]
        declared = [name for init in constructors for name in inspect.signature(init).parameters]
        return [name for name in dict.fromkeys(declared) if name in vars(self)]

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: Any,
        seen_oids: set[int],
    ) -> None:
        """Render the fields, also of a mapped task, and convert them."""
        super()._do_render_template_fields(  # type: ignore[misc]
            parent, template_fields, context, jinja_env, seen_oids
        )
        if parent is self:
            for name in template_fields:
                self._convert(name)


def _judge(name: str, value: Any) -> None:
    """Refuse a value that no rendering changes and no task can use."""
    if name == "table" and value is not None:
        parse_table_path(value)
    elif name == "tables":
        for table in named(name, value):
            parse_table_path(table)
    elif name == "scope":
        named_partitions(value)

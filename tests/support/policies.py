"""Arguments of operators in which the fields of a policy stand beside all others."""

from __future__ import annotations

from dataclasses import fields

from airflow_occ_provider.attempts.write_spec import WritePolicy

FIELDS = {field.name for field in fields(WritePolicy)}


def with_policy(given):
    """Return the arguments of an operator, with a policy of the fields that are among them."""
    policy = {name: value for name, value in given.items() if name in FIELDS}
    others = {name: value for name, value in given.items() if name not in FIELDS}
    return {**others, "policy": policy} if policy else others

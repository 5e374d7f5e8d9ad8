"""The signature by which a task run finds its own commit in the table."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

from airflow_occ_provider.hudi.format.properties import fold
from airflow_occ_provider.hudi.writer.options import SIGNATURE_PREFIX
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.spelling import SEPARATOR, spell_owner

IDENTITY_KEY = f"{SIGNATURE_PREFIX}identity"


_COMMON = len("01234567-89ab-8cde-")


def new_identity(labels: Sequence[str] = ()) -> str:
    """Return a fresh identity for a task run.

    It is a UUID of version 8. Its first 60 bits are a digest of the labels, so that a try without the
    run's record recognizes what carries an identity of the run; the others are drawn at random.

    :param labels: that all tries of the task run have in common, and no other task run has.
    """
    digits = hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()
    return renewed(f"{digits[:8]}-{digits[8:12]}-8{digits[12:15]}-")


def renewed(identity: str) -> str:
    """Return another identity of the same task run."""
    return run_part(identity) + str(uuid.uuid4())[_COMMON:]


def run_part(identity: str) -> str:
    """Return the beginning that all identities of a task run have, and no other has."""
    return identity[:_COMMON]


class TaskKey(NamedTuple):
    """A task run: a task instance over all its tries.

    :param map_index: ``-1`` for a task that is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1

    @property
    def path(self) -> tuple[str, ...]:
        """Its ids from the DAG down, as those of an owner."""
        return (self.dag_id, self.run_id, self.task_id, *self._mapped)

    @property
    def task_path(self) -> tuple[str, ...]:
        """The ids of its task, which all runs of the DAG have."""
        return (self.dag_id, self.task_id, *self._mapped)

    @property
    def _mapped(self) -> tuple[str, ...]:
        return () if self.map_index < 0 else (str(self.map_index),)

    @classmethod
    def of_owner(cls, owner: Owner) -> TaskKey | None:
        """Return the task run that made an owner's requests; ``None`` if it is none.

        The lease of a whole DAG run belongs to the task that its label names.
        """
        if len(owner.path) < 2:
            return None
        dag_id, run_id, *below = owner.path
        task_id, *index = below or owner.label.split(SEPARATOR)
        if not task_id or len(index) > 1 or not all(map(str.isdecimal, index)):
            return None
        return cls(dag_id, run_id, task_id, int(index[0]) if index else -1)


@dataclass(frozen=True, slots=True)
class Signature:
    """The labels in the extra metadata of every commit of an attempt.

    Hudi copies write options whose names start with ``_`` there (1.2.0, ``HoodieSparkSqlWriter``).
    The work is found by ``identity`` alone, and the last commits of a task by ``task``; the rest is for
    people.

    :param map_index: ``-1`` for a task that is not mapped.
    :param latest_instant: the table's youngest completed write before the attempt, or empty.
    :param order_token: of the lease under which it ran, or empty: numbers separated by dots; a later
        lease has a greater token.
    :param site: the Airflow deployment; empty in commits of earlier releases.
    """

    is_written: ClassVar[bool] = True
    identity: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1
    latest_instant: str = ""
    order_token: str = ""
    site: str = ""

    @property
    def task(self) -> tuple[str, ...]:
        """The labels that all runs of the task have in common, as they stand in a commit."""
        labels = (self.site, self.dag_id, self.task_id, self.map_index)
        return tuple(fold(str(label)) for label in labels)

    @property
    def task_run(self) -> TaskKey:
        """The task run that signs with it."""
        return TaskKey(self.dag_id, self.run_id, self.task_id, self.map_index)

    @property
    def spelled(self) -> str:
        """The task run and its try, as logs and commands spell them."""
        return spell_owner(self.task_run.path, try_number=self.try_number)

    @property
    def run(self) -> tuple[str, ...]:
        """The labels that all tries of a task run have in common."""
        return (*self.task, fold(self.run_id))

    def options(self) -> dict[str, str]:
        """Return the write options that sign a commit."""
        return {f"{SIGNATURE_PREFIX}{key}": fold(str(value)) for key, value in asdict(self).items()}

    @classmethod
    def from_extra(cls, extra: Mapping[str, str]) -> Signature | None:
        """Read a commit's extra metadata back; ``None`` for a commit that is not signed."""
        if IDENTITY_KEY not in extra:
            return None
        text: dict[str, Any] = {
            label.name: extra.get(f"{SIGNATURE_PREFIX}{label.name}", "") for label in fields(cls)
        }
        text["map_index"] = _number(text["map_index"], -1)
        text["try_number"] = _number(text["try_number"], 1)
        return cls(**text)


@dataclass(frozen=True, slots=True)
class UnwrittenSignature(Signature):
    """The signature of a job whose commits do not carry it, such as Hudi Streamer's.

    Its commits are found by the instants that its driver has reported.
    """

    is_written: ClassVar[bool] = False


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.lstrip("-").isdecimal() else otherwise

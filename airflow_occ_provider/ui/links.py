"""What a viewer may know of a writer: its name, and a link to its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.leases.rules import QueuedRequest
from airflow_occ_provider.spelling import spell_owner

ANOTHER_DAG = "another DAG"
_STEPS = ("", ".", "..")  # a browser resolves these, also if they are quoted


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user that a page is made for, and where the page is.

    :param home: relative path from the page to the app's root, such as ``../../``; the root is one
        folder below Airflow's.
    :param dags: the DAGs that the user may read; ``None`` for all.
    :param site: of this Airflow, as in owners and signatures.
    """

    home: str = ""
    dags: frozenset[str] | None = None
    site: str = ""


@dataclass(frozen=True, slots=True)
class Party:
    """A writer as the page names it.

    :param href: relative link to it in Airflow; empty without one.
    :param is_named: whether the viewer may read of it.
    """

    name: str
    href: str = ""
    is_named: bool = True


def task_link(home: str, path: Sequence[str]) -> str:
    """Return the relative link to a DAG run in Airflow, or to a task of it.

    :param home: see ``Viewer``.
    :param path: DAG, run, task, and the map index of a mapped task; at least the first two.
    :return: empty if a name would change the path.
    """
    named = zip(("dags", "runs", "tasks", "mapped"), path, strict=False)
    if len(path) < 2 or any(part in _STEPS for part in path):
        return ""
    return f"{home}../{'/'.join(f'{kind}/{_quoted(part)}' for kind, part in named)}"


def table_link(home: str, key: str) -> str:
    """Return the relative link to the page of a table.

    :return: empty if the key would change the path.
    """
    return "" if key in _STEPS else f"{home}t/{_quoted(key)}/"


def of_signature(signature: Signature, viewer: Viewer) -> Party:
    """Return the task run that signed a write."""
    return _party(signature.task_run.path, signature.site, viewer)


def of_request(queued: QueuedRequest, viewer: Viewer) -> Party:
    """Return the owner of a request."""
    owner = queued.request.owner
    if not queued.request.ttl_ms:  # of another release, or a lock of another program
        return Party(str(owner))
    path = tuple(map(str, owner.path))  # another release may have written anything
    return _party(path, owner.site, viewer, owner.label)


def task_name(signature: Signature, viewer: Viewer) -> str:
    """Return the name of the task of which a run signed a write."""
    hidden = _hidden(signature.dag_id, signature.site, viewer)
    return hidden or spell_owner(signature.task_run.task_path)


def _party(path: tuple[str, ...], site: str, viewer: Viewer, label: str = "") -> Party:
    if hidden := _hidden(path[0] if path else "", site, viewer):
        return Party(hidden, is_named=False)
    return Party(spell_owner(path, label=label), task_link(viewer.home, path))


def _hidden(dag_id: str, site: str, viewer: Viewer) -> str:
    """Return what is shown instead of a hidden name; empty if it may be read."""
    if site and site != viewer.site:
        return f"another Airflow (site {site})"
    return "" if viewer.dags is None or dag_id in viewer.dags else ANOTHER_DAG


def _quoted(part: str) -> str:
    return quote(part, safe="", errors="replace")

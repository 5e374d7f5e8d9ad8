"""The DAG runs that commits start: planned, kept with an asset, then started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import TriggerDagRun

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.new_commits import CommitFilter, event_of, new_commits
from airflow_occ_provider.errors import ConfigurationError, DagRunNotStartedError
from airflow_occ_provider.hooks.consumers import Consumer
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.storage.snapshot import Snapshot

PLAN_KEY = "hudi_commit_runs"
_NAME = re.compile(r"[A-Za-z0-9_.~:+-]+")
MOST_RUNS = 1000
"""Of one task."""


@dataclass(frozen=True, slots=True)
class CommitRun:
    """A DAG run for some commits.

    :param run_id: made of the last commit, so that no commit starts two runs.
    :param commits: as in the events of ``HudiCommitTrigger``.
    """

    run_id: str
    commits: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The runs to start, stored before the first: a retry starts the same ones.

    :param before: the checkpoint of which they follow.
    :param after: the checkpoint once all of them are started.
    """

    before: Checkpoint
    after: Checkpoint
    runs: tuple[CommitRun, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        runs = [{"run_id": one.run_id, "commits": list(one.commits)} for one in self.runs]
        return {"before": self.before.to_json(), "after": self.after.to_json(), "runs": runs}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> RunPlan:
        """Return the plan of a JSON object."""
        runs = tuple(CommitRun(one["run_id"], tuple(one["commits"])) for one in kept["runs"])
        return cls(Checkpoint.from_json(kept["before"]), Checkpoint.from_json(kept["after"]), runs)


def refuse_unusable_name(consumer: str) -> None:
    """Raise for a consumer whose name cannot stand in the id of a run.

    :raises ConfigurationError: then (Airflow 3.3.2, ``allowed_run_id_pattern``).
    """
    if not _NAME.fullmatch(consumer):
        raise ConfigurationError(
            "consumer",
            f"{consumer!r} cannot stand in the id of a DAG run",
            remedy="name it with letters, digits, and _ . ~ : + -",
        )


def instants_of(events: Mapping[Any, Sequence[Any]]) -> list[str]:
    """Return the instants in events of ``HudiCommitTrigger`` and of tasks that wrote.

    :param events: by asset, as a task finds them in ``triggering_asset_events``.
    """
    extras = [one.extra or {} for several in events.values() for one in several]
    payloads = (extra.get("payload") or {} for extra in extras)
    commits = [one for payload in payloads for one in payload.get("commits", ())]
    return [one["instant"] for one in (*commits, *extras) if one.get("instant")]


def planned_runs(
    consumer: Consumer, since: Checkpoint, snapshot: Snapshot, wanted: CommitFilter, *, per_commit: bool
) -> RunPlan:
    """Return the runs to start: of a plan that was not carried out, then new ones.

    :param since: its checkpoint.
    :param per_commit: whether each commit has a run, or all together have one.
    """
    plan = _kept(consumer, since)
    commits, after = list[Commit](), plan.after
    while len(plan.runs) + len(commits) < MOST_RUNS:
        found = new_commits(snapshot, after, wanted, most=MOST_RUNS - len(plan.runs) - len(commits))
        if found.checkpoint == after:
            break
        commits, after = [*commits, *found.commits], found.checkpoint
    batches = [[one] for one in commits] if per_commit else [commits] if commits else []
    new = (_run(consumer.name, one) for one in batches)
    return RunPlan(plan.before, after, (*plan.runs, *new))


def keep_plan(consumer: Consumer, plan: RunPlan) -> None:
    """Store what is about to be started.

    :raises StateStoreError: if Airflow does not store it.
    """
    consumer.store(PLAN_KEY, plan.to_json())


def start_dag_run(dag_id: str, run: CommitRun, table: str) -> bool:
    """Start a run; return whether there was none of its id yet.

    Airflow has at most one run of an id (3.3.2, ``DagRun``: ``dag_id`` and ``run_id`` are unique).

    :param table: canonical base path, for the run's configuration.
    :raises DagRunNotStartedError: if Airflow does not start it.
    """
    conf = {"table": table, "commits": list(run.commits)}
    request = TriggerDagRun(dag_id=dag_id, run_id=run.run_id, logical_date=None, conf=conf)
    try:
        answer: Any = task_runner.SUPERVISOR_COMMS.send(request)
    except AirflowRuntimeError as error:
        raise DagRunNotStartedError(
            f"Airflow did not start the run {run.run_id} of {dag_id}: {error}",
            remedy="see whether Airflow has parsed this DAG; the next try starts what is left",
        ) from error
    return getattr(answer, "error", None) != ErrorType.DAGRUN_ALREADY_EXISTS


def _kept(consumer: Consumer, since: Checkpoint) -> RunPlan:
    """Return the stored plan, empty if it was carried out or the checkpoint was set anew."""
    kept: Any = consumer.state.get(PLAN_KEY)
    plan = RunPlan.from_json(kept) if isinstance(kept, dict) else None
    return plan if plan and plan.before == since else RunPlan(since, since)


def _run(consumer: str, commits: Sequence[Commit]) -> CommitRun:
    return CommitRun(f"hudi__{consumer}__{commits[-1].instant.time}", tuple(map(event_of, commits)))

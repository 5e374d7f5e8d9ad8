"""The DAG runs that commits start: planned, kept with an asset, then started."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import TriggerDagRun

from airflow_occ_provider.assets.consumers import Consumer
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.errors import ConfigurationError, DagRunNotStartedError
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.reading.new_commits import CommitFilter, event_of, new_commits
from airflow_occ_provider.storage.snapshot import Snapshot

_log = logging.getLogger(__name__)
PLAN_KEY = "hudi_commit_runs"
MOST_COMMITS = 200
"""In one plan; a task carries out one after the other."""
_NAME = re.compile(r"[A-Za-z0-9_.~:+-]{1,200}")


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
    :param made_anew: why all commits of the table are new, if the consumer has seen others.
    """

    before: Checkpoint
    after: Checkpoint
    runs: tuple[CommitRun, ...] = ()
    made_anew: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        runs = [{"run_id": run.run_id, "commits": list(run.commits)} for run in self.runs]
        return {"before": self.before.to_json(), "after": self.after.to_json(), "runs": runs}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RunPlan:
        """Return the plan of a JSON object."""
        runs = tuple(CommitRun(run["run_id"], tuple(run["commits"])) for run in record["runs"])
        return cls(Checkpoint.from_json(record["before"]), Checkpoint.from_json(record["after"]), runs)


def refuse_unusable_name(consumer: str) -> None:
    """Raise for a consumer whose name cannot stand in the id of a run.

    :raises ConfigurationError: then (Airflow 3.3.2, ``allowed_run_id_pattern``).
    """
    if not _NAME.fullmatch(consumer):
        raise ConfigurationError(
            "consumer",
            f"{consumer!r} cannot stand in the id of a DAG run",
            remedy="name it with at most 200 letters, digits, and _ . ~ : + -",
        )


def instants_of(events: Mapping[Any, Sequence[Any]], table: str, timeline: Timeline) -> Iterator[str]:
    """Yield the instants in events of ``HudiCommitTrigger`` and of tasks that wrote.

    :param events: by asset, as a task finds them in ``triggering_asset_events``; those of other tables
        count for nothing.
    :param table: canonical base path of the table.
    :param timeline: of the table: a task's event does not say which one it wrote.
    """
    for extra in (event.extra or {} for several in events.values() for event in several):
        payload = extra.get("payload")
        if isinstance(payload, Mapping) and payload.get("table") == table:
            yield from (commit["instant"] for commit in payload["commits"])
        elif timeline.find(str(extra.get("instant"))):
            yield extra["instant"]


def planned_runs(
    consumer: Consumer, since: Checkpoint, snapshot: Snapshot, wanted: CommitFilter, *, per_commit: bool
) -> RunPlan:
    """Return the runs to start: of an unfinished plan, else of new commits.

    :param since: the consumer's checkpoint.
    :param per_commit: whether each commit has a run, or all together have one.
    """
    record: Any = consumer.state.get(PLAN_KEY)
    if isinstance(record, dict) and record["table"] == consumer.table:
        plan = RunPlan.from_json(record)
        if plan.before == since:  # else the checkpoint has moved, or was set anew
            return plan
    news = new_commits(snapshot, since, wanted, most=MOST_COMMITS)
    commits = news.commits
    batches = [(commit,) for commit in commits] if per_commit else [commits] if commits else []
    runs = tuple(_run(consumer.name, batch) for batch in batches)
    return RunPlan(since, news.checkpoint, runs, news.made_anew)


def carry_out(consumer: Consumer, plan: RunPlan, dag_id: str) -> None:
    """Store a plan, start its runs, and move the consumer's checkpoint.

    :param dag_id: of the runs.
    :raises ConfigurationError: if another task has moved the checkpoint meanwhile.
    :raises DagRunNotStartedError: if Airflow does not start a run.
    :raises StateStoreError: if Airflow does not store the plan or the checkpoint.
    """
    if plan.made_anew:
        _log.warning("%s. All its commits are new.", plan.made_anew)
    if plan.runs:
        consumer.store(PLAN_KEY, {"table": consumer.table, **plan.to_json()})
    consumer.refuse_moved(plan.before, plan.after)
    for run in plan.runs:
        is_new = start_dag_run(dag_id, run, consumer.table)
        done = "was started" if is_new else "was there before"
        _log.info("The run %s of %s %s.", run.run_id, dag_id, done)
    consumer.move(plan.before, plan.after)
    consumer.state.delete(PLAN_KEY)


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


def _run(consumer: str, commits: Sequence[Commit]) -> CommitRun:
    return CommitRun(f"hudi__{consumer}__{commits[-1].instant.time}", tuple(map(event_of, commits)))

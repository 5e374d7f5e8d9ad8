"""What a task run stores in Airflow across its tries, and its deployment."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import NEVER_EXPIRE, conf  # type: ignore[attr-defined]
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.log import mask_secret

from airflow_occ_provider.attempts.identity import Signature, UnwrittenSignature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.record import INSTANTS_KEY, RECORD_KEY, TryKey
from airflow_occ_provider.attempts.write_spec import WritePolicy, site_fields
from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import StateStoreError
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.spelling import spell_owner
from airflow_occ_provider.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context


SECTION = "hudi_occ"
SITE_OPTION = "site_id"
POLICY_OPTION = "write_policy"
# What all processes of one deployment have; a worker has neither the metadata database nor its address.
_ADDRESSES = (("api", "base_url"), ("core", "execution_api_server_url"))
_log = logging.getLogger(__name__)
_TRIES = 3
_PAUSE_S = 1.0
_UNANSWERED = (AirflowRuntimeError, OSError, EOFError)
_LONGEST_DELAY_S = 86_400.0


def site() -> str:
    """Return this deployment's constant id, which no other deployment should have.

    It is ``[hudi_occ] site_id``, or else a hash of the address of the deployment's API server.
    """
    configured = _configured(SECTION, SITE_OPTION)
    if configured:
        return configured
    address = next(filter(None, (_configured(*option) for option in _ADDRESSES)), "")
    return hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:12]


def write_policy(value: WritePolicy | Mapping[str, Any] | None) -> WritePolicy:
    """Return the policy of an operator's argument, over that of the deployment.

    :raises ConfigurationError: for a field that is unknown or wrong.
    """
    return WritePolicy.of(value, site_fields(_configured(SECTION, POLICY_OPTION)))


def _configured(section: str, option: str) -> str:
    return str(conf.get(section, option, fallback="") or "").strip()


def task_owner(context: Context) -> Owner:
    """Return the owner of a task's leases."""
    ti = context["ti"]
    path = (ti.dag_id, ti.run_id, ti.task_id)
    return Owner((*path, str(ti.map_index)) if _is_mapped(ti) else path, site=site())


def run_owner(context: Context) -> Owner:
    """Return the owner of a lease that a task requests for its whole run."""
    ti = context["ti"]
    names = (ti.task_id, str(ti.map_index)) if _is_mapped(ti) else (ti.task_id,)
    return Owner((ti.dag_id, ti.run_id), spell_owner(names), site())


def _is_mapped(ti: Any) -> bool:
    return ti.map_index is not None and ti.map_index >= 0


def open_journal(context: Context, *, is_resumed: bool = False) -> Journal:
    """Return the journal of a context's task run.

    :param is_resumed: whether an earlier process of the same try has deferred the task.
    :raises CommitStateUnknownError: if the record was written by another release.
    :raises StateStoreError: if the state store does not answer.
    """
    ti = context["ti"]
    store = TaskStateStore(cast("Any", context).get("task_state_store"), ti.try_number)

    def publish(instants: Sequence[str]) -> None:
        try:
            ti.xcom_push(key=INSTANTS_KEY, value=list(instants))
        except (AirflowRuntimeError, OSError, EOFError) as error:
            _log.warning("The instants were not published to other tasks: %s", error)

    task = context.get("task")
    retries = (task.retries if task else 0) or 0
    now = TryKey(ti.try_number, ti.max_tries or 0, retries)
    labels = _labels(context)
    return Journal(store, now, publish, labels, is_resumed)


def _labels(context: Context) -> tuple[str, ...]:
    """Return what all tries of a task run have in common, and no other task run has."""
    ti = context["ti"]
    return (site(), ti.dag_id, ti.run_id, ti.task_id, str(-1 if ti.map_index is None else ti.map_index))


def due_ms(context: Context) -> int:
    """Return the epoch milliseconds before which the DAG run has run no task.

    It is 0 if that is unknown. A clear sets the start of the run anew, but not when it was due. A run
    that is started by hand may be due later than it runs.
    """
    run = context.get("dag_run")
    moments = [getattr(run, name, None) for name in ("run_after", "start_date")]
    return min((round(moment.timestamp() * 1000) for moment in moments if moment), default=0)


def bundle_folders(context: Context) -> tuple[str, ...]:
    """Return the paths of this version of the task's DAG bundle on this machine."""
    bundle = getattr(context["ti"], "bundle_instance", None)
    if bundle is None:
        return ()
    return tuple(dict.fromkeys((os.path.realpath(bundle.path), os.fspath(bundle.path))))


def longest_absence_ms(task: BaseOperator, try_number: int) -> int:
    """Return the longest time from a process's death to the task's next try.

    That is as long as Airflow's scheduler takes to notice the death, and the delay of the retry.
    """
    noticed_s = sum(
        conf.getint("scheduler", f"task_instance_heartbeat_{name}", fallback=default)
        for name, default in (("timeout", 300), ("timeout_detection_interval", 10))
    )
    delay_s = _seconds(task.retry_delay)
    backoff = float(task.retry_exponential_backoff or 1)
    if backoff > 1:  # Airflow adds a jitter of up to the delay itself
        most = _seconds(task.max_retry_delay or _LONGEST_DELAY_S)
        delay_s = min(2 * max(delay_s, 1) * backoff ** min(try_number - 1, 60), most)
    return round((noticed_s + min(delay_s, _LONGEST_DELAY_S)) * 1000)


def _seconds(delay: timedelta | float) -> float:
    return delay.total_seconds() if isinstance(delay, timedelta) else float(delay)


@dataclass(frozen=True, slots=True)
class TaskStateStore:
    """Airflow's task state store as the store of a task run's record.

    :param store: Airflow's; ``None`` if there is none, so that nothing is stored.
    :param try_number: of the current try.
    """

    store: Any
    try_number: int

    def get(self) -> Any:
        """Return the record; ``None`` if there is none."""
        return self._ask("get", RECORD_KEY)

    def set(self, record: Any) -> None:
        """Store the record."""
        self._ask("set", RECORD_KEY, record, retention=NEVER_EXPIRE)

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self.store is None:
            return None
        ask = partial(getattr(self.store, method), *arguments, **options)
        try:
            return bounded(ask, _UNANSWERED, tries=_TRIES, pause_s=_PAUSE_S)
        except _UNANSWERED as error:
            raise StateStoreError(
                f"Airflow's task state store did not {method} the record of try {self.try_number}: "
                f"{error}",
                remedy="nothing, if a younger try of the task is running; else look at the API server's "
                "log",
            ) from error


def sign(
    context: Context, identity: str, snapshot: Snapshot, order_token: str, *, is_written: bool = True
) -> Signature:
    """Return the signature of one try of a task run.

    :raises StateStoreError: if Airflow does not answer.
    """
    ti = context["ti"]
    kind = Signature if is_written else UnwrittenSignature
    return kind(
        identity=identity,
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=-1 if ti.map_index is None else ti.map_index,
        try_number=ti.try_number,
        latest_instant=snapshot.timeline.latest_completed_write or "",
        order_token=order_token,
        site=site(),
    )


def show_fields(task: BaseOperator) -> None:
    """Have the UI show a running task's current fields; Airflow does it at its end."""
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import SetRenderedFields

    try:
        fields = task_runner._serialize_rendered_fields(task)
        task_runner.SUPERVISOR_COMMS.send(SetRenderedFields(rendered_fields=fields))
    except Exception as error:  # noqa: BLE001 - what the UI shows must not fail the job
        _log.debug("The UI does not show the options yet: %s", error)


def is_dag_test() -> bool:
    """Whether this process runs the whole DAG, one task at a time (``dag.test()``)."""
    from airflow.sdk.execution_time import task_runner

    return type(getattr(task_runner, "SUPERVISOR_COMMS", None)).__name__ == "InProcessSupervisorComms"


def hide(secrets: Iterable[str]) -> None:
    """Have Airflow mask secrets in logs and rendered fields."""
    for secret in secrets:
        mask_secret(secret)

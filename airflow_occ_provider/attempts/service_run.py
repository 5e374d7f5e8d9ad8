"""One try of a table service task, from its earlier tries to its result."""

from __future__ import annotations

import time
from typing import Any

from airflow_occ_provider.attempts.journal import known_state
from airflow_occ_provider.attempts.protected_try import ProtectedTry
from airflow_occ_provider.attempts.service_attempt import ServiceAttempt, end_earlier_services
from airflow_occ_provider.attempts.service_limits import ServiceLimits
from airflow_occ_provider.attempts.service_plans import ServicePlans, ServiceTask
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule

FOREIGN = ("application", "application_args", "isolation")
"""Arguments of ``HudiWriteOperator`` that a table service has no use for."""


def serve(run: ProtectedTry, task: ServiceTask) -> dict[str, Any]:
    """Do a table service's work once admitted, and return its result by the table.

    :raises WaitNeeded: if it is not admitted yet, or other drivers have to end first.
    """
    started = time.monotonic()
    with known_state(run.journal):
        run.recover()
        end_earlier_services(run.journal, run.spark.submitter, run.log)
    run.look_up()
    run.refuse_deaths()
    options = run.known_options(run.prepare())
    plans = plans_of(run, task, HeartbeatRule.of(options))
    limits = ServiceLimits(task.service, run.claim.partitions, run.log)
    with run.admitted(options) as admitted:
        run.wait_for_rivals(options)
        attempt = ServiceAttempt(plans, limits, run.spark, run.task_run.measures.attempt)
        facts = attempt.facts(run.job, run.prepare(admitted.order_token), admitted)
    run.journal.succeed()
    result = {**facts, "seconds": round(time.monotonic() - started, 1)}
    run.log.info("%s of %s: %s", task.service.capitalize(), run.spec.table, result)
    return result


def plans_of(run: ProtectedTry, task: ServiceTask, rule: HeartbeatRule) -> ServicePlans:
    """Return the plans of a try, with a rule that judges their heartbeats."""
    return ServicePlans(task, run.journal, run.table, run.spec.table, rule, run.wait, run.log)

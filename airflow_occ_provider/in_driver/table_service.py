"""A PySpark job of this provider: runs the table services of one table.

Run through ``run_job.py`` as ``table_service.py TABLE SERVICE STEP ...``: ``compaction`` or
``clustering``, and the steps in their order: ``roll_back=INSTANT``, ``run=INSTANT``,
``schedule``, ``schedule_and_run``. Hudi rolls an inflight plan back itself before it runs it again.
It imports the standard library and PySpark only.
"""

from __future__ import annotations

import sys

_SIGNATURE = "_airflow_"


def main(table, service, *steps):
    """Do the steps with the protected writer's own Hudi options, none of a session."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    jvm = spark._jvm
    hudi = jvm.org.apache.hudi
    options, labels = options_and_labels(jvm)
    # Not Hudi's procedures: they do not roll back a plan that is only requested, and lock settings
    # reach them too late.
    client = hudi.HoodieCLIUtils.createHoodieWriteClient(
        spark._jsparkSession, table, jvm.PythonUtils.toScalaMap(options), jvm.scala.Option.apply(None)
    )
    try:
        for step in steps:
            word, _, instant = step.partition("=")
            if word == "roll_back":
                roll_back(hudi, client, instant)
            elif word == "run":
                run(hudi, client, service, instant)
            elif word in ("schedule", "schedule_and_run"):
                planned = schedule(hudi, client, service, labels)
                if planned and word == "schedule_and_run":
                    run(hudi, client, service, planned)
            else:
                raise ValueError(f"unknown step {step}")
    finally:
        client.close()


def options_and_labels(jvm):
    """Return this driver's Hudi options, and the labels that sign a plan."""
    properties = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    options, labels = jvm.java.util.HashMap(), jvm.java.util.HashMap()
    for key in properties.stringPropertyNames():
        place = labels if key.startswith(_SIGNATURE) else options
        place.put(key, properties.getProperty(key))
    options.put("hoodie.table.services.enabled", "true")  # else Hudi plans nothing
    return options, labels


def schedule(hudi, client, service, labels):
    """Make a plan and return its instant, or None if Hudi finds nothing to do."""
    some = hudi.common.util.Option.of(labels)
    plan = client.scheduleCompaction if service == "compaction" else client.scheduleClustering
    planned = plan(some).orElse(None)
    say(f"scheduled {service} {planned}" if planned else f"there is nothing to schedule a {service} for")
    return planned


def run(hudi, client, service, instant):
    """Execute a plan and commit it."""
    if service == "clustering":
        client.cluster(instant, True)
    elif any(
        method.getName() == "compact" and method.getParameterCount() == 2 for method in methods(client)
    ):
        client.compact(instant, True)
    else:  # Hudi before 1.1 does not commit here itself
        written = client.compact(instant).getCommitMetadata().get()
        client.commitCompaction(instant, written, hudi.common.util.Option.empty())
    say(f"ran {service} {instant}")


def roll_back(hudi, client, instant):
    """Remove a pending plan in any state, with all that its execution has left.

    ``rollbackInflightClustering`` does the same with an inflight plan (Hudi 1.2.0, ``HoodieTable``),
    but leaves the requested plan. The SQL procedure for it handles inflight plans only.
    """
    config, context = client.getConfig(), client.getEngineContext()
    table = hudi.table.HoodieSparkTable.create(config, context)
    instants = table.getMetaClient().getActiveTimeline().getInstants()
    (plan,) = [pending for pending in instants if time_of(pending) == instant]
    time = new_instant_time(hudi, client)
    by_markers = config.shouldRollbackUsingMarkers()
    if not table.scheduleRollback(context, time, plan, False, by_markers, False).isPresent():
        raise RuntimeError(f"Hudi plans no rollback of {plan}")
    table.rollback(context, time, plan, True, False)
    say(f"rolled back {instant}")


def methods(client):
    """Return the public methods of a Java object."""
    return client.getClass().getMethods()


def time_of(instant):
    """Return the requested time of a Java instant, under either of its names."""
    names = {method.getName() for method in methods(instant)}
    return instant.requestedTime() if "requestedTime" in names else instant.getTimestamp()


def new_instant_time(hudi, client):
    """Return a fresh instant time; from Hudi 1.0 on taken under the table's lock."""
    if any(method.getName() == "createNewInstantTime" for method in methods(client)):
        return client.createNewInstantTime(True)
    return hudi.common.table.timeline.HoodieActiveTimeline.createNewInstantTime()


def say(text):
    """Write a line of this program into the driver's log."""
    print(f"airflow_occ_provider: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What Hudi's exceptions mean for a writer, in a saved log and as the runner reports them."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import MEANINGS, Outcome
from airflow_occ_provider.reading.saved_log import read_saved_log
from tests.unit.reports import cause, fact, reported

OWN, RIVAL = "20261122101500123", "20261122101200456"
HUDI = "org.apache.hudi.exception"
TIMELINE = "/lake/t/.hoodie/timeline"
PROTECTED = fact("protected", options=20, followed=True)
OWN_ERROR = MEANINGS[Outcome.JOB_ERROR].remedy
AGAIN = MEANINGS[Outcome.COMMIT_CONFLICT].remedy
LOCK = MEANINGS[Outcome.LOCK_TIMEOUT].remedy


def hudi(message, logger="ActiveTimelineV2"):
    return fact("hudi", logger=logger, message=message)


REQUESTED = hudi(f"Creating a new instant [==>{OWN}__commit__REQUESTED]")


def operations(action, state="INFLIGHT", first=OWN, second=RIVAL):
    return (
        f"first operation = ConcurrentOperation(actionState=INFLIGHT, actionType=commit, "
        f"instantTime={first}), second operation = ConcurrentOperation(actionState={state}, "
        f"actionType={action}, instantTime={second})"
    )


def older_operations(action):
    one = "{{actionType={}, instantTime={}, actionState=INFLIGHT'}}"
    return (
        f"first operation = {one.format('commit', OWN)}, second operation = {one.format(action, RIVAL)}"
    )


def conflict(text):
    return [cause(f"{HUDI}.HoodieWriteConflictException", f"{CANNOT} between {text}")]


CANNOT = "java.util.ConcurrentModificationException: Cannot resolve conflicts for overlapping writes"
UPSERT = cause(f"{HUDI}.HoodieUpsertException", f"Failed to upsert for commit time {OWN}")


def failed(message, kind=f"{HUDI}.HoodieException", frames=(), wrapped_in=()):
    return [*wrapped_in, cause(kind, message, frames=frames)]


def missing(file):
    return failed(f"No such file or directory: s3a:/{file}", "java.io.FileNotFoundException")


def existing(file):
    return [
        cause(f"{HUDI}.HoodieIOException", f"Failed to create file {file}"),
        cause("org.apache.hadoop.fs.FileAlreadyExistsException", f"{file} already exists"),
    ]


def provider(name, *causes):
    outer = cause(
        f"{HUDI}.HoodieException", f"Unable to instantiate class org.apache.hudi.{name}LockProvider"
    )
    return [outer, cause("java.lang.reflect.InvocationTargetException", ""), *causes]


LOCK_FRAME = (
    "at org.apache.hudi.client.transaction.lock.LockManager.getLockProvider(LockManager.java:93)"
)
ARCHIVE_FRAME = "at org.apache.hudi.client.BaseHoodieWriteClient.autoArchiveOnCommit(B.java:616)"
BUCKET_FRAME = (
    "at org.apache.hudi.index.bucket.BucketIdentifier.bucketIdFromFileId(BucketIdentifier.java:81)"
)
STATE_FRAME = "at org.apache.hudi.common.table.timeline.HoodieActiveTimeline.transitionState(H.java:542)"

# What the driver died of; the outcome; what the remedy says.
CASES = {
    "a commit that the guard refused at its file": (
        failed(
            f"airflow_occ_provider refused to complete {TIMELINE}/{OWN}.commit: the lease is over",
            "java.io.IOException",
            wrapped_in=[UPSERT, cause(f"{HUDI}.HoodieIOException", "Failed to create file")],
        ),
        Outcome.COMMIT_REFUSED,
        "nothing was committed",
    ),
    "a commit of the metadata table that the guard refused": (
        failed(
            f"airflow_occ_provider refused to complete s3a://b/t/.hoodie/metadata/.hoodie/{OWN}.deltacommit"
            ": too little of the lease is left, 3.1 s",
            "java.io.IOException",
            wrapped_in=[UPSERT],
        ),
        Outcome.COMMIT_REFUSED,
        "nothing was committed",
    ),
    "a commit that the guard refused at Hudi's log line": (
        failed(
            "airflow_occ_provider refused a commit: its driver ends",
            "java.lang.IllegalStateException",
            frames=(STATE_FRAME,),
            wrapped_in=[UPSERT],
        ),
        Outcome.COMMIT_REFUSED,
        "nothing was committed",
    ),
    "a completed writer": (conflict(operations("commit", "COMPLETED")), Outcome.COMMIT_CONFLICT, AGAIN),
    "a rollback of this write": (
        conflict(operations("rollback")),
        Outcome.ROLLED_BACK,
        f"Rollback {RIVAL}",
    ),
    "a rollback, in the words of 1.1": (
        conflict(older_operations("rollback")),
        Outcome.ROLLED_BACK,
        f"Rollback {RIVAL}",
    ),
    "a compaction": (
        conflict(operations("compaction", "REQUESTED")),
        Outcome.COMMIT_CONFLICT,
        f"compaction {RIVAL}",
    ),
    "a clustering": (
        conflict(operations("clustering")),
        Outcome.CLUSTERING_CONFLICT,
        f"clustering {RIVAL}",
    ),
    "a pending overwrite": (
        conflict(operations("replacecommit")),
        Outcome.COMMIT_CONFLICT,
        f"{RIVAL} has",
    ),
    "a writer that has not committed": (
        conflict(operations("deltacommit")),
        Outcome.COMMIT_CONFLICT,
        f"writer {RIVAL}",
    ),
    "a clustering that gives way": (
        failed(
            f"Clustering operation ConcurrentOperation(actionState=INFLIGHT, actionType=clustering, "
            f"instantTime={OWN}) conflicts with pending ingestion instant [==>{RIVAL}__commit__INFLIGHT]"
            " that has an active heartbeat",
            f"{HUDI}.HoodieWriteConflictException",
        ),
        Outcome.COMMIT_CONFLICT,
        f"writer {RIVAL}",
    ),
    "a schema that changed": (
        failed("Detected incompatible", f"{HUDI}.HoodieSchemaEvolutionConflictException"),
        Outcome.COMMIT_CONFLICT,
        "new schema",
    ),
    "a pending service of the partition": (
        failed(
            "Failed to drop partitions. Please ensure that there are no pending table service actions "
            f"for [dt=1]. Instant(s) of offending pending table service action: [{RIVAL}]",
            f"{HUDI}.HoodieDeletePartitionPendingTableServiceException",
        ),
        Outcome.CLUSTERING_CONFLICT,
        f"({RIVAL})",
    ),
    "a service that another runs": (
        failed(
            f"Cannot execute instant {RIVAL} due to heartbeat by concurrent writer/job",
            f"{HUDI}.HoodieLockException",
        ),
        Outcome.COMMIT_CONFLICT,
        f"table service {RIVAL}",
    ),
    "a bucket index beside an overwrite": (
        failed("begin 0, end 8, length 0", "java.lang.StringIndexOutOfBoundsException", [BUCKET_FRAME]),
        Outcome.COMMIT_CONFLICT,
        "pending overwrite",
    ),
    "two rollbacks": (
        [
            cause(f"{HUDI}.HoodieRollbackException", f"Failed to rollback /lake/t commits {RIVAL}"),
            *existing(f"{TIMELINE}/{OWN}7.rollback.requested"),
        ],
        Outcome.COMMIT_CONFLICT,
        f"{OWN}7",
    ),
    "a plan that is gone": (
        [
            cause(f"{HUDI}.HoodieException", "Error getting all file groups in pending clustering"),
            *missing(f"{TIMELINE}/{RIVAL}.clustering.requested"),
        ],
        Outcome.COMMIT_CONFLICT,
        f"rolled back {RIVAL}",
    ),
    "an overwrite's plan that is gone": (
        missing(f"{TIMELINE}/{RIVAL}.replacecommit.requested"),
        Outcome.COMMIT_CONFLICT,
        f"rolled {RIVAL} back",
    ),
    "the own instant, gone": (
        failed(f"File {TIMELINE}/{OWN}.inflight does not exist!", "java.lang.IllegalArgumentException"),
        Outcome.ROLLED_BACK,
        "",
    ),
    "one time for two writers": (
        existing(f"{TIMELINE}/{OWN}.commit.requested"),
        Outcome.COMMIT_CONFLICT,
        f"time {OWN}",
    ),
    "a twin that completed the instant": (
        existing(f"{TIMELINE}/{OWN}.commit"),
        Outcome.UNKNOWN,
        f"completed {OWN}",
    ),
    "two first writers": (
        failed("hoodie.properties': Parallel access to the create path detected", "x.PathIOException"),
        Outcome.COMMIT_CONFLICT,
        "two writers created the table",
    ),
    "a restore": (
        failed(f"Found pending restore in active timeline. Pending restores: [{RIVAL}]"),
        Outcome.UNKNOWN,
        f"restored ({RIVAL})",
    ),
    "an eager rollback": (
        [
            cause(f"{HUDI}.HoodieRollbackException", f"Failed to rollback /lake/t commits {RIVAL}"),
            *failed(
                f"Found in-flight commits after time :{RIVAL}, please rollback greater commits first",
                f"{HUDI}.HoodieRollbackException",
            ),
        ],
        Outcome.MISCONFIGURATION,
        "without optimistic concurrency",
    ),
    "a file of another commit": (
        [UPSERT, *missing(f"/lake/t/dt=1/0b2c-0_3-28-120_{RIVAL}.parquet")],
        Outcome.UNKNOWN,
        f"commit {RIVAL}",
    ),
    "an error that no row knows": (
        failed("something of a later release", f"{HUDI}.HoodieMetadataException", wrapped_in=[UPSERT]),
        Outcome.UNKNOWN,
        "HoodieMetadataException: something of a later release",
    ),
    "a storage error below Hudi": (
        [UPSERT, *failed("No space left on device", "java.io.IOException", ["at java.io.X.y(Native)"])],
        Outcome.UNKNOWN,
        "No space left on device",
    ),
    "speculation": (
        failed("Spark speculative execution is enabled (spark.speculation=true). Disable it"),
        Outcome.MISCONFIGURATION,
        "spark.speculation=false",
    ),
    "a class of Hudi that two class loaders have": (
        failed(
            "class org.apache.avro.generic.GenericData$Record cannot be cast to class "
            "org.apache.hudi.avro.model.HoodieDeleteRecordList "
            "(org.apache.avro.generic.GenericData$Record is in unnamed module of loader 'app'; "
            "org.apache.hudi.avro.model.HoodieDeleteRecordList is in unnamed module of loader "
            "org.apache.spark.util.MutableURLClassLoader @6b3871d6)",
            "java.lang.ClassCastException",
            ["at org.apache.hudi.common.table.log.block.HoodieDeleteBlock.deserialize(X.java:168)"],
        ),
        Outcome.UNKNOWN,
        "spark.driver.extraClassPath",
    ),
    "the same, as Java 8 says it": (
        failed(
            "org.apache.hudi.avro.model.HoodieDeleteRecordList cannot be cast to "
            "org.apache.hudi.avro.model.HoodieDeleteRecordList",
            "java.lang.ClassCastException",
            ["at org.apache.hudi.common.table.log.block.HoodieDeleteBlock.deserialize(X.java:160)"],
        ),
        Outcome.UNKNOWN,
        "spark.driver.extraClassPath",
    ),
    "a record of the metadata table with the fields of another schema": (
        [
            UPSERT,
            *failed(
                "Index 9 out of bounds for length 7",
                "java.lang.ArrayIndexOutOfBoundsException",
                [
                    "at org.apache.avro.generic.GenericData$Record.put(GenericData.java:275)",
                    "at org.apache.hudi.metadata.HoodieMetadataPayload.getInsertValue(X.java:445)",
                ],
            ),
        ],
        Outcome.UNKNOWN,
        "hudi#19559",
    ),
    "an array of the job's own that is too short": (
        [
            UPSERT,
            *failed(
                "Index 9 out of bounds for length 7",
                "java.lang.ArrayIndexOutOfBoundsException",
                ["at com.example.Enrich.call(Enrich.java:12)"],
            ),
        ],
        Outcome.JOB_ERROR,
        "",
    ),
    "direct markers without ZooKeeper": (
        failed("Only Support ZK-based lock for DirectMarkerTransactionManager now."),
        Outcome.MISCONFIGURATION,
        "ZK-based",
    ),
    "a lock file on s3a": (
        provider(
            "FileSystemBased", cause("x.IllegalArgumentException", "Unsupported scheme :s3a, since")
        ),
        Outcome.MISCONFIGURATION,
        "Unsupported scheme :s3a",
    ),
    "a storage lock on HDFS": (
        failed(
            "No implementation of StorageLock supports this scheme: hdfs", f"{HUDI}.HoodieLockException"
        ),
        Outcome.MISCONFIGURATION,
        "scheme: hdfs",
    ),
    "no right on ZooKeeper": (
        provider(
            "ZookeeperBased",
            cause(f"{HUDI}.HoodieLockException", "Failed to initialize ZooKeeper path: /a"),
            cause("x.KeeperException$NoAuthException", "KeeperErrorCode = NoAuth for /a"),
        ),
        Outcome.MISCONFIGURATION,
        "NoAuth for /a",
    ),
    "ZooKeeper away": (
        provider(
            "ZookeeperBased",
            cause(f"{HUDI}.HoodieLockException", "Failed to initialize ZooKeeper path: /a"),
            cause(
                "x.KeeperException$ConnectionLossException", "KeeperErrorCode = ConnectionLoss for /a"
            ),
        ),
        Outcome.LOCK_TIMEOUT,
        LOCK,
    ),
    "a missing node of ZooKeeper": (
        provider("ZookeeperBased", cause("x.KeeperException$NoNodeException", "NoNode for /locks/a")),
        Outcome.MISCONFIGURATION,
        "NoNode for /locks/a",
    ),
    "a lock without credentials": (
        provider("DynamoDBBased", cause("x.SdkClientException", "Unable to load AWS credentials from")),
        Outcome.MISCONFIGURATION,
        "credentials",
    ),
    "a catalog without locks": (
        failed(
            "lock is not supported",
            "java.lang.UnsupportedOperationException",
            wrapped_in=[
                cause(f"{HUDI}.HoodieLockException", "Unable to acquire lock, lock object null")
            ],
        ),
        Outcome.MISCONFIGURATION,
        "lock is not supported",
    ),
    "another key of DynamoDB": (
        failed(
            "The provided key element does not match the schema (Status Code: 400)",
            "com.amazonaws.AmazonDynamoDBException",
            wrapped_in=[
                cause(f"{HUDI}.HoodieLockException", "FAILED_TO_ACQUIRE lock at DynamoDb table = a")
            ],
        ),
        Outcome.MISCONFIGURATION,
        "does not match the schema",
    ),
    "a heartbeat that goes while a clean reads it": (
        failed(
            f"File file:/lake/t/.hoodie/.heartbeat/{RIVAL} does not exist",
            "java.io.FileNotFoundException",
            wrapped_in=[
                cause(
                    f"{HUDI}.HoodieException",
                    f"Failed to check heartbeat for instant [==>{RIVAL}__commit__INFLIGHT]",
                )
            ],
        ),
        Outcome.COMMIT_CONFLICT,
        f"writer {RIVAL} ended",
    ),
    "a lock's missing jar": (
        failed("com/amazonaws/LockNotGrantedException", "java.lang.NoClassDefFoundError", [LOCK_FRAME]),
        Outcome.MISCONFIGURATION,
        "add the jar",
    ),
    "a lock that is held": (
        failed("ALREADY_ACQUIRED", "java.lang.IllegalArgumentException"),
        Outcome.LOCK_TIMEOUT,
        LOCK,
    ),
    "a lock after the commit": (
        failed("Unable to acquire the lock", f"{HUDI}.HoodieLockException", [ARCHIVE_FRAME]),
        Outcome.UNKNOWN,
        "after the commit",
    ),
    "a null key": (
        failed(
            'recordKey value: "null" for field: "id" cannot be null',
            f"{HUDI}.HoodieKeyException",
            wrapped_in=[UPSERT],
        ),
        Outcome.JOB_ERROR,
        "Correct the job's own error",
    ),
    "a missing option": (
        failed(
            "Property hoodie.datasource.write.recordkey.field not found", "x.IllegalArgumentException"
        ),
        Outcome.JOB_ERROR,
        "Correct the job's own error",
    ),
    "two bundles": (
        failed("'void org.apache.hudi.X.<init>()'", "java.lang.NoSuchMethodError"),
        Outcome.JOB_ERROR,
        "one Hudi bundle",
    ),
    "an error of the job's function below Hudi": (
        [
            UPSERT,
            *failed("/ by zero", "java.lang.ArithmeticException", ["at com.example.Job.f(Job.java:1)"]),
        ],
        Outcome.JOB_ERROR,
        OWN_ERROR,
    ),
    "an exception of the JDK that Hudi throws": (
        failed(
            "x", "java.lang.IllegalStateException", ["at java.base/java.util.X.y(X.java:1)", STATE_FRAME]
        ),
        Outcome.UNKNOWN,
        "IllegalStateException: x",
    ),
    "a class of the job's own": (
        failed("x", "com.example.LoadException", [STATE_FRAME]),
        Outcome.JOB_ERROR,
        OWN_ERROR,
    ),
    "Spark alone": (failed("[PATH_NOT_FOUND]", "x.AnalysisException"), Outcome.JOB_ERROR, OWN_ERROR),
}


def saved(causes):
    """The traceback by which PySpark prints the causes."""
    lines = ["Traceback (most recent call last):", '  File "job.py", line 7, in <module>', "    main()"]
    lines.append("py4j.protocol.Py4JJavaError: An error occurred while calling o48.save.")
    for number, part in enumerate(causes):
        message = f": {part['message']}" if part["message"] else ""
        lines.append(f"{'Caused by' if number else ''}: {part['type']}{message}")
        lines += [f"\t{frame}" for frame in part["frames"] or ["at org.example.X.y(X.java:1)"]]
    return [*lines, ""]


def driver(causes, *facts):
    log = DriverLog()
    for line in (PROTECTED, REQUESTED, *facts, fact("fatal", causes=causes), fact("end", exit_code=1)):
        log.take(line)
    return log


@pytest.mark.parametrize("name", CASES)
def test_an_exception_of_hudi_in_a_saved_log(name):
    causes, outcome, remedy = CASES[name]
    begun = (
        f"26/11/22 10:15:00 INFO ActiveTimelineV2: Creating a new instant [==>{OWN}__commit__REQUESTED]"
    )
    reading = read_saved_log([begun, *saved(causes)], 1)
    assert reading.outcome is outcome
    assert remedy in reading.remedy
    assert reading.instant == OWN


@pytest.mark.parametrize("name", CASES)
def test_the_same_exception_as_the_runner_reports_it(name):
    causes, outcome, remedy = CASES[name]
    reading = driver(causes).read(1)
    assert reading.outcome is outcome
    assert remedy in reading.remedy


@pytest.mark.parametrize(
    ("action", "outcome"), [("commit", Outcome.COMMIT_CONFLICT), ("rollback", Outcome.ROLLED_BACK)]
)
def test_a_lost_conflict_of_the_own_write_outlives_the_jobs_error_handler(action, outcome):
    found = hudi(f"Found conflicting writes between {operations(action)}", "SimpleStrategy")
    mine = [cause("LoadError", "could not be loaded", jvm=False)]
    assert driver(mine, found).read(1).outcome is outcome
    assert driver(mine).read(1).outcome is Outcome.JOB_ERROR
    later = f"{OWN[:-1]}9"
    completed = hudi(f"Created new file for toInstant ?{TIMELINE}/{later}_{later}.commit")
    again = hudi(f"Creating a new instant [==>{later}__commit__REQUESTED]")
    assert driver(mine, found, again, completed).read(1).outcome is Outcome.JOB_ERROR
    of_another = hudi(f"Found conflicting writes between {operations(action, first=RIVAL)}", "S")
    assert driver(mine, of_another).read(1).outcome is Outcome.JOB_ERROR


def test_a_job_that_leaves_by_an_exit_code_after_a_conflict():
    log = DriverLog()
    found = hudi(f"Found conflicting writes between {operations('commit')}", "SimpleStrategy")
    for line in (PROTECTED, REQUESTED, found, fact("end", exit_code=1)):
        log.take(line)
    assert (log.read(1).outcome, log.read(1).rival) == (Outcome.COMMIT_CONFLICT, RIVAL)


def test_the_exception_that_a_job_handles_as_it_leaves_explains_its_exit_code():
    log = DriverLog()
    causes = [cause(f"{HUDI}.HoodieLockException", "Unable to acquire the lock")]
    for entry in (PROTECTED, "load failed", fact("fatal", causes=causes), fact("end", exit_code=3)):
        log.take(entry)
    assert log.read().outcome is Outcome.LOCK_TIMEOUT


REMOTE = (
    "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException)"
    ": Failed to CREATE_FILE /lake/t/.hoodie/timeline/x for DFSClient_1 on 10.0.0.1 because this file "
    "lease is currently owned by DFSClient_2 on 10.0.0.2"
)
PY4J = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.save."


@pytest.mark.parametrize(
    "lines",
    [
        [f": {HUDI}.HoodieIOException: Failed to create file", f"Caused by: {REMOTE}"],
        [f": {REMOTE}"],
        [f": {HUDI}.HoodieException: x", f"Caused by: java.io.IOException: {REMOTE}"],
        [f": org.apache.spark.SparkException: Lost task 0.3 (node-2 executor 1): {REMOTE}"],
    ],
    ids=["a cause", "the exception itself", "in a message", "of an executor"],
)
def test_a_remote_exception_of_hadoop_stands_for_the_class_that_it_names(lines):
    """Made by hand, as Hadoop 3.3 prints it: no scenario has two writers of one file in HDFS."""
    frame = "\tat org.apache.hadoop.ipc.Client.getRpcResponse(Client.java:1612)"
    printed = ["Traceback (most recent call last):", PY4J, *lines, frame, ""]
    reading = read_saved_log(printed, 1)
    assert reading.outcome is Outcome.COMMIT_CONFLICT
    assert "two processes wrote one file" in reading.remedy
    assert "AlreadyBeingCreatedException: Failed" in reading.remedy
    log = DriverLog()
    for entry in reported(printed):
        log.take(entry)
    assert log.read(1).outcome is Outcome.COMMIT_CONFLICT


def test_a_reported_message_that_names_a_remote_exception_is_read_too():
    log = DriverLog()
    log.take(PROTECTED)
    log.take(fact("fatal", causes=[cause("java.util.concurrent.ExecutionException", REMOTE)]))
    assert log.read(1).outcome is Outcome.COMMIT_CONFLICT

"""Pure: what Hudi's exceptions mean for a writer of a table, Hudi 0.15.0 to 1.2.1.

One table: exception and message, outcome, remedy. Whether a retry helps follows from the outcome
(``attempts.outcome``). The deepest cause that a row describes decides, since the causes above it say
only what Hudi was doing. ``tests/golden/hudi_messages.txt`` has the messages of the releases; a test
demands that each is judged by a row, or was reviewed for the general rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_occ_provider.attempts.log.facts import Cause
from airflow_occ_provider.attempts.outcome import Outcome

_TIME = r"\d{14,20}"
_HUDI = re.compile(r"(?:\S*\.)?org\.apache\.hudi\.|(?:\S*[.$])?Hoodie\w+(?:Exception|Error)\b")
_IN_HUDI = re.compile(r"\borg\.apache\.hudi\.")
_METADATA_TABLE = "/.hoodie/metadata/"
# Hudi writes the records of that table itself: a job's data are not in them.
_OF_METADATA_TABLE = re.compile(r"at (?:\S*\.)?org\.apache\.hudi\.metadata\.")
# Frames of the JDK and of Scala's library say nothing of who called them.
_LIBRARY_FRAME = re.compile(r"at (?:java\.base/)?(?:java|javax|jdk|sun|scala)\.")
_STORAGE_ERROR = re.compile(
    r"java\.(?:io|nio|net)\.|(?:org\.apache\.(?:hadoop|parquet|orc)|com\.amazonaws|software\.amazon)\."
)
_LOCKING = r"LockProvider|LockManager|HoodieLockException|StorageLock"
_SERVICES = "compaction|logcompaction|clustering|clean|rollback|restore|indexing|savepoint"
# Hudi archives, cleans and runs inline table services once the commit is in the timeline.
_AFTER_COMMIT = (
    r"autoArchiveOnCommit|mayBeCleanAndArchive|autoCleanOnCommit|runTableServicesInline"
    r"|archiveIfRequired|runMetaSync|syncHive|SyncUtilHelpers"
)


@dataclass(frozen=True, slots=True)
class HudiFailure:
    """One row: an exception of Hudi, or of what Hudi calls, and what it means.

    :param pattern: of ``type: message``; its group ``instant`` is the writer's own instant, its group
        ``rival`` what the writer lost to or has to wait for.
    :param remedy: what to do, with ``{instant}`` and ``{rival}`` in it; by default the outcome's.
    :param context: of the whole chain, stack frames included, if the exception alone decides nothing.
    :param of_others: whether the row is about another process's instant, never one of the driver's own.
    """

    outcome: Outcome
    pattern: re.Pattern[str]
    remedy: str = ""
    context: re.Pattern[str] | None = None
    of_others: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a chain of exceptions means.

    :param instant: the own instant that the message names, if it names one.
    :param rival: the instant that the message names as the winner, or to be waited for.
    :param remedy: empty for the outcome's own.
    :param cause: the line of the exception that decided; empty if none did.
    :param by_row: whether a row describes the chain, not a general rule.
    """

    outcome: Outcome
    instant: str | None = None
    rival: str | None = None
    remedy: str = ""
    cause: str = ""
    by_row: bool = False


def _row(
    outcome: Outcome, pattern: str, remedy: str = "", *, context: str = "", of_others: bool = False
) -> HudiFailure:
    where = re.compile(context) if context else None
    return HudiFailure(outcome, re.compile(pattern), remedy, where, of_others)


_OPERATION = r"[^()]*?[({][^)}]*?"
_FIRST = rf"first operation = {_OPERATION}instantTime='?(?P<instant>\d+)"
_SECOND = "second operation = "
_RIVAL_TIME = r"instantTime='?(?P<rival>\d+)"


def _against(action: str, state: str = r"\w+") -> str:
    """Return the pattern of a conflict with an operation, whose fields have any order."""
    fields = (
        rf"(?=[^)}}]*actionType='?(?:{action})\b)(?=[^)}}]*actionState='?(?:{state})\b)"
        rf"(?=[^)}}]*{_RIVAL_TIME})"
    )
    return rf"\S+: .*{_FIRST}.*{_SECOND}[^({{]*[({{]{fields}"


# The guard in the driver refuses before the storage shows a commit (in_driver/guard.py).
_REFUSED = (
    _row(Outcome.COMMIT_REFUSED, r"\S+: .*\bairflow_occ_provider refused (?:to complete|a commit)"),
)

_CONFLICTS = (
    _row(Outcome.EARLY_CONFLICT, r"\S*\.HoodieEarlyConflictDetectionException\b"),
    _row(Outcome.EARLY_CONFLICT, r"\S*ConcurrentModificationException: Early conflict detected"),
    _row(Outcome.CLUSTERING_CONFLICT, r"\S*\.HoodieClusteringUpdateException\b"),
    _row(
        Outcome.ROLLED_BACK,
        _against("rollback|restore"),
        "Rollback {rival} takes this write back while its writer is alive. Find the writer without "
        "optimistic concurrency control that began it, and configure it before running again.",
    ),
    _row(
        Outcome.CLUSTERING_CONFLICT,
        _against("clustering"),
        "Let clustering {rival} end, or roll it back; then run again.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _against("compaction|logcompaction"),
        "Run the job again once compaction {rival} has ended: it has planned the same file groups.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _against("replacecommit", "REQUESTED|INFLIGHT"),
        "Run the job again once the pending clustering or overwrite {rival} has ended.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S+: .*lustering operation .*?instantTime='?(?P<instant>\d+).* conflicts with pending "
        rf"ingestion instant \[(?:==>)?(?P<rival>{_TIME})",
        "The clustering gives way to writer {rival}: run it again once that has ended.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S+: Pending ingestion instant \D*(?P<rival>{_TIME}).*may potentially conflict with current "
        rf"clustering operation\D*(?P<instant>{_TIME})?",
        "The clustering gives way to writer {rival}: run it again once that has ended.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S+: .*\(instant: (?P<instant>{_TIME}).*overlapping file groups with "
        rf".*(?:clustering|compaction).*\(instant: (?P<rival>{_TIME})",
        "Run the job again once table service {rival} has ended: it has planned the same file groups.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S+: .*\(instant: (?P<instant>{_TIME}).*overlapping file groups with "
        rf".*\(instant: (?P<rival>{_TIME})",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _against("commit|deltacommit", "REQUESTED|INFLIGHT"),
        "Run the job again once writer {rival} has ended: it writes the same file groups.",
    ),
    _row(Outcome.COMMIT_CONFLICT, _against(r"\w+")),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S*\.HoodieSchemaEvolutionConflictException\b"
        rf"(?:.*currTxnOwnerInstant is \S*?(?P<instant>{_TIME}))?",
        "Run the job again, on the new schema: another writer changed the table's schema meanwhile. If "
        "the job fails again, add the columns that it misses.",
    ),
    _row(Outcome.COMMIT_CONFLICT, r"\S*\.HoodieWriteConflictException\b"),
    _row(Outcome.COMMIT_CONFLICT, r"\S*ConcurrentModificationException: Cannot resolve conflicts"),
    _row(
        Outcome.COMMIT_CONFLICT,
        r"\S*IndexOutOfBoundsException\b|\S*NumberFormatException\b",
        "Run the job again once the pending overwrite has ended: Hudi's check for conflicts of a bucket "
        "index fails beside one.",
        context=r"BucketIndexConcurrentFileWritesConflictResolutionStrategy|BucketIdentifier",
    ),
    _row(
        Outcome.CLUSTERING_CONFLICT,
        rf"\S*\.HoodieDeletePartition\w*Exception\b(?:.*table service action: \[(?P<rival>{_TIME}))?",
        "Let the pending table services that the lines name end ({rival}), or roll them back; then run "
        "again: they have planned files of the partitions to delete.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S+: Cannot execute instant (?P<rival>{_TIME}) due to heartbeat by concurrent writer",
        "Nothing to correct: another process runs table service {rival}. Run again once it has ended.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        r"\S+: .*(?:Parallel access to the create path|hoodie\.properties\S* already exists"
        r"|[Ff]ile already exists: ?\S*hoodie\.properties|Failed to create file \S*hoodie\.properties)",
        "Run the job again: two writers created the table at the same time.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        r"\S*AlreadyBeingCreatedException\b",
        "Run the job again: two processes wrote one file of the table at the same time ({line}).",
    ),
)

_EXISTS = r"(?:already exists|[Ff]ile already exists|AlreadyExists|Failed to create file)"
_GONE = r"(?:does not exist|No such file|not found|NoSuchFile|NoSuchKey|FileNotFound)"


def _file_that(what: str, file: str) -> str:
    """Return the pattern of a message about a file of the timeline, in either order."""
    return rf"(?=.*{what})\S*:.*/(?P<{{group}}>{_TIME})(?:_{_TIME})?\.{file}(?!\.?\w)"


def _own_file(what: str, file: str) -> str:
    return _file_that(what, file).replace("{group}", "instant")


def _other_file(what: str, file: str) -> str:
    return _file_that(what, file).replace("{group}", "rival")


_TIMELINE = (
    _row(
        Outcome.COMMIT_CONFLICT,
        _other_file(_EXISTS, rf"(?:{_SERVICES})(?:\.\w+)?"),
        "Run the job again: another process carries out {rival} at the same time.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _own_file(_EXISTS, r"(?:(?:commit|deltacommit|replacecommit)\.requested|(?:\w+\.)?inflight)"),
        "Run the job again: two writers took the time {instant}. A lock that both use prevents it from "
        "Hudi 1.0 on.",
    ),
    _row(
        Outcome.UNKNOWN,
        _own_file(_EXISTS, r"(?:commit|deltacommit|replacecommit)"),
        "Another process completed {instant}. Look for it in the table's timeline (airflow hudi "
        "timeline) before running again.",
    ),
    _row(
        Outcome.UNKNOWN,
        r"\S+: Could not mark an already completed instant as complete again"
        rf"(?:\D*(?P<instant>{_TIME}))?",
        "Another process completed the instant. Look for it in the table's timeline (airflow hudi "
        "timeline) before running again.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _other_file(_GONE, rf"(?:{_SERVICES})(?:\.(?:requested|inflight))?"),
        "Run the job again: another process ended or rolled back {rival} while this one read it.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _other_file(_GONE, r"(?:replacecommit|commit|deltacommit)?\.?(?:requested|inflight)"),
        "Run the job again: another process rolled {rival} back while this one read the timeline.",
        of_others=True,
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        _other_file(_GONE, r"(?:replacecommit|commit|deltacommit)(?:\.requested|\.inflight)?"),
        "Run the job again: another process archived {rival} or rolled it back while this one read it.",
        context=r"Could not read commit details|getAllFileGroupsInPendingClustering|getInstantDetails",
    ),
    # Hudi asks whether the file exists, then for its time; the rival removes it as it ends.
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S*(?:FileNotFound|NoSuchFile)Exception: .*/\.heartbeat/(?P<rival>{_TIME})\b",
        "Run the job again: writer {rival} ended while Hudi read its heartbeat, most often to clean. "
        "Give all writers hoodie.clean.automatic=false, and let one task clean the table.",
    ),
    _row(
        Outcome.ROLLED_BACK,
        rf"\S+: .*/(?P<instant>{_TIME})(?:\.\w+)?\.(?:inflight|requested) does not exist",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        r"\S+: (?:Error getting all file groups in pending clustering|Error reading clustering plan"
        r"|Unable to read clustering plan for instant|Resolve replace commit metadata error)",
        "Run the job again: another process ended or rolled back a clustering while this one read it.",
    ),
    _row(
        Outcome.MISCONFIGURATION,
        rf"\S+: Found (?:in-flight )?commits after time :(?P<rival>{_TIME})",
        "The job rolls back the writes of others, {rival} here: it runs without optimistic concurrency "
        "control and lazy cleaning. Give it both, as all other writers of the table.",
    ),
    _row(
        Outcome.UNKNOWN,
        rf"\S+: Found pending restore in active timeline(?:.*Pending restores: \[(?P<rival>{_TIME}))?",
        "The table is being restored ({rival}), and Hudi refuses each write until the restore is "
        "complete. Complete it, then run again; airflow hudi doctor shows it.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        rf"\S+: (?:Latest pending compaction instant time must be earlier than this instant time"
        rf"|Following instants have timestamps >= compactionInstant)(?:\D*(?P<rival>{_TIME}))?",
        "Run the job again: the clock of another writer is ahead, so that {rival} looks younger.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        r"\S+: (?:Execution is aborted since it found an Inflight logcompaction"
        r"|Cannot log compact since a compaction instant with greater timestamp exists"
        r"|Requested compaction instant .* is not present as pending|No Compaction request available at"
        r"|No pending rollback instants found|No pending restore instants found"
        r"|Non clustering replace-commit inflight at timestamp)",
        "Run again: another process ended or rolled back the table service meanwhile.",
    ),
    _row(
        Outcome.UNKNOWN,
        r"\S+: (?:Instant .* (?:in wrong state|not in requested state|not inflight)"
        r"|Cannot find the instant|.* are not consistent when transition state"
        r"|unable to transition clustering inflight"
        r"|Transition to inflight requested for an instant not)",
        "Another process moved or removed the instant ({line}). Look at the table (airflow hudi "
        "timeline) before running again.",
    ),
    _row(
        Outcome.COMMIT_CONFLICT,
        r"\S+: (?:Found duplicate file groups pending clustering|Hudi File Id .* has more than 1 pending"
        r" operation|Find a partition: .* with two clustering instants)",
        "Let only one process at a time plan table services, and run the pending ones (airflow hudi "
        "conflicts shows them); then run again.",
    ),
    _row(
        Outcome.UNKNOWN,
        rf"\S+: Multiple instants with same timestamp\D*(?P<rival>{_TIME})?",
        "Two actions have the time {rival}. Look at the table (airflow hudi doctor) before running "
        "again.",
    ),
    _row(
        Outcome.UNKNOWN,
        rf"\S*\.HoodieRollbackException: (?:Failed to rollback \S+ commits (?P<rival>{_TIME})|Could not"
        r" rollback a savepointed commit|.*)",
        "The rollback of {rival} failed. Two processes may have begun it at the same time: look at the "
        "table (airflow hudi doctor), and run again once it is gone.",
    ),
)

_CANNOT_WORK = "Correct the lock provider or its options: it cannot work as configured ({line})."
_LOCKS = (
    _row(
        Outcome.MISCONFIGURATION,
        r"\S+: (?:Unsupported scheme ?:|No implementation of StorageLock supports|Failed to parse URI"
        r"|URI does not contain a valid|Only Support ZK-based lock|.*only supported for built-in lock "
        r"providers|hoodie\.write\.lock\S+ must be explicitly set|.*derives its lock identity)",
        _CANNOT_WORK,
    ),
    _row(
        Outcome.MISCONFIGURATION,
        r"\S*(?:NoAuth|NoNode|AuthFailed|InvalidACL|SaslAuth|AccessControl|AccessDenied|Authorization"
        r"|NotAuthorized|UnrecognizedClient|ResourceNotFound|InvalidSignature|ExpiredToken)\w*(?:Exception)?\b"
        r"|\S+: (?:.*(?:NoAuth for|AuthFailed|InvalidACL|not authorized|Access ?Denied"
        r"|[Pp]ermission denied|Path must start with"
        r"|[Uu]nable to (?:load|find) (?:\w+ )?(?:credentials|a region)"
        r"|ExpiredToken|InvalidClientTokenId|Status Code: 40[13]|NoSuchBucket"
        r"|does not match the schema|ValidationException|Requested resource not found"
        r"|[Ll]ock\w* (?:is|are) (?:not supported|unsupported)|[Ii]nvalid method name: '\w*lock))",
        _CANNOT_WORK,
        context=_LOCKING,
    ),
    _row(
        Outcome.MISCONFIGURATION,
        r"java\.lang\.(?:\w*(?:ClassDefFound|NoSuchMethod|UnsupportedClassVersion|AbstractMethod|Linkage)"
        r"Error|ClassNotFoundException|NoSuchMethodException|ClassCastException"
        r"|UnsupportedOperationException)\b|\S+: Unable to load class|\S+ is not a subclass of",
        "Correct the lock provider's class, or add the jar that has it ({line}).",
        context=_LOCKING,
    ),
    _row(
        Outcome.MISCONFIGURATION,
        r"java\.lang\.NullPointerException\b",
        "Set hoodie.write.lock.provider: the job's lock provider has no class.",
        context=r"at \S*(?:ReflectionUtils|LockManager)\b",
    ),
    _row(
        Outcome.MISCONFIGURATION,
        r"\S+: (?:Property hoodie\.write\.lock\S* not found|hoodie\.write\.lock\S+ (?:is|must))",
    ),
    _row(
        Outcome.UNKNOWN,
        r"\S*\.HoodieLockException\b|\S+: (?:ALREADY_ACQUIRED|FAILED_TO_ACQUIRE)",
        "Hudi did not get its lock after the commit, for archiving, cleaning or table services. Look "
        "for the commit in the table's timeline (airflow hudi timeline): if it is there, nothing is "
        "lost.",
        context=_AFTER_COMMIT,
    ),
    _row(
        Outcome.LOCK_TIMEOUT,
        r"\S*\.HoodieLockException\b|\S+: Unable to instantiate class \S*LockProvider"
        r"|\S+: (?:ALREADY_ACQUIRED|FAILED_TO_ACQUIRE)",
    ),
    _row(
        Outcome.LOCK_TIMEOUT,
        r"\S*KeeperException\$(?:ConnectionLoss|SessionExpired|OperationTimeout)Exception\b",
    ),
)

_SETTINGS = (
    _row(Outcome.HEARTBEAT_EXPIRED, r"\S+: Heartbeat for instant (?P<instant>\d+) has expired"),
    _row(
        Outcome.HEARTBEAT_EXPIRED,
        rf"\S*\.HoodieHeartbeatException\b(?:\D*(?P<instant>{_TIME}))?"
        r"|\S+: (?:Cannot restart a stopped heartbeat|Failed to check heartbeat)",
    ),
    _row(
        Outcome.MISCONFIGURATION,
        r"\S+: Spark speculative execution is enabled",
        "Set spark.speculation=false for this job: Hudi refuses it, since two attempts of one task "
        "may both write a file.",
    ),
    _row(
        Outcome.MISCONFIGURATION,
        r"\S+: (?:To use early conflict detection, set|To enable .*(?:failed\.writes|LAZY)"
        r"|Non-blocking concurrency control requires|Config conflict"
        r"|Cannot bootstrap the table in multi-writer mode|Cannot set heartbeat lower than"
        r"|No enum constant org\.apache\.hudi\.|Invalid WriteConcurrencyMode"
        r"|Invalid Failed Writes Cleaning|\S+ is not a subclass of)",
    ),
    _row(
        Outcome.UNKNOWN,
        r"\S+: (?:Failed to (?:archive|clean up after commit|schedule clean)"
        r"|Error limiting instant archival|Already cleaned up)",
        "Archiving and cleaning come after the commit. Look for the commit in the table's timeline "
        "(airflow hudi timeline): if it is there, nothing is lost.",
    ),
    _row(
        Outcome.UNKNOWN,
        r"\S*\.Hoodie(?:Meta|Hive)\w*SyncException\b|\S+: Could not sync using the meta sync class",
        "The sync to the catalog comes after the commit. Look for the commit in the table's timeline "
        "(airflow hudi timeline): if it is there, only the sync has to be repeated.",
    ),
)

# Errors of the data or of the job's own options: Hudi says so by the class or the text.
_OF_THE_JOB = "Correct the job's own error: its data, its schema or its options ({line})."
_JOBS = (
    _row(
        Outcome.JOB_ERROR,
        r"\S*\.(?:SchemaCompatibility|MissingSchemaField|InvalidUnionType|HoodieKey|HoodieKeyGenerator"
        r"|HoodieValidation|HoodieDuplicateKey|HoodieAvroSchema|HoodieSchema|HoodieNullSchemaType"
        r"|HoodieIncompatibleSchema|HoodieSchemaNotFound|HoodieRecordMissing\w*|HoodieTimeTravel"
        r"|HoodieSavepoint|InvalidTable|TableNotFound"
        r"|HoodieAnalysis|HoodieReadFromSource|HoodieIncrementalPathNotFound|HoodieDeltaStreamer"
        r"|HoodieStreamer|HoodieNotSupported|HoodieJsonConversion\w*|HoodieJsonToAvro\w*"
        r"|HoodieSchemaProvider|HoodieSchemaFetch|HoodieTransform\w*|HoodiePartitionPath\w*)Exception\b",
        _OF_THE_JOB,
    ),
    _row(
        Outcome.JOB_ERROR,
        r"\S+: (?:Failed (?:upsert|insert) schema compatibility check|recordKey values?: |"
        r"Property hoodie\.(?!write\.lock)\S+ not found|hoodie only support (?:\S*\.)?KryoSerializer"
        r"|'?hoodie\.\S+'? must be set|'?path'? must be|Deletes issued without any prior commits"
        r"|(?:\S+ )?[Tt]able already exists|hoodie table with name|\S+\(Part -\S+\) field not found"
        r"|.*field not found in record|.*[Ff]ield .* not found in (?:record|schema)"
        r"|Could not load key generator class|Unable to instantiate payload class"
        r"|Only simple, non-partitioned or complex key generator"
        r"|Consistent hashing bucket index does not|cannot find schema for current table"
        r"|The marker type|Unsupported table type"
        r"|Unknown (?:cleaning policy|Cleaner Policy|partition filter|file slice sort field)"
        r"|.*already disabled for the table|Precommit validation not implemented"
        r"|When key generator type is|Unsupported (?:TimeGenerator|engine|compaction trigger)"
        r"|.*is only applicable to table with consistent hash index|At least one sort field must be"
        r"|Restore is not supported when|Increase .* to be greater than|.*must be non-negative, but was"
        r"|Layout Version defined in hoodie properties has higher version"
        r"|Incremental Cleaning mode is enabled|Can only compact table of type"
        r"|Could not commit on unknown|Invalid Partition Date Format|Found hollow commit"
        r"|Cleaner cleaned up the timestamp|Please ensure sufficient commits are retained)",
        _OF_THE_JOB,
    ),
    # Avro looks for a record's class by its own loader, which has no jars of spark.jars (hudi#13410).
    _row(
        Outcome.UNKNOWN,
        r"java\.lang\.ClassCastException: .* cannot be cast to (?:class )?org\.apache\.hudi\.avro\.",
        "Give Hudi's jar to the class path of the driver and the executors (spark.driver.extraClassPath "
        "and spark.executor.extraClassPath, or the folder jars of Spark) in place of spark.jars, --jars "
        "or --packages: Hudi and Avro must come from one class loader ({line}).",
    ),
    # Hudi fills a record by the positions that another schema gives its fields.
    _row(
        Outcome.UNKNOWN,
        r"java\.lang\.ArrayIndexOutOfBoundsException\b",
        "Hudi mixed two schemas of its metadata table ({line}), most often where releases meet; see "
        "hudi#19559. Look for the commit (airflow hudi timeline); if it is not there, run again.",
        context=r"at \S*HoodieMetadataPayload\.getInsertValue\(",
    ),
    _row(
        Outcome.JOB_ERROR,
        r"java\.lang\.(?:\w*(?:NoSuchMethod|NoSuchField|AbstractMethod|IncompatibleClassChange"
        r"|ClassDefFound|UnsupportedClassVersion|Verify|ExceptionInInitializer)Error"
        r"|ClassNotFoundException)\b",
        "Give the driver one Hudi bundle, made for its Spark and Scala ({line}).",
    ),
)
FAILURES: Sequence[HudiFailure] = (*_REFUSED, *_CONFLICTS, *_TIMELINE, *_LOCKS, *_SETTINGS, *_JOBS)

_MISSING_FILE = re.compile(rf"_(?P<time>{_TIME})\.\w+\b.*{_GONE}|{_GONE}.*_(?P<of>{_TIME})\.\w+\b")
_DATA_FILE = re.compile(rf"[\da-f]{{8}}-(?:[\da-f]{{4}}-){{3}}[\da-f]{{12}}-\d+_[\d-]+_{_TIME}\.")
_CLOSES_FILE = re.compile(r"at (?:\S*\.)?org\.apache\.hudi\.io\.\S*Handle\.close\(")
_NAMES_WRITE = re.compile(rf"Failed to \w+(?: \w+)* for commit time (?P<instant>{_TIME})")
_MARKED = re.compile(
    rf"Detected conflict marker files: .* for ({_TIME})"
    rf"|Conflict markers: \[[^\]]*?_({_TIME})\.\w+\.marker\.(?:CREATE|MERGE)"
)
# An exception that the message of another names: `Type: message`, and `(Type) message` of Spark Connect.
_NESTED = re.compile(
    r"(?:^|[\s:(\"'])(?P<type>(?:[\w$]+\.)+[\w$]*(?:Exception|Error))(?:\)| ?:) (?P<message>.*)"
)
_LONGEST_LINE = 160
_FILE_GONE = (
    "Another process removed a file of commit {rival}, such as a cleaner that does not know this "
    "writer. Look at the table (airflow hudi doctor) before running again."
)
GENERAL = (
    "Hudi failed, and not by a known error of the job ({line}). Look at the table (airflow hudi doctor) "
    "and at this line before running again."
)


def diagnose(causes: Iterable[Cause], instants: Collection[str] = ()) -> Diagnosis:
    """Return what a chain of exceptions means for a writer of a table.

    :param causes: the chain, outermost first; only exceptions that the JVM threw count as Hudi's.
    :param instants: requested times of the writer's instants, as far as its log shows them.
    """
    chain = [cause for cause in causes if cause.jvm]
    whole = "\n".join(part for cause in chain for part in (_text(cause), *cause.frames))
    named = _NAMES_WRITE.search(whole)
    written = named["instant"] if named else None
    for cause in reversed(chain):
        for part in reversed(_with_nested(cause)):
            diagnosis = _of_missing_file(part, whole, instants) or _by_row(part, whole, instants)
            if diagnosis:
                return _filled(diagnosis, cause, written)
    if is_of_hudi(chain):
        return _filled(Diagnosis(Outcome.UNKNOWN, remedy=GENERAL), chain[-1], written)
    return Diagnosis(Outcome.JOB_ERROR, instant=written)


def diagnose_conflict(line: str) -> Diagnosis:
    """Return what a record means in which Hudi names two operations in conflict."""
    return diagnose([Cause("org.apache.hudi.exception.HoodieWriteConflictException", line, jvm=True)])


def is_of_hudi(chain: Sequence[Cause]) -> bool:
    """Whether Hudi, or the storage below it, threw the deepest cause of a chain."""
    if not chain:
        return False
    root = chain[-1]
    thrower = next((frame for frame in root.frames if not _LIBRARY_FRAME.match(frame)), "at ")
    by_hudi = root.type.startswith("java.") and _HUDI.match(thrower.removeprefix("at "))
    if is_named_hudi(root) or by_hudi or _OF_METADATA_TABLE.match(_caller(root)):
        return True
    return any(map(is_named_hudi, chain)) and _STORAGE_ERROR.match(root.type) is not None


def _caller(cause: Cause) -> str:
    """Return the first frame of a cause that is neither Java's nor Avro's."""
    frames = (frame for frame in cause.frames if not _LIBRARY_FRAME.match(frame))
    return next((frame for frame in frames if "org.apache.avro." not in frame), "")


def is_named_hudi(cause: Cause) -> bool:
    """Whether an exception's class is one of Hudi's."""
    return _HUDI.match(cause.type) is not None


def _with_nested(cause: Cause) -> list[Cause]:
    """Return a cause and those that its message names, the deepest last."""
    causes = [cause]
    while nested := _NESTED.search(causes[-1].message):
        causes.append(replace(cause, type=nested["type"], message=nested["message"]))
    return causes


def _text(cause: Cause) -> str:
    return f"{cause.type}: {cause.message}"


def _by_row(cause: Cause, whole: str, instants: Collection[str]) -> Diagnosis | None:
    text = _text(cause)
    for row in FAILURES:
        match = row.pattern.match(text)
        if match is None or (row.context and not row.context.search(whole)):
            continue
        groups = match.groupdict()
        instant, rival = groups.get("instant"), groups.get("rival")
        if row.of_others and (not instants or str(rival).startswith(tuple(instants))):
            continue
        if _METADATA_TABLE in text:  # no other instant of that table is the table's
            rival = None
        return Diagnosis(row.outcome, instant, rival, row.remedy, by_row=True)
    return None


def _of_missing_file(cause: Cause, whole: str, instants: Collection[str]) -> Diagnosis | None:
    """Return what a missing data file means; the writer that misses its own was rolled back."""
    match = _MISSING_FILE.search(_text(cause))
    if match is None:
        return None
    time = match["time"] or match["of"]
    if time in instants or any(map(_CLOSES_FILE.match, cause.frames)):
        return Diagnosis(Outcome.ROLLED_BACK, instant=time)
    is_of_table = _DATA_FILE.search(cause.message) or _IN_HUDI.search(whole)
    return Diagnosis(Outcome.UNKNOWN, rival=time, remedy=_FILE_GONE) if is_of_table else None


def _filled(diagnosis: Diagnosis, cause: Cause, written: str | None) -> Diagnosis:
    """Return a diagnosis with the instants, and the line, in its remedy."""
    line = _text(cause).removesuffix(": ")
    short = line.removeprefix(cause.type[: cause.type.rfind(".") + 1])
    instant = diagnosis.instant or written
    remedy = diagnosis.remedy.format(
        instant=instant or "of this write",
        rival=diagnosis.rival or "of the lines",
        line=short if len(short) < _LONGEST_LINE else f"{short[: _LONGEST_LINE - 1]}…",
    )
    return replace(diagnosis, instant=instant, remedy=remedy, cause=line)


def marked_instant(line: str) -> str | None:
    """Return the own instant that early conflict detection names with the markers."""
    match = _MARKED.search(line) if "onflict marker" in line else None
    return (match[1] or match[2]) if match else None

"""Hudi's options for a safe concurrent writer, and what contradicts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from airflow_occ_provider.hudi.format.properties import fold
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_INTERVAL_MS,
    DEFAULT_TOLERABLE_MISSES,
    INTERVAL_OPTION,
    TOLERABLE_MISSES_OPTION,
)

CONCURRENCY_MODE = "hoodie.write.concurrency.mode"
LOCK_PROVIDER = "hoodie.write.lock.provider"
EARLY_DETECTION = "hoodie.write.concurrency.early.conflict.detection.enable"
COMMIT_KEY_PREFIX = "hoodie.datasource.write.commitmeta.key.prefix"
SIGNATURE_PREFIX = "_airflow_"

# 0.15 and 1.x understand the first name, which is an alias; only 1.x knows the second one.
FAILED_WRITES_POLICY = "hoodie.cleaner.policy.failed.writes"
FAILED_WRITES_POLICIES = (FAILED_WRITES_POLICY, "hoodie.clean.failed.writes.policy")

OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
LAZY = "LAZY"
ZOOKEEPER_LOCK_PROVIDER = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
ZOOKEEPER_URL = "hoodie.write.lock.zookeeper.url"
ZOOKEEPER_BASE_PATH = "hoodie.write.lock.zookeeper.base_path"
METASTORE_URIS = "hoodie.write.lock.hivemetastore.uris"
METASTORE_DATABASE = "hoodie.write.lock.hivemetastore.database"
LOCK_HEARTBEAT_MS = "hoodie.write.lock.heartbeat_interval_ms"
METASTORE_TABLE = "hoodie.write.lock.hivemetastore.table"
DYNAMODB_LOCK_PROVIDER = "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"
DYNAMODB_TABLE = "hoodie.write.lock.dynamodb.table"
METASTORE_LOCK_PROVIDER = "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"
_ONE_PROCESS_LOCKS = ("InProcessLockProvider", "NoopLockProvider")

SERIALIZER = "spark.serializer"
CATALOG = "spark.sql.catalog.spark_catalog"
EXTENSIONS = "spark.sql.extensions"
SPARK_SETTINGS = {
    SERIALIZER: "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    CATALOG: "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    EXTENSIONS: "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
}
"""Settings of Spark that Hudi needs; a driver adds those that its configuration leaves out."""


class Rule(NamedTuple):
    """The values that an option may have beside safe concurrent writing.

    A rule is data, so that a driver can apply it.

    :param keys: pattern of the whole key, or of a variable's name.
    :param allowed: pattern of the whole value, its white space folded.
    :param remedy: what to do about another value.
    """

    keys: str
    allowed: str
    remedy: str


def option_pattern(*keys: str) -> str:
    """Return the pattern of Hudi's options.

    With ``spark.`` before them they reach SQL writers.
    """
    return f"(?:spark\\.)?(?:{'|'.join(map(re.escape, keys))})"


# Of Spark's own process, or as the property by which Spark passes it to a driver elsewhere.
_VARIABLE = r"(?:spark\.[\w.-]*[eE]nv\.)?"
_AT_LEAST = {0: "[0-9]{1,9}", 1: "[1-9][0-9]{0,8}", 1000: "[1-9][0-9]{3,8}"}
RETRIES_IN_JOB = "hoodie.write.num.retries.on.conflict.failures"
FILE_LOCK_EXPIRE = "hoodie.write.lock.filesystem.expire"
FILE_LOCK_PATH = "hoodie.write.lock.filesystem.path"
_NUMBERS = {
    INTERVAL_OPTION: (1000, "milliseconds"),  # a storage's times may be whole seconds
    TOLERABLE_MISSES_OPTION: (1, "misses"),
    RETRIES_IN_JOB: (0, "retries"),
    FILE_LOCK_EXPIRE: (0, "minutes"),
}
"""The options that this provider reads as numbers, as Hudi does: the least, and what it counts."""
_NO_CONNECT = (
    "remove it: a server of Spark Connect is shared, so that the job would write outside its driver"
)
CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE")
RULES = (
    Rule(
        option_pattern(CONCURRENCY_MODE),
        f"(?i:(?!{NON_BLOCKING}).*)",
        "remove it: with non-blocking concurrency control (NBCC) overlapping writers all commit, so "
        "that Hudi finds no conflict to retry, and nothing shows which of their rows remain",
    ),
    Rule(
        option_pattern(CONCURRENCY_MODE),
        f"(?i:{OPTIMISTIC}|{NON_BLOCKING})",
        f"remove it, or set it to {OPTIMISTIC}: otherwise Hudi does not check for conflicts",
    ),
    Rule(
        option_pattern(*FAILED_WRITES_POLICIES),
        f"(?i:{LAZY})",
        "remove it, or set it to LAZY: any other policy rolls back live writers",
    ),
    Rule(
        option_pattern(LOCK_PROVIDER),
        f".*(?<!{')(?<!'.join(_ONE_PROCESS_LOCKS)})",
        "set it in the lock connection, if all writers of the table are tasks with that connection",
    ),
    Rule(
        option_pattern(COMMIT_KEY_PREFIX),
        "|".join(SIGNATURE_PREFIX[:length] for length in range(len(SIGNATURE_PREFIX) + 1)),
        "remove it: otherwise commits cannot be signed, and a later try cannot find them",
    ),
    Rule(
        f"(?:spark\\.)?{SIGNATURE_PREFIX}(?s:.*)",
        "(?!)",
        f"choose another key: keys that start with {SIGNATURE_PREFIX} sign the commit",
    ),
    Rule(rf"spark\.remote|{_VARIABLE}(?:SPARK_REMOTE|SPARK_CONNECT_MODE_ENABLED)", "(?!)", _NO_CONNECT),
    Rule(rf"spark\.api\.mode|{_VARIABLE}SPARK_API_MODE", "(?i:classic)|", _NO_CONNECT),
    Rule(r"spark\.plugins", r"(?!.*\bSparkConnectPlugin\b).*", _NO_CONNECT),
    Rule(
        r"spark\.speculation",
        "(?i:false)",
        "remove it: two attempts of one task of Spark may write the same file, which damages the table",
    ),
    Rule(
        option_pattern("hoodie.datasource.write.dataframe.path.enable"),
        "(?i:false)",
        "remove it: this path of Hudi 1.3 counts nothing before it writes, and the verdicts on running "
        "writes read that count; it was not run with this provider",
    ),
    Rule(
        re.escape(SERIALIZER),
        re.escape(SPARK_SETTINGS[SERIALIZER]),
        f"remove it: Hudi writes only with {SPARK_SETTINGS[SERIALIZER]}, which is the default here",
    ),
    *(
        Rule(
            option_pattern(key),
            _AT_LEAST[least],
            f"give a whole number of {unit}, without a unit, from {least} to 999999999",
        )
        for key, (least, unit) in _NUMBERS.items()
    ),
)
SQL_RULES = (
    Rule(
        re.escape(CATALOG),
        re.escape(SPARK_SETTINGS[CATALOG]),
        f"remove it: Hudi's SQL needs {SPARK_SETTINGS[CATALOG]}, which is the default here",
    ),
)
"""Further rules for jobs that are Spark SQL."""


_LOCK = (  # what a lock is, not how long it is waited for
    r"hoodie\.write\.lock\.(?:provider|zookeeper\.(?:url|port|base_path|lock_key)"
    r"|hivemetastore\.(?:uris|database|table)|dynamodb\.(?:table|partition_key|region|endpoint_url)"
    r"|filesystem\.path)"
)


def job_rules(options: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules for what a job's own code sets.

    It may repeat the lock and the heartbeat of its attempt. With any other, it would not exclude its
    neighbours, or would be taken for dead by them.

    :param options: of the attempt.
    """
    names = [key for key in options if re.fullmatch(_LOCK, key)]
    remedy = "remove it from the job: all writers of a table need the lock of lock_conn_id"
    heartbeat = (INTERVAL_OPTION, TOLERABLE_MISSES_OPTION)
    return (
        *RULES,
        *(Rule(option_pattern(name), re.escape(fold(options[name])), remedy) for name in names),
        Rule(rf"(?:spark\.)?(?!(?:{'|'.join(map(re.escape, names)) or '!'})$){_LOCK}", "(?!)", remedy),
        *(
            Rule(
                option_pattern(name),
                re.escape(fold(options[name])),
                "remove it from the job: use hudi_options",
            )
            for name in heartbeat
            if name in options
        ),
    )


class Contradiction(NamedTuple):
    """An option that would remove the protection.

    :param source: the place where it was given, such as ``hudi_options`` or a file's path.
    :param key: the option as it was written there.
    """

    source: str
    key: str
    value: str
    remedy: str


def zookeeper_lock_options(
    hosts: str,
    base_path: str,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    wait_time_ms: int,
    num_retries: int,
) -> dict[str, str]:
    """Return the options of Hudi's ZooKeeper lock provider.

    ``hosts`` are ``host:port`` pairs separated by commas, since the provider ignores
    ``hoodie.write.lock.zookeeper.port``. The lock key is not set, so Hudi uses each table's name.
    """
    return {
        LOCK_PROVIDER: ZOOKEEPER_LOCK_PROVIDER,
        ZOOKEEPER_URL: hosts,
        ZOOKEEPER_BASE_PATH: base_path,
        "hoodie.write.lock.zookeeper.session_timeout_ms": str(session_timeout_ms),
        "hoodie.write.lock.zookeeper.connection_timeout_ms": str(connection_timeout_ms),
        "hoodie.write.lock.wait_time_ms": str(wait_time_ms),
        "hoodie.write.lock.client.num_retries": str(num_retries),
    }


def dynamodb_lock_options(
    table: str, region: str, endpoint: str, *, wait_time_ms: int, num_retries: int
) -> dict[str, str]:
    """Return the options of Hudi's DynamoDB lock provider.

    Its partition key is not set, so Hudi uses each table's name. Hudi creates a table that is missing.

    :param table: of DynamoDB, in which the locks are.
    :param region: of the table.
    :param endpoint: URL of a server other than Amazon's; empty for Amazon's.
    """
    return {
        LOCK_PROVIDER: DYNAMODB_LOCK_PROVIDER,
        DYNAMODB_TABLE: table,
        "hoodie.write.lock.dynamodb.region": region,
        **({"hoodie.write.lock.dynamodb.endpoint_url": endpoint} if endpoint else {}),
        "hoodie.write.lock.wait_time_ms": str(wait_time_ms),
        "hoodie.write.lock.client.num_retries": str(num_retries),
    }


def metastore_lock_options(
    uris: str,
    database: str,
    table: str,
    *,
    wait_time_ms: int,
    heartbeat_interval_ms: int,
    num_retries: int,
) -> dict[str, str]:
    """Return the options of Hudi's metastore lock provider (0.15 to 1.2).

    Database and table name the lock, for all tables that a driver writes. They need not exist.
    """
    return {
        LOCK_PROVIDER: METASTORE_LOCK_PROVIDER,
        METASTORE_URIS: uris,
        METASTORE_DATABASE: database,
        METASTORE_TABLE: table,
        "hoodie.write.lock.wait_time_ms": str(wait_time_ms),
        LOCK_HEARTBEAT_MS: str(heartbeat_interval_ms),
        "hoodie.write.lock.client.num_retries": str(num_retries),
    }


def writer_options(lock: Mapping[str, str], early_detection: Mapping[str, str]) -> dict[str, str]:
    """Return the options of every protected writer.

    ``auto.upgrade`` is off because a newer writer would roll all others back to upgrade the table.
    ``avoid.duplicate.plan`` keeps two lazy cleans from rolling one instant back twice.
    """
    return {
        CONCURRENCY_MODE: OPTIMISTIC,
        FAILED_WRITES_POLICY: LAZY,
        **lock,
        INTERVAL_OPTION: str(DEFAULT_INTERVAL_MS),
        TOLERABLE_MISSES_OPTION: str(DEFAULT_TOLERABLE_MISSES),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.rollback.avoid.duplicate.plan": "true",
        **early_detection,
    }


def contradictions(
    options: Iterable[tuple[str, object]], source: str, rules: Iterable[Rule] = RULES
) -> Iterator[Contradiction]:
    """Yield every option that contradicts safe concurrent writing.

    Spark's own settings are checked too: ``spark.hoodie.*`` reaches SQL writers.
    """
    for key, setting in options:
        name = str(key).strip()
        value = fold(str(setting))
        for rule in rules:
            if re.fullmatch(rule.keys, name) and not re.fullmatch(rule.allowed, value):
                yield Contradiction(source, str(key), value, rule.remedy)


def is_process_local(lock_provider: str) -> bool:
    """Whether a lock provider excludes no writer outside its own process."""
    return lock_provider.endswith(_ONE_PROCESS_LOCKS)

"""Locks of Hudi that the writers of a table do not have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, is_before
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, is_original, is_plausible, some
from airflow_occ_provider.hudi.writer.options import (
    FILE_LOCK_PATH,
    LOCK_PROVIDER,
    METASTORE_LOCK_PROVIDER,
)
from airflow_occ_provider.spelling import spell_time

LOCK_CHECKS = frozenset({"other_lock", "unused_lock", "held_lock"})
"""The checks of this module; their evidence names lock services and paths in them."""
_CLOCKS_APART_MS = 60_000
_LONGEST_HELD_MS = 30 * 60_000
_PREFIX = "hoodie.write.lock."
_LOCK_KEY = f"{_PREFIX}zookeeper.lock_key"
_ADDRESSES = (f"{_PREFIX}zookeeper.url", f"{_PREFIX}hivemetastore.uris")
_NAMES = (
    *(f"{_PREFIX}zookeeper.base_path", _LOCK_KEY, FILE_LOCK_PATH),
    *(f"{_PREFIX}hivemetastore.database", f"{_PREFIX}hivemetastore.table"),
)
_GIVE_IT = (
    "give every writer of the table the lock of this connection (airflow hudi conf prints the options), "
    "or examine the table with the connection that its writers use"
)


@dataclass(frozen=True, slots=True)
class LockUse:
    """How often Hudi's lock of a connection was requested for a table.

    :param path: its path in the lock service, or that of its file.
    :param since_ms: epoch milliseconds since which all requests are counted, 0 for always; ``None`` if
        the lock service does not show it.
    """

    path: str
    times: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class OtherLock:
    """The file of another lock of Hudi beside a table.

    :param last_ms: epoch milliseconds at which that lock was held, or may have been held, last.
    """

    path: str
    last_ms: int


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A lock file of Hudi that exists.

    :param since_ms: epoch milliseconds at which it was made.
    """

    path: str
    since_ms: int


def held_lock_files(files: Iterable[HeldFile], now_ms: int) -> Iterator[Finding]:
    """Yield the lock files that have been there for longer than a commit takes.

    Hudi's file system lock has no renewal: the file of a holder that died stays (Hudi 1.2.0,
    ``FileSystemBasedLockProvider``).
    """
    for file in files:
        if now_ms - file.since_ms >= _LONGEST_HELD_MS:
            yield Finding(
                "held_lock",
                Severity.WARNING,
                (),
                f"the lock file {file.path} has been there since {spell_time(file.since_ms)}: no writer "
                "with this lock can commit before it is deleted",
                "when no driver of the table runs, delete it; the holder has probably died. Prefer a "
                "lock that expires, such as ZooKeeper",
            )


def unshared_lock(
    use: LockUse, writes: Iterable[ConcurrentOperation], signed: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding if more writes completed than requested the lock.

    A writer with optimistic concurrency control requests it at least once. Writes are counted only if
    their files have their writer's times. A single writer needs no lock, so that unsigned writes
    count only if one of them ran beside another write.

    :param writes: the completed writes of the table.
    :param signed: requested times of the writes of this provider, which all had a lock.
    """
    since_ms = use.since_ms + _CLOCKS_APART_MS if use.since_ms else 0
    later = [write for write in writes if _completed_after(write, since_ms)]
    originals = [write for write in later if is_original(write)]
    ours = tuple(sorted({write.instant.time for write in originals} & set(signed)))
    together = _together(later)
    severity = Severity.NOTICE if use.since_ms is None else Severity.WARNING
    if len(ours) > use.times:
        evidence = (
            f"{_requests(use)}, but {len(ours)} writes of HudiWriteOperator have completed "
            f"({some(ours)}): they used another lock"
        )
        yield Finding("other_lock", severity, ours, evidence, _GIVE_IT)
    elif len(originals) > use.times and together:
        evidence = (
            f"{_requests(use)}, but {len(originals)} writes have completed, {' and '.join(together)} at "
            f"the same time: at least {len(originals) - use.times} used another lock, or none"
        )
        yield Finding("unused_lock", severity, together, evidence, _GIVE_IT)


def other_lock_files(
    files: Iterable[OtherLock], writes: Sequence[ConcurrentOperation]
) -> Iterator[Finding]:
    """Yield the lock files that a writer of the table's timeline may have used.

    A lock that was last held before the youngest write may be one that the writers have given up.

    :param writes: the completed writes of the table.
    """
    begun = sorted(write.requested_ms for write in writes if write.requested_ms is not None)
    for file in files:
        if begun and file.last_ms >= begun[0]:
            is_recent = file.last_ms >= begun[-1]
            yield Finding(
                "other_lock",
                Severity.WARNING if is_recent else Severity.NOTICE,
                (),
                f"{file.path} is a lock of Hudi, but not that of the connection, and was held until "
                f"{spell_time(file.last_ms)} at most"
                f"{'' if is_recent else ', before the youngest write'}",
                _GIVE_IT,
            )


def other_lock_options(properties: Mapping[str, str], options: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding if ``hoodie.properties`` names another lock than the connection.

    Spark writes take from there each option that the job itself does not name, before those of
    ``hudi-defaults.conf`` (Hudi 1.2.0, ``HoodieSparkSqlWriter.mergeParamsAndGetHoodieConfig``).

    :param properties: of the table.
    :param options: the lock options of the connection.
    """
    wanted = {_LOCK_KEY: properties.get("hoodie.table.name", ""), **options}
    recorded = {
        key: properties[key] for key in (LOCK_PROVIDER, *_ADDRESSES, *_NAMES) if key in properties
    }
    other = [key for key, value in recorded.items() if not _is_same(key, value, wanted.get(key))]
    if other:
        named = "; ".join(
            f"{key}={recorded[key]}, and the connection has {wanted.get(key) or 'none'}" for key in other
        )
        yield Finding(
            "other_lock",
            Severity.WARNING,
            (),
            f"hoodie.properties names another lock than the connection: {named}",
            "remove these options from hoodie.properties: Spark jobs take them from there",
        )


def _completed_after(write: ConcurrentOperation, since_ms: int) -> bool:
    is_later = write.completed_ms is not None and write.completed_ms > since_ms
    return is_later and not write.is_table_service and is_plausible(write)


def _together(writes: Iterable[ConcurrentOperation]) -> tuple[str, ...]:
    """Return two writes of which one was requested before the other had completed; empty if none."""
    last: ConcurrentOperation | None = None
    for write in sorted(writes, key=lambda write: write.requested_ms or 0):
        beside = last and is_before(write.requested_ms, last.completed_ms)
        if last and beside and (is_original(write) or is_original(last)):
            return last.instant.time, write.instant.time
        if last is None or is_before(last.completed_ms, write.completed_ms):
            last = write
    return ()


def fragile_lock(options: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding if Hudi's lock is in a metastore: it may be lost in silence.

    Read in hudi#19334 and hudi#19370, which were merged after 1.2.0; not run.

    :param options: the lock options of the connection.
    """
    if options.get(LOCK_PROVIDER) == METASTORE_LOCK_PROVIDER:
        yield Finding(
            "fragile_lock",
            Severity.NOTICE,
            (),
            "with Hudi 1.2.0 and older, one failed heartbeat of a lock in a metastore ends all later "
            "ones: the metastore then drops the lock, and the writer goes on as if it held it",
            "keep Hudi's commits shorter than the metastore's lock time-out, and give tasks a scope or "
            "isolation='serializable', which the queue keeps; or use ZooKeeper",
        )


def _requests(use: LockUse) -> str:
    if use.since_ms is None:
        return (
            f"Hudi's lock {use.path} does not exist (it looks the same if the lock service has lost its "
            "data since)"
        )
    since = f" since {spell_time(use.since_ms)}" if use.since_ms else ""
    return f"Hudi's lock {use.path} was requested {use.times} times{since}"


def _is_same(key: str, value: str, wanted: str | None) -> bool:
    """Whether two options mean the same; one server in common makes two lists of servers equal."""
    if wanted is None or key not in _ADDRESSES:
        return value == wanted
    (hosts, _, root), (others, _, other_root) = (_split(servers) for servers in (value, wanted))
    return root == other_root and bool(set(hosts.split(",")) & set(others.split(",")))


def _split(servers: str) -> tuple[str, str, str]:
    return servers.replace(" ", "").replace("thrift://", "").partition("/")

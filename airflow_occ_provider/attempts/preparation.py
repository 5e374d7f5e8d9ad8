"""Prepares one attempt: Hudi's options, their reasons, and what the UI may show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.attempts.commit import table_before
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, TableBefore
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import SparkJob, effective_options
from airflow_occ_provider.attempts.write_spec import WritePolicy
from airflow_occ_provider.errors import ConfigurationError, RestorePendingError
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.doctor.writers import FINISH_RESTORE
from airflow_occ_provider.hudi.writer import early_detection
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.options import (
    LOCK_PROVIDER,
    SIGNATURE_PREFIX,
    ZOOKEEPER_LOCK_PROVIDER,
    writer_options,
)
from airflow_occ_provider.hudi.writer.secrets import redact
from airflow_occ_provider.hudi.writer.storage_lock import FILE_LOCK_PROVIDER, file_lock_store
from airflow_occ_provider.hudi.writer.table_options import table_options
from airflow_occ_provider.storage.address import parse_table_path
from airflow_occ_provider.storage.snapshot import Snapshot

_WRITES_LOOKED_AT = 10


@dataclass(frozen=True, slots=True)
class Preparation:
    """The decisions for one attempt.

    :param site: the settings that ``spark-submit`` finds on this machine.
    :param options: every Hudi option that the driver receives.
    :param early_detection: how early conflict detection is set, and why.
    :param snapshot: of the table for which they were made.
    :param before: what the table has now.
    :param without: prefixes of the site's options that do not go with the attempt.
    :param shown: the options that are not the site's own, without their secrets, for the UI.
    """

    signature: Signature
    site: Site
    options: Mapping[str, str]
    early_detection: str
    snapshot: Snapshot
    before: TableBefore = NOTHING_BEFORE
    without: tuple[str, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Protection:
    """The protection of a writer that the user chose."""

    lock: LockConnection
    policy: WritePolicy
    hudi_options: Mapping[str, Any]

    def options(self, snapshot: Snapshot) -> tuple[dict[str, str], str]:
        """Return Hudi's options for it, and the setting of early detection.

        :raises ConfigurationError: if the lock cannot serve the early detection strategy.
        """
        scheme, _ = parse_table_path(snapshot.path)
        early = self.policy.early_conflict_detection
        choice = early_detection.choose(early, scheme, _known_paths(snapshot, scheme))
        lock = self.lock.options(snapshot.path)
        if early is EarlyDetection.TRANSACTION_DIRECT and ZOOKEEPER_LOCK_PROVIDER not in lock.values():
            raise ConfigurationError(
                "early_conflict_detection",
                f"{early} locks each file in ZooKeeper, and {self.lock.lock_conn_id!r} is none",
                remedy="use 'simple_direct', or a ZooKeeper connection",
            )
        return {
            **writer_options(lock, choice.options),
            **table_options(snapshot.config),
            **strategy_option(self.policy.conflict_resolution),
        }, choice.reason


def strategy_option(resolution: Strategy | None) -> dict[str, str]:
    """Return the option for a conflict resolution strategy; ``None`` adds none."""
    return {STRATEGY_OPTION: resolution.class_name} if resolution else {}


def prepare(
    protection: Protection, job: SparkJob, site: Site, signature: Signature, snapshot: Snapshot
) -> Preparation:
    """Decide the options of an attempt.

    :raises ConfigurationError: if anything that the user gave removes the protection.
    """
    protected, reason = protection.options(snapshot)
    ours = {**protected, **signature.options()}
    options = effective_options(ours, protection.hudi_options, job, site)
    if place := file_lock_store(options, snapshot.path):  # the task's own options, or the site's
        raise ConfigurationError(
            LOCK_PROVIDER,
            f"{FILE_LOCK_PROVIDER} cannot lock in an object store: {place}",
            remedy="leave the lock to the lock connection",
        )
    ours.update(dict.fromkeys(protection.hudi_options, ""))
    shown = redact({key: value for key, value in options.items() if key in ours})
    # Airflow masks each value whose key contains "token", and with it the order of the lease.
    shown["_airflow_order"] = shown.pop(f"{SIGNATURE_PREFIX}order_token")
    before = table_before(snapshot)
    return Preparation(signature, site, options, reason, snapshot, before, shown=shown)


def refuse_pending_restore(snapshot: Snapshot) -> None:
    """Refuse to start a driver on a table that is being restored.

    :raises RestorePendingError: if the timeline has a restore that is not completed: Hudi starts no
        write beside one (1.2.0, ``BaseHoodieWriteClient.startCommit``).
    """
    restores = (
        instant for instant in snapshot.timeline if instant.action == "restore" and not instant.completed
    )
    restore = next(restores, None)
    if restore:
        raise RestorePendingError(
            f"{snapshot.path} is being restored: {restore} is not completed, and Hudi refuses every "
            "write until it is; no driver was started",
            remedy=f"wait until it is completed; if no process continues it, {FINISH_RESTORE}",
        )


def _known_paths(snapshot: Snapshot, scheme: str) -> tuple[str, ...] | None:
    """Return the partition paths of the youngest writes, if they matter on the storage."""
    if scheme == "file":
        return None
    writes = snapshot.timeline.completed_writes()[-_WRITES_LOOKED_AT:]
    commits = filter(None, map(snapshot.reader.commit, writes))
    return tuple(path for commit in commits for path in commit.partitions)

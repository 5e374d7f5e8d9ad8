"""A lock backend as it is added: one file with its hook, and one form."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_occ_provider.hooks.hudi_lock import Fields, HudiLockHook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue
from tests.contract.toy_store import Bucket, ToyStore

PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
BUCKETS = {"lake": Bucket()}


class BucketLockHook(HudiLockHook):
    """Leases in a bucket, and Hudi's lock beside the table."""

    conn_type = "bucket_lock"
    hook_name = "Hudi lock (bucket)"

    def service_lock(self):
        return LockBesideTable()

    def service_leases(self):
        return BucketLeases(self.connection.host, self.fields)


class LockBesideTable:
    def options(self, table):
        return {LOCK_PROVIDER: PROVIDER, "hoodie.write.lock.filesystem.path": f"{table}/.hoodie/lock"}

    def view(self, table, table_name):
        return None


@dataclass(frozen=True)
class BucketLeases:
    bucket: str
    fields: Fields

    def beside(self, lock):
        return self

    def terms(self):
        return Terms(self.fields.number("lease_ttl_s", 60) * 1000, 600_000)

    def open(self):
        return Queue(ToyStore(BUCKETS[self.bucket]))

    def validate(self):
        self.terms()

    def test(self):
        self.open().requests()
        return "The bucket answers."


def bucket_lock():
    return {
        "connection-type": "bucket_lock",
        "hook-class-name": "tests.unit.bucket_lock.BucketLockHook",
        "hook-name": "Hudi lock (bucket)",
        "ui-field-behaviour": {"hidden-fields": ["schema"]},
        "conn-fields": {},
    }

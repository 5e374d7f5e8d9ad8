"""A lock connection as another package adds it: its hook, and its leases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from airflow_occ_provider.attempts.locks import StorageLock
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue
from tests.contract.toy_store import Bucket, ToyStore

BUCKETS = defaultdict(Bucket)
CLAIM_S = 600


class BucketLockHook(HudiLockHook):
    """Leases in a bucket, and Hudi's lock beside each table."""

    conn_type = "bucket_lock"
    hook_name = "Hudi lock (bucket)"

    def service_lock(self):
        return StorageLock()

    def service_leases(self):
        lease_s = ttl_s(self.fields, "lease_ttl_s", 60)
        ttls = Terms(lease_s * 1000, max(CLAIM_S, lease_s) * 1000)
        return BucketLeases(self.connection.host or "", ttls, answer_timeout_s(self.fields))


@dataclass(frozen=True)
class BucketLeases:
    """Leases in a bucket: a ``LeaseBackend``."""

    bucket: str
    ttls: Terms
    timeout_s: float

    def beside(self, _lock, /):
        return self

    def terms(self):
        return self.ttls

    def open(self):
        return Queue(ToyStore(BUCKETS[self.bucket], self.timeout_s))

    def validate(self):
        if not self.bucket:
            raise ConfigurationError("host", "is empty", remedy="enter the name of a bucket")

    def test(self):
        self.open().requests()
        return "The bucket answers."

"""The connection ``hudi_dynamodb_lock``: lock and leases in DynamoDB."""

from __future__ import annotations

from airflow_occ_provider.attempts.locks import DynamoLock
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.hooks.storage_lock import aws_hook, connection_of
from airflow_occ_provider.leases.dynamodb.access import DynamoAccess
from airflow_occ_provider.leases.dynamodb.backend import LEASE_QUEUE, DynamoLeases
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.storage.address import BUCKET_PACE


class HudiDynamoLockHook(HudiLockHook):
    """The hook of a ``hudi_dynamodb_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_dynamodb_lock"
    hook_name = "Hudi lock (DynamoDB)"
    limits = (
        "Not checked: Hudi's own lock. A driver needs hudi-aws-bundle and credentials of its own, and "
        "looks for the class before its job begins. No test of this provider has run that class."
    )

    @property
    def access(self) -> DynamoAccess:
        """The way to the table of the leases."""
        table = (self.connection.host or "").strip()
        if not table:
            raise self.fields.error("host", "is empty", "enter the name of a table, such as airflow_occ")
        fields, conn_id = self.fields, self.fields.text("storage_conn_id")
        session = None
        if conn_id:
            connection_of(conn_id, "aws", fields)  # Airflow's hook takes others if it is missing
            session = aws_hook(conn_id, "dynamodb", fields).get_session
        return DynamoAccess(table, fields.text("region"), fields.text("endpoint_url"), session)

    def service_lock(self) -> DynamoLock:
        """Return Hudi's lock in DynamoDB.

        :raises ConfigurationError: without a region: drivers on different machines would take different
            ones, each with a lock of its own (``DynamoDbBasedLockConfig``).
        """
        fields = self.fields
        if not fields.text("region"):
            raise fields.error("region", "is empty", "enter the region of both tables")
        return DynamoLock(
            fields.text("region"),
            fields.text("lock_table", "hudi_locks"),
            fields.text("endpoint_url"),
            wait_time_ms=fields.number("wait_time_ms", 60_000, at_least=1),
            num_retries=fields.number("num_retries", 50),
        )

    def service_leases(self) -> DynamoLeases:
        """Return the leases in DynamoDB."""
        fields = self.fields
        lease_s = ttl_s(fields, "lease_ttl_s", BUCKET_PACE.ttl_s)
        claim_s = fields.number("claim_ttl_s", max(BUCKET_PACE.claim_ttl_s, lease_s), at_least=lease_s)
        return DynamoLeases(
            self.access,
            fields.text("lease_queue", LEASE_QUEUE),
            Terms(lease_s * 1000, claim_s * 1000),
            fields.number("lease_poll_s", BUCKET_PACE.poll_s, at_least=1),
            answer_timeout_s(fields),
        )

"""DynamoDB on a loopback port: Amazon's own implementation for tests, from Maven."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
from collections.abc import Mapping
from typing import Any

from airflow_occ_provider.embedded.bundle import resolve_jar, resolve_jars
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.service import EmbeddedService
from airflow_occ_provider.hudi.writer.storage_lock import file_lock_options
from airflow_occ_provider.leases.dynamodb.access import NODE, QUEUE, DynamoAccess

VERSION = "2.6.0"
_SQLITE = "1.0.392"
_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


class EmbeddedDynamo(EmbeddedService):
    """A server of DynamoDB's API during a ``with`` block; its tables are in memory.

    It has no setting for the address that it listens on. Its conditions and transactions are exact.
    """

    _NAME = "DynamoDB"
    _LOG = "dynamodb.log"

    @staticmethod
    def is_available() -> bool:
        """Whether its library for SQLite exists for this machine."""
        return (platform.system(), platform.machine()) == ("Linux", "x86_64")

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def access(self, table: str = "leases") -> DynamoAccess:
        """Return the way to a table."""
        return DynamoAccess(table, "us-east-1", self.url, any_session)

    @property
    def connections(self) -> dict[str, dict[str, Any]]:
        """Airflow connections by their ids: the lock connection, and that of its credentials."""
        lock = file_lock_options(expire_min=10, num_retries=240)
        extra = {
            "region": "us-east-1",
            "endpoint_url": self.url,
            "storage_conn_id": "aws_leases",
            "hudi_lock_options": "\n".join(f"{key}={value}" for key, value in lock.items()),
        }
        return {
            "hudi_lock_default": {"conn_type": "hudi_dynamodb_lock", "host": "leases", "extra": extra},
            "aws_leases": {"conn_type": "aws", "login": "k", "password": "s"},
        }

    def make_table(self, table: str = "leases") -> None:
        """Create a table for leases, unless it is there."""
        client = self.access(table).client(30)
        keys = {QUEUE: "HASH", NODE: "RANGE"}
        with contextlib.suppress(client.exceptions.ResourceInUseException):
            client.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
            )

    def _command(self) -> list[str]:
        jars = resolve_jars(f"dynamodb-local-{VERSION}", [("com.amazonaws", "DynamoDBLocal", VERSION)])
        library = resolve_jar(
            "com.almworks.sqlite4java", "libsqlite4java-linux-amd64", _SQLITE, kind="so"
        )
        return [
            str(find_java_home() / "bin" / "java"),
            "-Xmx256m",
            f"-Djava.library.path={library.parent}",
            *("-cp", f"{jars}/*", _MAIN),
            *("-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self.port)),
        ]

    def _variables(self) -> Mapping[str, str]:
        return {**os.environ, "DDB_LOCAL_TELEMETRY": "0"}

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


def any_session() -> Any:
    """Return a session with keys that the server takes as any."""
    import boto3

    return boto3.session.Session(aws_access_key_id="k", aws_secret_access_key="s")

"""DynamoDB on a loopback port, by moto: ``python -m tests.services.dynamodb PORT``.

moto checks a condition and makes the change in two steps. Here a lock makes one of both: requests are
carried out one after the other, as DynamoDB does it for each item.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.service import EmbeddedService
from airflow_occ_provider.hudi.writer.options import FILE_LOCK_PATH
from airflow_occ_provider.hudi.writer.storage_lock import file_lock_options
from airflow_occ_provider.leases.dynamodb.access import NODE, QUEUE, DynamoAccess


class EmbeddedDynamo(EmbeddedService):
    """A server of DynamoDB's API during a ``with`` block; its tables are in memory."""

    _NAME = "DynamoDB"
    _LOG = "dynamodb.log"

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def access(self, table: str = "leases") -> DynamoAccess:
        """Return the way to a table."""
        return DynamoAccess(table, "us-east-1", self.url, any_session)

    def connections(self, lock_folder: Path) -> dict[str, dict[str, Any]]:
        """Return Airflow connections by their ids: the lock connection, and that of its credentials.

        :param lock_folder: in which Hudi locks: no bundle with its class for DynamoDB can be had.
        """
        lock_folder.mkdir(parents=True)
        lock = file_lock_options(expire_min=10, num_retries=240) | {FILE_LOCK_PATH: str(lock_folder)}
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
        return [sys.executable, "-m", "tests.services.dynamodb", str(self.port)]

    def _variables(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@functools.cache
def any_session() -> Any:
    """Return a session with keys that the server takes as any; one reads the API's files once."""
    import boto3

    return boto3.session.Session(aws_access_key_id="k", aws_secret_access_key="s")


def serve(port: int, *, one_by_one: bool = True) -> None:
    """Serve until the process ends.

    :param one_by_one: whether requests wait for each other.
    """
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    from tests.services.quiet import QuietHandler

    moto = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock() if one_by_one else contextlib.nullcontext()

    def answer(environ: Any, start_response: Any) -> list[bytes]:
        with turn:
            return list(moto(environ, start_response))

    make_server("127.0.0.1", port, answer, threaded=True, request_handler=QuietHandler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

"""The way to a table of DynamoDB that keeps leases; the client is imported late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from airflow_occ_provider.errors import ConfigurationError, install_extra

Session: TypeAlias = Callable[[], Any]
"""Returns a session of boto3, which renews its credentials itself."""

QUEUE, NODE = "queue", "node"
"""The names of the table's partition key and sort key, both strings."""


@dataclass(frozen=True, slots=True)
class DynamoAccess:
    """The way to a table of DynamoDB.

    :param table: its name, or its ARN.
    :param region: of the table; by default that of the session.
    :param endpoint: URL of a server other than Amazon's.
    :param session: makes the session; by default one with the credentials of the process.
    """

    table: str
    region: str = ""
    endpoint: str = ""
    session: Session | None = field(default=None, repr=False)

    def client(self, timeout_s: float) -> Any:
        """Return a client that sends each request once; nothing is sent yet.

        A request whose answer was lost must not be repeated by the client: its condition no longer
        holds then, though it was carried out.

        :param timeout_s: for the connection, and for each answer.
        :raises ConfigurationError: if the client is not installed, or a value is wrong.
        """
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError as error:
            raise ConfigurationError(
                "type",
                f"the client of DynamoDB is not installed ({error})",
                remedy=install_extra("dynamodb"),
            ) from error
        config = Config(
            connect_timeout=timeout_s, read_timeout=timeout_s, retries={"total_max_attempts": 1}
        )
        try:
            return (self.session or boto3.session.Session)().client(
                "dynamodb",
                region_name=self.region or None,
                endpoint_url=self.endpoint or None,
                config=config,
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigurationError("region", str(error), remedy="enter the table's region") from error

    @property
    def creation(self) -> str:
        """The command that creates the table."""
        keys = f"AttributeName={QUEUE},KeyType=HASH AttributeName={NODE},KeyType=RANGE"
        types = f"AttributeName={QUEUE},AttributeType=S AttributeName={NODE},AttributeType=S"
        region = f" --region {self.region}" if self.region else ""
        return (
            f"aws dynamodb create-table --table-name {self.table} --key-schema {keys} "
            f"--attribute-definitions {types} --billing-mode PAY_PER_REQUEST{region}"
        )

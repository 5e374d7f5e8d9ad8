"""The way to a table of DynamoDB that keeps leases; the client is imported late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from airflow_occ_provider.errors import (
    ConfigurationError,
    LockUnreachableError,
    OccError,
    install_extra,
)
from airflow_occ_provider.leases.backend import require_module

Session: TypeAlias = Callable[[], Any]
"""Returns a session of boto3, which renews its credentials itself."""

QUEUE, NODE = "queue", "node"
"""The names of the table's partition key and sort key, both strings."""
_DENIED = frozenset(
    {
        *("AccessDeniedException", "AccessDenied", "UnrecognizedClientException"),
        *("InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignatureException"),
        *("ExpiredTokenException", "ExpiredToken", "MissingAuthenticationTokenException"),
        *("InvalidClientTokenId", "InvalidIdentityToken"),
    }
)


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
        """Return a client that sends each request once.

        A request whose answer was lost must not be repeated by the client: its condition no longer
        holds then, though it was carried out. A session of a role asks AWS for its credentials.

        :param timeout_s: for the connection and the answer together.
        :raises ConfigurationError: if the client is not installed, a value is wrong, or credentials are
            refused.
        :raises LockUnreachableError: if AWS gives no credentials now.
        """
        require_client()
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError, NoRegionError

        config = Config(
            connect_timeout=timeout_s / 2,
            read_timeout=timeout_s / 2,
            retries={"total_max_attempts": 1},
        )
        try:
            session = (self.session or boto3.session.Session)()
            return session.client(
                "dynamodb",
                region_name=self.region or None,
                endpoint_url=self.endpoint or None,
                config=config,
            )
        except (NoRegionError, ValueError) as error:
            raise ConfigurationError("region", str(error), remedy="enter the table's region") from error
        except ClientError as error:
            raise self.refused(error, error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise self.unreachable(error) from error

    def refused(self, error: Exception, code: str) -> OccError:
        """Return the error for a request that AWS has refused.

        :param code: of the refusal, by AWS.
        """
        if code in _DENIED:
            return denied(error)
        if code == "ResourceNotFoundException":
            return ConfigurationError("host", f"there is no table {self.table}", remedy=self.creation)
        if code in ("ValidationException", "ValidationError"):
            return ConfigurationError(
                "host",
                f"table {self.table} cannot keep leases: {error}",
                remedy=f"create one: {self.creation}",
            )
        return self.unreachable(error)

    def unreachable(self, reason: object) -> LockUnreachableError:
        """Return the error for a request without an answer."""
        return LockUnreachableError(
            f"DynamoDB did not answer for table {self.table}: {reason}",
            remedy="check the region and the way to AWS; if it is busy, use on-demand capacity",
        )

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


def require_client() -> None:
    """Refuse to go on without the client of DynamoDB.

    :raises ConfigurationError: if it is not installed.
    """
    require_module("boto3", "DynamoDB", install_extra("dynamodb"))


def denied(error: Exception) -> ConfigurationError:
    """Return the error for credentials that are missing or refused."""
    return ConfigurationError(
        "credentials",
        f"AWS refused them: {error}",
        remedy="allow dynamodb:Query, GetItem, PutItem, UpdateItem, DeleteItem and ConditionCheckItem "
        "on the table",
    )

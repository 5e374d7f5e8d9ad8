"""The ledger of the queue in items of a DynamoDB table.

Each change is one request on a condition. One more item counts creations: a creation changes that item
and writes its own in one transaction, so the order of the tokens is the order in which nodes appear.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError, OccError
from airflow_occ_provider.leases.dynamodb.access import NODE, QUEUE, DynamoAccess
from airflow_occ_provider.leases.ledger import Change, Ledger
from airflow_occ_provider.leases.store import Node, NodeGoneError, NodeTakenError, NodeVersionError

_ORDER = "#order"  # sorts before all names
_FAILED = "ConditionalCheckFailed"
_BUSY = frozenset(
    {
        *("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"),
        *("TransactionConflictException", "TransactionInProgressException"),
        *("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"),  # of an item
    }
)
_DENIED = frozenset(
    {
        *("AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException"),
        *("ExpiredTokenException", "MissingAuthenticationTokenException"),
        *("IncompleteSignatureException", "InvalidClientTokenId"),
    }
)
_PAUSE_S = 0.05
_T = TypeVar("_T")


class _BusyError(Exception):
    """The table does not answer this request now; it was not carried out."""


class _ContestedError(Exception):
    """Another node was created since the order was read."""


class DynamoLedger:
    """A ``LedgerClient`` in a table of DynamoDB. Threads may share it.

    :param access: the way to the table.
    :param queue: value of the partition key: a table may keep several queues.
    :param timeout_s: for each call.
    """

    def __init__(self, access: DynamoAccess, queue: str, timeout_s: float) -> None:
        self._access, self._queue, self._timeout_s = access, queue, timeout_s
        self._client = access.client(timeout_s)
        self._ledger, self.seen_s = Ledger(0), float("-inf")
        self._busy = threading.Lock()  # held for each request, and for what is known of the items
        self.on_seen: Callable[[Ledger], None] = lambda _: None
        """Called with each new ledger, in the thread that read or changed it."""

    def current(self, age_s: float = 0.0) -> Ledger:
        """Return the ledger as it was at most some seconds before the call.

        :raises LockUnreachableError: if the table does not answer in time.
        """
        oldest_s = time.monotonic() - age_s
        with self._held():
            if self.seen_s < oldest_s:
                self._look()
            return self._ledger

    def change(self, change: Change, *, is_urgent: bool = True) -> Ledger:  # noqa: ARG002
        """Make a change and return the ledger after it.

        :param change: of a node.
        :param is_urgent: has no effect: each change is a request of its own.
        :raises LockUnreachableError: if the table does not answer in time.
        :raises NodeGoneError: if the node, or the required one, does not exist.
        :raises NodeTakenError: if the node to create exists already.
        :raises NodeVersionError: if the node has another version.
        """
        made = {"create": self._create, "replace": self._replace, "delete": self._delete}
        with self._held():
            node = made[change.kind](change)
            nodes = {name: other for name, other in self._ledger.nodes.items() if name != change.name}
            if node:
                nodes[change.name] = node
            self._show(max(self._ledger.revision, node.token if node else 0), nodes)
            return self._ledger

    def clear(self) -> None:
        """Delete all items of the queue, also that of the order."""
        with self._held():
            for item in self._items(ProjectionExpression=NODE):
                self._ask("delete_item", Key=self._key(item[NODE]["S"]))

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def _show(self, revision: int, nodes: Mapping[str, Node]) -> None:
        self._ledger = Ledger(revision, nodes)
        self.on_seen(self._ledger)

    def _look(self) -> None:
        began_s = time.monotonic()
        items = {item[NODE]["S"]: item for item in self._items()}
        order = items.pop(_ORDER, None)
        self._show(
            int(order["last_token"]["N"]) if order else 0,
            {name: _node(item) for name, item in items.items()},
        )
        self.seen_s = began_s

    def _items(self, **more: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the queue's items, as all writes answered so far have left them."""
        start: dict[str, Any] = {}
        while True:
            page = self._ask(
                "query",
                KeyConditionExpression=f"{QUEUE} = :queue",
                ExpressionAttributeValues={":queue": {"S": self._queue}},
                ConsistentRead=True,
                **start,
                **more,
            )
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _create(self, change: Change) -> Node:
        def create() -> Node:
            last = self._ledger.revision
            node = Node(change.data, 1, last + 1, change.now_ms, change.now_ms)
            try:
                self._ask("transact_write_items", TransactItems=self._creation(change, node, last))
            except ClientError as error:
                codes = [reason.get("Code") for reason in error.response.get("CancellationReasons", ())]
                if codes[1:2] == [_FAILED]:
                    raise NodeTakenError(change.name) from None
                if codes[2:3] == [_FAILED]:
                    raise NodeGoneError(change.requires) from None
                self._read_order()
                raise _ContestedError from error
            return node

        return self._repeated(create, _ContestedError)

    def _creation(self, change: Change, node: Node, last: int) -> list[dict[str, Any]]:
        item = {
            **self._key(change.name),
            "content": {"B": node.data},
            "revision": {"N": str(node.version)},
            "token": {"N": str(node.token)},
            "created_ms": {"N": str(node.created_ms)},
            "renewed_ms": {"N": str(node.renewed_ms)},
        }
        unchanged = "last_token = :last" if last else "attribute_not_exists(last_token)"
        counted: dict[str, Any] = {":next": {"N": str(node.token)}}
        order = {
            "TableName": self._access.table,
            "Key": self._key(_ORDER),
            "UpdateExpression": "SET last_token = :next",
            "ConditionExpression": unchanged,
            "ExpressionAttributeValues": counted | ({":last": {"N": str(last)}} if last else {}),
        }
        put = {
            "TableName": self._access.table,
            "Item": item,
            "ConditionExpression": f"attribute_not_exists({NODE})",
        }
        writes: list[dict[str, Any]] = [{"Update": order}, {"Put": put}]
        if change.requires is not None:
            required = {
                "TableName": self._access.table,
                "Key": self._key(change.requires),
                "ConditionExpression": f"attribute_exists({NODE})",
            }
            writes.append({"ConditionCheck": required})
        return writes

    def _read_order(self) -> None:
        item = self._ask("get_item", Key=self._key(_ORDER), ConsistentRead=True).get("Item")
        last = int(item["last_token"]["N"]) if item else 0
        self._ledger = replace(self._ledger, revision=last)

    def _replace(self, change: Change) -> Node | None:
        version = int(change.version) + 1
        values = {
            ":content": {"B": change.data},
            ":version": {"N": str(version)},
            ":now": {"N": str(change.now_ms)},
        }
        item = self._on_version(
            "update_item",
            change,
            UpdateExpression="SET content = :content, revision = :version, renewed_ms = :now",
            values=values,
            ReturnValues="ALL_NEW",
        )["Attributes"]
        return _node(item)

    def _delete(self, change: Change) -> None:
        self._on_version("delete_item", change)

    def _on_version(
        self, call: str, change: Change, *, values: Mapping[str, Any] | None = None, **more: Any
    ) -> Any:
        """Change an item that has a version."""
        try:
            return self._ask(
                call,
                Key=self._key(change.name),
                ConditionExpression="revision = :expected",
                ExpressionAttributeValues={**(values or {}), ":expected": {"N": str(change.version)}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **more,
            )
        except ClientError as error:
            is_there = "Item" in error.response
            raise (NodeVersionError if is_there else NodeGoneError)(change.name) from None

    def _key(self, name: str) -> dict[str, Any]:
        return {QUEUE: {"S": self._queue}, NODE: {"S": name}}

    def _ask(self, call: str, **arguments: Any) -> Any:
        """Send a request, again while the table is busy.

        :raises ClientError: if a condition does not hold.
        """
        if call != "transact_write_items":
            arguments["TableName"] = self._access.table

        def ask() -> Any:
            try:
                return getattr(self._client, call)(**arguments)
            except ClientError as error:
                if _is_busy(error):
                    raise _BusyError(str(error)) from error
                if _is_condition(error):
                    raise
                raise self._refused(error) from error
            except NoCredentialsError as error:
                raise _denied(error) from error
            except BotoCoreError as error:
                raise self._unreachable(error) from error

        return self._repeated(ask, _BusyError)

    def _repeated(self, operation: Callable[[], _T], error_type: type[Exception]) -> _T:
        try:
            pause_s = random.uniform(0, _PAUSE_S)  # noqa: S311 - no secret
            return bounded(operation, error_type, within_s=self._timeout_s, pause_s=pause_s)
        except error_type as error:
            raise self._unreachable(error) from error

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._busy.acquire(timeout=self._timeout_s):
            raise self._unreachable("other threads wait for its answers")
        try:
            yield
        finally:
            self._busy.release()

    def _unreachable(self, reason: object) -> LockUnreachableError:
        return LockUnreachableError(
            f"DynamoDB did not answer for table {self._access.table}: {reason}",
            remedy="check the region and the way to DynamoDB; if it is busy, use on-demand capacity",
        )

    def _refused(self, error: ClientError) -> OccError:
        code = error.response["Error"]["Code"]
        if code in _DENIED:
            return _denied(error)
        if code == "ResourceNotFoundException":
            return ConfigurationError(
                "host", f"there is no table {self._access.table}", remedy=self._access.creation
            )
        if code == "ValidationException":
            return ConfigurationError(
                "host",
                f"table {self._access.table} cannot keep leases: {error.response['Error']['Message']}",
                remedy=f"create one: {self._access.creation}",
            )
        return self._unreachable(error)


def _denied(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        "credentials",
        f"DynamoDB refused them: {error}",
        remedy="allow dynamodb:Query, GetItem, PutItem, UpdateItem, DeleteItem and ConditionCheckItem "
        "on the table",
    )


def _is_condition(error: ClientError) -> bool:
    return error.response["Error"]["Code"] in (
        "ConditionalCheckFailedException",
        "TransactionCanceledException",
    )


def _is_busy(error: ClientError) -> bool:
    """Whether a request was not carried out because of others; a transaction names it by item."""
    codes = {reason.get("Code") for reason in error.response.get("CancellationReasons", ())}
    return error.response["Error"]["Code"] in _BUSY or bool(codes & _BUSY and _FAILED not in codes)


def _node(item: Mapping[str, Any]) -> Node:
    numbers = (int(item[name]["N"]) for name in ("revision", "token", "created_ms", "renewed_ms"))
    version, token, created_ms, renewed_ms = numbers
    return Node(bytes(item["content"]["B"]), version, token, created_ms, renewed_ms)

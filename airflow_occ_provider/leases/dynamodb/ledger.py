"""The ledger of the queue in items of a DynamoDB table.

Each change is one request on a condition. One more item has the token and the name of the node that was
created last. A creation changes that item and writes its own in one transaction, which also checks the
last node's item: DynamoDB cancels it while the transaction before is under way there. So a client that
has a token sees all nodes with lower ones. Without that check a query may see one item of a transaction
as it is after it, and another one as it was before.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.leases.dynamodb.access import NODE, QUEUE, DynamoAccess, denied
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
_PAUSE_S = 0.05
_T = TypeVar("_T")


class _BusyError(Exception):
    """The table does not answer this request now; it was not carried out."""


class _ContestedError(Exception):
    """Another node was created since the order was read, or is being created."""


class _Last(NamedTuple):
    """The node that was created last.

    :param token: its token; 0 before the first one.
    """

    token: int = 0
    name: str = ""

    @classmethod
    def of(cls, item: Mapping[str, Any] | None) -> _Last:
        """Read its item."""
        return cls(int(item["last_token"]["N"]), item["last_node"]["S"]) if item else cls()


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
        self._last = _Last()
        self._until_s = 0.0  # of the call that holds the lock
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
            self._show(nodes | ({change.name: node} if node else {}))
            return self._ledger

    def clear(self) -> None:
        """Delete all items of the queue, also that of the order."""
        with self._held():
            for item in self._items(ProjectionExpression=NODE):
                self._ask("delete_item", Key=self._key(item[NODE]["S"]))

    def close(self) -> None:
        """Close the client's connections."""
        self._client.close()

    def _show(self, nodes: Mapping[str, Node]) -> None:
        """Keep what is known now; a revision is of this client alone."""
        self._ledger = Ledger(self._ledger.revision + 1, nodes)
        self.on_seen(self._ledger)

    def _look(self) -> None:
        began_s = time.monotonic()
        items = {item[NODE]["S"]: item for item in self._items()}
        self._last = _Last.of(items.pop(_ORDER, None))
        self.seen_s = began_s
        self._show({name: _node(item) for name, item in items.items()})

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
            # A table that was made anew must not give the tokens of the one before.
            token = self._last.token + 1 if self._last.token else time.time_ns()
            node = Node(change.data, 1, token, change.now_ms, change.now_ms)
            try:
                self._ask("transact_write_items", TransactItems=self._creation(change, node))
            except ClientError as error:
                reasons = error.response.get("CancellationReasons", ())
                order, put, *checks = [*(reason.get("Code") for reason in reasons), None, None]
                if put == _FAILED:
                    raise NodeTakenError(change.name) from None
                if change.requires is not None and checks[:1] == [_FAILED]:
                    raise NodeGoneError(change.requires) from None
                if order != _FAILED:
                    raise self._access.refused(error, str(put or order)) from error
                self._last = _Last.of(
                    self._ask("get_item", Key=self._key(_ORDER), ConsistentRead=True).get("Item")
                )
                raise _ContestedError("other nodes are created all the time") from error
            self._last = _Last(token, change.name)
            return node

        return self._repeated(create, _ContestedError)

    def _creation(self, change: Change, node: Node) -> list[dict[str, Any]]:
        """Return the writes of a transaction: the order, the node, and the checks of other nodes."""
        table, last = {"TableName": self._access.table}, self._last
        item = {
            **self._key(change.name),
            "content": {"B": node.data},
            "revision": {"N": str(node.version)},
            "token": {"N": str(node.token)},
            "created_ms": {"N": str(node.created_ms)},
            "renewed_ms": {"N": str(node.renewed_ms)},
        }
        values = {":token": {"N": str(node.token)}, ":node": {"S": change.name}}
        order = {
            "Key": self._key(_ORDER),
            "UpdateExpression": "SET last_token = :token, last_node = :node",
            "ConditionExpression": "attribute_not_exists(last_token)",
            "ExpressionAttributeValues": values,
        }
        if last.token:
            order["ConditionExpression"] = "last_token = :last"
            values[":last"] = {"N": str(last.token)}
        is_there = f"attribute_exists({NODE})"
        checks = {change.requires: is_there} if change.requires is not None else {}
        if last.name not in ("", change.name):  # only a transaction that is under way fails this one
            checks.setdefault(last.name, f"{is_there} OR attribute_not_exists({NODE})")
        return [
            {"Update": {**table, **order}},
            {"Put": {**table, "Item": item, "ConditionExpression": f"attribute_not_exists({NODE})"}},
            *(
                {"ConditionCheck": {**table, "Key": self._key(name), "ConditionExpression": condition}}
                for name, condition in checks.items()
            ),
        ]

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
                raise self._access.refused(error, error.response["Error"]["Code"]) from error
            except NoCredentialsError as error:
                raise denied(error) from error
            except BotoCoreError as error:
                raise self._access.unreachable(error) from error

        return self._repeated(ask, _BusyError)

    def _repeated(self, operation: Callable[[], _T], error_type: type[Exception]) -> _T:
        """Repeat an operation until the call's time is over."""
        try:
            left_s = max(self._until_s - time.monotonic(), 0.0)
            pause_s = random.uniform(0, _PAUSE_S)  # noqa: S311 - no secret
            return bounded(operation, error_type, within_s=left_s, pause_s=pause_s)
        except error_type as error:
            raise self._access.unreachable(error) from error

    @contextmanager
    def _held(self) -> Iterator[None]:
        until_s = time.monotonic() + self._timeout_s
        if not self._busy.acquire(timeout=self._timeout_s):
            raise self._access.unreachable("other threads wait for its answers")
        try:
            self._until_s = until_s
            yield
        finally:
            self._busy.release()


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

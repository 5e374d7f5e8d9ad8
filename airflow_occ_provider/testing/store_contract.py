"""The contract of a store's six calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError, NodeVersionError, Store

_WAIT_S = 10
_CALLS: dict[str, Callable[[Store], object]] = {
    "stamps": lambda store: store.stamps(),
    "read": lambda store: store.read(["n"], latest=True),
    "create": lambda store: store.create("n", b""),
    "replace": lambda store: store.replace("n", b"", 1),
    "delete": lambda store: store.delete("n", 1),
    "on_delete": lambda store: store.on_delete("n", lambda: None),
}
_NAME = "0f0f0f0f~1a2b3c4d.9e8f7a6b~5d1c.deadbeef~1f.20"


class StoreContract:
    """The tests of a ``Store``: subclass them as ``TestMyStore``.

    The fixture ``open_store`` returns a function that opens another client of one empty store, and
    ``open_unreachable_store`` one that opens a client of a store that does not answer.
    """

    def test_tokens_rise_in_the_order_of_creations(self, store: Store, second: Store) -> None:
        tokens = [client.create(f"n{i}", b"").token for i, client in enumerate([store, second] * 4)]
        assert tokens == sorted(set(tokens))
        assert second.create("again", b"").token > tokens[-1]

    def test_a_deleted_name_gets_another_token(self, store: Store, second: Store) -> None:
        node = store.create("n", b"")
        second.delete("n", node.version)
        assert store.create("n", b"").token > node.token

    def test_what_one_client_creates_all_read_and_list(self, store: Store, second: Store) -> None:
        created = store.create(_NAME, b"content")
        assert created.data == b"content"
        assert created.created_ms > 1_600_000_000_000
        assert second.read([_NAME, "missing"], latest=True) == {_NAME: created}
        assert second.stamps().keys() == {_NAME}
        assert store.read([_NAME]) == {_NAME: created}

    def test_a_replacement_is_dated(self, store: Store, second: Store) -> None:
        created = store.create("n", b"")
        if not created.renewed_ms:
            pytest.skip("this store does not know when a node was replaced")
        assert abs(created.renewed_ms - created.created_ms) < 1000
        version, renewed_ms = created.version, created.renewed_ms
        for _ in range(10_000):  # until the clock has moved on
            version = second.replace("n", b"", version)
            renewed_ms = store.read(["n"], latest=True)["n"].renewed_ms
            if renewed_ms > created.renewed_ms:
                break
        assert renewed_ms > created.renewed_ms
        assert store.read(["n"], latest=True)["n"].created_ms == created.created_ms

    def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        assert dict(store.stamps()) == {}
        assert store.read(["missing"]) == store.read([]) == {}

    def test_a_node_holds_256_kib(self, store: Store) -> None:
        content = b"x" * 256 * 1024
        store.create("n", content)
        assert store.read(["n"], latest=True)["n"].data == content

    def test_a_name_is_created_once(self, store: Store, second: Store) -> None:
        first = store.create("n", b"first")
        with pytest.raises(NodeTakenError):
            second.create("n", b"second")
        assert second.read(["n"], latest=True) == {"n": first}

    def test_a_required_node_must_exist(self, store: Store, second: Store) -> None:
        with pytest.raises(NodeGoneError):
            store.create("task", b"", "lease")
        lease = second.create("lease", b"")
        assert store.create("task", b"", "lease").token > lease.token
        with pytest.raises(NodeTakenError):
            store.create("task", b"", "lease")
        second.delete("lease", lease.version)
        with pytest.raises(NodeGoneError):
            store.create("late", b"", "lease")
        assert store.stamps().keys() == {"task"}

    def test_a_replacement_needs_the_current_version(self, store: Store, second: Store) -> None:
        old = store.create("n", b"1")
        version = second.replace("n", b"2", old.version)
        with pytest.raises(NodeVersionError):
            store.replace("n", b"3", old.version)
        node = store.read(["n"], latest=True)["n"]
        assert node == old._replace(data=b"2", version=version, renewed_ms=node.renewed_ms)
        second.delete("n", version)
        with pytest.raises(NodeGoneError):
            store.replace("n", b"3", version)

    def test_a_deletion_needs_the_current_version(self, store: Store, second: Store) -> None:
        old = store.create("n", b"1")
        version = second.replace("n", b"2", old.version)
        with pytest.raises(NodeVersionError):
            store.delete("n", old.version)
        store.delete("n", version)
        with pytest.raises(NodeGoneError):
            second.delete("n", version)

    def test_no_version_comes_twice_even_for_the_same_content(self, store: Store) -> None:
        versions = [store.create("n", b"same").version]
        for _ in range(5):
            versions.append(store.replace("n", b"same", versions[-1]))
        assert len(set(versions)) == len(versions)

    def test_a_listing_shows_current_versions_or_none(self, store: Store, second: Store) -> None:
        node = store.create("n", b"1")
        assert second.stamps()["n"] in (None, node.version)
        version = store.replace("n", b"2", node.version)
        assert second.stamps()["n"] in (None, version)
        store.delete("n", version)
        assert "n" not in second.stamps()

    def test_of_concurrent_replacements_one_succeeds(self, store: Store, second: Store) -> None:
        version = store.create("n", b"").version

        def replace(number: int) -> bool:
            try:
                (store, second)[number % 2].replace("n", b"%d" % number, version)
            except NodeVersionError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(replace, range(8))) == 1

    def test_concurrent_creations_get_different_tokens(self, store: Store, second: Store) -> None:
        with ThreadPoolExecutor(8) as pool:
            created = pool.map(lambda i: (store, second)[i % 2].create(f"n{i}", b""), range(16))
        assert len({node.token for node in created}) == 16

    def test_a_deletion_wakes_once_and_a_replacement_does_not(self, store: Store, second: Store) -> None:
        woken, calls = threading.Event(), []

        def wake() -> None:
            calls.append(1)
            woken.set()

        node = store.create("n", b"")
        assert store.on_delete("n", wake) is True
        version = second.replace("n", b"2", node.version)
        assert not woken.wait(0.2)
        second.delete("n", version)
        assert woken.wait(_WAIT_S)
        again = second.create("n", b"")
        second.delete("n", again.version)
        assert store.on_delete("n", wake) is False
        assert len(calls) == 1

    @pytest.mark.parametrize("call", _CALLS)
    def test_a_store_that_does_not_answer_is_unreachable(
        self, open_unreachable_store: Callable[[], Store], call: str
    ) -> None:
        with pytest.raises(LockUnreachableError), closing(open_unreachable_store()) as store:
            _CALLS[call](store)

    def test_a_closed_client_leaves_its_nodes(self, store: Store, second: Store) -> None:
        store.create("n", b"")
        store.close()
        assert second.stamps().keys() == {"n"}

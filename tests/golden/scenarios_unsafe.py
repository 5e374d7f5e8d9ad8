"""Golden tables that unsafe writers made: what ``airflow hudi doctor`` has to find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden.hudi_table import MULTI_WRITER, REFUSED, VALIDATORS, GoldenTable, fails
from tests.golden.scenarios_services import ARCHIVING

_UTC = {"hoodie.table.timeline.timezone": "UTC"}
_LAZY = {"hoodie.cleaner.policy.failed.writes": "LAZY", "hoodie.clean.automatic": "false"}
_REFUSED = ("WriteConflictException", "ConcurrentModificationException")
_SHORT_BEATS = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
_PATIENCE_S = 300
_DEAD_S = 4


def unchecked(table: GoldenTable) -> None:
    """Copy-on-write: of two single writers of one file group, the later one overwrote the earlier."""
    table.of()
    table.options |= _UTC | _LAZY
    table.write([(i, f"p{i % 2}") for i in range(4)], "insert")
    with held(table, {}):
        table.write([(1, "p1")])


def rolled_back_alive(table: GoldenTable) -> None:
    """Copy-on-write: a single writer that cleans eagerly rolled a live one back before it wrote."""
    table.of()
    table.options |= _UTC
    table.write([(i, f"p{i % 2}") for i in range(4)], "insert", MULTI_WRITER)
    try:
        with held(table, MULTI_WRITER):
            table.write([(0, "p0")])
    except Exception as error:  # noqa: BLE001 - a release may let it commit
        print(f"the live writer failed: {str(error)[:200]}")


def lost_writes(table: GoldenTable) -> None:
    """Copy-on-write: writes lost conflicts or failed, and were taken back; the last one was not."""
    _lose(table)
    fails(lambda: _lose_to_shorter(table), *_REFUSED)


def _lose(table: GoldenTable) -> None:
    """Three writes lose a conflict, and one fails; later cleans take them back."""
    table.of()
    table.options |= _UTC | _SHORT_BEATS
    own, other = [(1, "p1")], [(0, "p0")]
    table.write([*own, *other, (3, "p3")], "insert", MULTI_WRITER)
    fails(lambda: _lose_to_shorter(table), *_REFUSED)  # and another writer cleans
    _clean(table, other)
    fails(lambda: _lose_to_earlier(table), *_REFUSED)  # and its own repetition cleans
    _clean(table, own)
    fails(lambda: _lose_to_shorter(table), *_REFUSED)
    table.write(own, "upsert", MULTI_WRITER)  # its own repetition does not clean, another writer does
    _clean(table, other)
    fails(lambda: table.write([(3, "p3")], "upsert", MULTI_WRITER | REFUSED))
    _clean(table, [(3, "p3")])  # its own repetition cleans


def lost_and_archived(table: GoldenTable) -> None:
    """Copy-on-write: writes lost conflicts or failed, and all that came of it was archived."""
    _lose(table)
    table.options |= ARCHIVING
    for _ in range(8):
        table.write([(0, "p0")])


def lost_overwrite(table: GoldenTable) -> None:
    """Merge-on-read, in the zone of the writers: an overwrite lost to a shorter upsert."""
    table.of("MERGE_ON_READ")
    table.options |= _SHORT_BEATS
    table.write([(1, "p1"), (0, "p0")], "insert", MULTI_WRITER)
    fails(lambda: _lose_to_shorter(table, "insert_overwrite"), *_REFUSED)
    _clean(table, [(0, "p0")])


def _lose_to_shorter(table: GoldenTable, operation: str = "upsert") -> None:
    """A write begins; another one begins and completes; then the first one goes on."""
    with held(table, MULTI_WRITER, operation):
        table.write([(1, "p1")], "upsert", MULTI_WRITER)


def _lose_to_earlier(table: GoldenTable) -> None:
    """Two writes begin one after the other, and go on in this order."""
    with held(table, MULTI_WRITER) as first, held(table, MULTI_WRITER):
        first()


def _clean(table: GoldenTable, rows: list[tuple[int, str]]) -> None:
    """Write with a clean, once all writers that have ended count as dead."""
    beats = list(Path(table.path, ".hoodie", ".heartbeat").glob("2*"))
    while any(time.time() - beat.stat().st_mtime < _DEAD_S for beat in beats):
        time.sleep(0.5)
    table.write(rows, "upsert", MULTI_WRITER | {"hoodie.clean.automatic": "true"})


@contextmanager
def held(
    table: GoldenTable, options: dict[str, str], operation: str = "upsert"
) -> Iterator[Callable[[], None]]:
    """Keep a write, which has written its files, from its commit until the block ends.

    Yields what lets it go on, and waits for its end.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        begun, go = Path(folder, "begun"), Path(folder, "go")
        table.spark.udf.register("golden_gate", _gate(str(begun), str(go)), "int")
        queries = "select max(golden_gate()) from <TABLE_NAME>#1"
        gate = {
            "hoodie.precommit.validators": f"{VALIDATORS}.SqlQuerySingleResultPreCommitValidator",
            "hoodie.precommit.validators.single.value.sql.queries": queries,
        }
        write = pool.submit(table.write, [(1, "p1")], operation, {**options, **gate})

        def go_on() -> None:
            go.touch()
            write.result()

        try:
            _wait_for(begun, lambda: write.done() and write.result())
            yield go_on
        finally:
            go.touch()
        write.result()


def _gate(begun: str, go: str):  # type: ignore[no-untyped-def]
    def gate() -> int:
        Path(begun).touch()
        deadline = time.monotonic() + _PATIENCE_S
        while not Path(go).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return 1

    return gate


def _wait_for(file: Path, check) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + _PATIENCE_S
    while not file.exists():
        check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the write did not come to its commit in {_PATIENCE_S} s")
        time.sleep(0.05)

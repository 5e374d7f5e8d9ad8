"""Golden tables that unsafe writers made: what ``airflow hudi doctor`` has to find."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden.hudi_table import MULTI_WRITER, VALIDATORS, GoldenTable

_UTC = {"hoodie.table.timeline.timezone": "UTC"}
_LAZY = {"hoodie.cleaner.policy.failed.writes": "LAZY", "hoodie.clean.automatic": "false"}
_PATIENCE_S = 300


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


@contextmanager
def held(table: GoldenTable, options: dict[str, str]) -> Iterator[None]:
    """Keep an upsert, which has written its files, from its commit until the block ends."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        begun, go = Path(folder, "begun"), Path(folder, "go")
        table.spark.udf.register("golden_gate", _gate(str(begun), str(go)), "int")
        queries = "select max(golden_gate()) from <TABLE_NAME>#1"
        gate = {
            "hoodie.precommit.validators": f"{VALIDATORS}.SqlQuerySingleResultPreCommitValidator",
            "hoodie.precommit.validators.single.value.sql.queries": queries,
        }
        write = pool.submit(table.write, [(1, "p1")], "upsert", {**options, **gate})
        try:
            _wait_for(begun, lambda: write.done() and write.result())
            yield
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

"""Golden tables of table services, from compaction to archiving and upgrade."""

from __future__ import annotations

from tests.golden.hudi_table import MULTI_WRITER, GoldenTable, fails, missing, refused

ARCHIVING = {
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.commits.archival.batch": "2",
    "hoodie.timeline.compaction.batch.size": "4",
}
_ROWS = [(i, f"p{i % 2}") for i in range(4)]


def compaction(table: GoldenTable) -> None:
    """Merge-on-read: a finished compaction, an inflight one and a requested one."""
    table.of("MERGE_ON_READ", compact__inline__max__delta__commits="1")
    table.write(_ROWS, "insert")
    table.write(_ROWS)
    table.call("run_compaction", "op => 'scheduleandexecute'")
    table.write([(1, "p1")])
    table.call("run_compaction", "op => 'schedule'")
    with missing(table.path.glob("p1/*.parquet")):
        fails(lambda: table.call("run_compaction", "op => 'run'"))
    table.write([(0, "p0")], "delete")
    table.call("run_compaction", "op => 'schedule'")


def log_compaction(table: GoldenTable) -> None:
    """Merge-on-read: a finished log compaction and a requested one."""
    table.of("MERGE_ON_READ", log__compaction__enable="true", log__compaction__blocks__threshold="2")
    table.write(_ROWS, "insert")
    for _ in range(2):
        table.write(_ROWS)
    table.write(_ROWS, log__compaction__inline="true")
    for _ in range(2):
        table.write([(1, "p1")])
    with table.client() as client:
        nothing = table.java().common.util.Option.empty()
        assert client.scheduleLogCompaction(nothing).isPresent()
    table.write([(0, "p0")])


def clustering(table: GoldenTable) -> None:
    """Copy-on-write: a finished clustering, an inflight one and a requested one."""
    table.of(parquet__small__file__limit="0")
    table.options |= MULTI_WRITER
    for start in range(2):
        table.write([(start * 10 + i, f"p{i % 2}") for i in range(4)], "insert")
    one = "predicate => \"p = '{}'\""
    table.call("run_clustering", one.format("p0"))
    table.write([(100, "p1"), (101, "p2"), (102, "p2")], "insert")
    table.call("run_clustering", f"op => 'schedule', {one.format('p1')}")
    with missing(table.path.glob("p1/*.parquet")):
        fails(lambda: table.call("run_clustering", "op => 'execute'"))
    table.call("run_clustering", f"op => 'schedule', {one.format('p2')}")
    table.write([(0, "p0")])


def rollbacks(table: GoldenTable) -> None:
    """Merge-on-read: a savepoint, a rollback of a commit, and one of a failed write left pending."""
    table.of("MERGE_ON_READ")
    table.options |= MULTI_WRITER
    table.write(_ROWS, "insert")
    table.call("create_savepoint", f"commit_time => '{table.completed('.deltacommit')[-1]}'")
    for _ in range(2):
        table.write(_ROWS)
    table.call("rollback_to_instant", f"instant_time => '{table.completed('.deltacommit')[-1]}'")
    for number in range(2):
        refused(table, [(number, f"p{number}")])
    _schedule_rollback(table, table.pending("deltacommit"))


def _schedule_rollback(table: GoldenTable, victim: str) -> None:
    """Plan the rollback of a pending write and leave it at that."""
    hudi = table.java()
    with table.client() as client:
        config, context = client.getConfig(), client.getEngineContext()
        its_table = hudi.table.HoodieSparkTable.create(config, context)
        instants = its_table.getMetaClient().getActiveTimeline().getInstants()
        time_of = "requestedTime" if table.modern else "getTimestamp"
        (instant,) = [one for one in instants if getattr(one, time_of)() == victim]
        time = _new_instant_time(table, client)
        assert its_table.scheduleRollback(context, time, instant, False, True, False).isPresent()


def _new_instant_time(table: GoldenTable, client: object) -> str:
    if table.modern:
        return client.createNewInstantTime(True)  # type: ignore[attr-defined]
    return table.java().common.table.timeline.HoodieActiveTimeline.createNewInstantTime()


def restored(table: GoldenTable) -> None:
    """Copy-on-write, restored to a savepoint and written on."""
    table.of()
    for number in range(3):
        table.write([(number, "p0"), (9, "p1")])
        if number == 0:
            table.call("create_savepoint", f"commit_time => '{table.completed('.commit')[-1]}'")
    table.call("rollback_to_savepoint", f"instant_time => '{table.completed('.commit')[0]}'")
    table.write([(5, "p0")])


def cleaned(table: GoldenTable) -> None:
    """Copy-on-write: finished cleans, and a planned one."""
    table.of(cleaner__commits__retained="1")
    for _ in range(4):
        table.write(_ROWS)
    table.write(_ROWS, clean__automatic="false")
    service = table.java().common.model.TableServiceType.CLEAN
    with table.client() as client:
        assert client.scheduleTableService(table.java().common.util.Option.empty(), service).isPresent()


def history(table: GoldenTable) -> None:
    """Copy-on-write whose older instants are archived: several operations, cleans and rollbacks."""
    table.of()
    table.options |= ARCHIVING
    operations = {3: "insert_overwrite", 6: "delete", 9: "insert", 12: "insert_overwrite_table"}
    for number in range(16):
        table.write(_ROWS, operations.get(number, "upsert"), {"_airflow_identity": f"{number:032}"})
        if number == 8:
            table.call("rollback_to_instant", f"instant_time => '{table.completed('.commit')[-1]}'")


def history_merge_on_read(table: GoldenTable) -> None:
    """Merge-on-read with compactions, older instants archived."""
    table.of("MERGE_ON_READ", compact__inline="true", compact__inline__max__delta__commits="3")
    table.options |= ARCHIVING
    for _ in range(14):
        table.write(_ROWS)


def archived_beyond_savepoint(table: GoldenTable) -> None:
    """Copy-on-write whose second commit is kept by a savepoint, while younger ones are archived."""
    table.of(archive__beyond__savepoint="true")
    table.options |= ARCHIVING
    for number in range(9):
        table.write([(number, f"p{number % 2}")], "insert", {"_airflow_identity": f"{number:032}"})
        if number == 1:
            table.call("create_savepoint", f"commit_time => '{table.completed('.commit')[1]}'")


def version_6(table: GoldenTable) -> None:
    """A table of version 6 that a newer release writes: finished and pending work of all kinds."""
    table.of("MERGE_ON_READ", compact__inline__max__delta__commits="1", write__table__version="6")
    table.options |= {"hoodie.write.auto.upgrade": "false"}
    table.write(_ROWS, "insert")
    table.write(_ROWS)
    table.call("run_compaction", "op => 'scheduleandexecute'")
    table.write([(8, "p8")], "insert_overwrite", {"_airflow_identity": "d" * 32})
    table.call("run_clustering", "predicate => \"p = 'p8'\"")
    table.call("create_savepoint", f"commit_time => '{table.completed('.replacecommit')[-1]}'")
    table.write([(9, "p9")], "insert")
    with table.client() as client:  # the procedure looks for version 8's folder and fails
        client.rollback(table.completed(".deltacommit")[-1])
    table.call("run_clustering", "op => 'schedule', predicate => \"p = 'p8'\"")
    table.options |= MULTI_WRITER
    table.write([(1, "p1")])
    table.call("run_compaction", "op => 'schedule'")
    refused(table, [(0, "p0")])
    refused(table, [(0, "p7")], "insert_overwrite")


def version_6_archive(table: GoldenTable) -> None:
    """A table of version 6, written by a newer release, whose older instants are archived."""
    table.of(write__table__version="6", write__auto__upgrade="false")
    table.options |= ARCHIVING
    for _ in range(7):
        table.write(_ROWS)


def version_6_history(table: GoldenTable) -> None:
    """Merge-on-read of version 6, older instants archived: signed writes, overwrites, table services."""
    table.of("MERGE_ON_READ", write__table__version="6", write__auto__upgrade="false")
    table.options |= ARCHIVING | {"hoodie.compact.inline.max.delta.commits": "3"}
    operations = {0: "insert", 3: "insert_overwrite", 5: "delete"}
    for number in range(14):
        inline = "true" if number % 4 == 2 else "false"
        more = {"_airflow_identity": f"{number:032}", "hoodie.compact.inline": inline}
        table.write(_ROWS, operations.get(number, "upsert"), more)
        if number == 3:
            table.call("run_clustering", "predicate => \"p = 'p0'\"")


def upgraded_before(table: GoldenTable) -> None:
    """The part of ``upgraded`` that the old release runs."""
    table.of()
    table.options |= ARCHIVING
    for number in range(6):
        table.write(_ROWS, "insert_overwrite" if number == 2 else "upsert")
    table.call("run_clustering", "predicate => \"p = 'p0'\"")
    table.write([(8, "p8")], "insert_overwrite", {"_airflow_identity": "e" * 32})
    table.call("create_savepoint", f"commit_time => '{table.completed('.replacecommit')[-1]}'")
    table.call("run_clustering", "op => 'schedule', predicate => \"p = 'p1'\"")
    refused(table, [(0, "p0")])


def upgraded(table: GoldenTable) -> None:
    """A table that 0.15.0 made and a newer release upgraded by writing to it."""
    table.of()
    table.write([(0, "p0")])
    table.write([(8, "p8")], "insert_overwrite")


def indexed(table: GoldenTable) -> None:
    """Copy-on-write with a secondary index, built after the first commits."""
    table.of(metadata__enable="true", metadata__record__index__enable="true")
    table.options |= MULTI_WRITER
    for _ in range(2):
        table.write(_ROWS)
    table.sql("create index by_v on {table} (v)")

"""Names that a hostile user chose change nothing on a page but its texts and links."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import AttemptRecord, TaskRecord, Waiting
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.format.instant import Instant, State
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.reading.overview import queue_lines
from airflow_occ_provider.reading.table_state import Bar, Edge, LiveWriter, PendingService, TableState
from airflow_occ_provider.ui.links import Viewer
from airflow_occ_provider.ui.pages import attempts_page, table_page, tables_page
from airflow_occ_provider.ui.view import (
    AttemptRow,
    AttemptsPage,
    KnownTable,
    Reach,
    TablePage,
    TablesPage,
)
from airflow_occ_provider.ui.words import visible
from tests.unit.rendered import as_html, as_xml

EXAMPLES = 350  # each with the names of a table, a partition and a DAG, among others
NOW = 1_795_268_400_000
KINDS = ("table", "partition", "dag", "run", "task", "site", "reason")
HOSTILE = st.one_of(
    st.text(st.characters(exclude_categories=()), min_size=1, max_size=40),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "</title><script>alert(1)</script>",
            "</svg><img src=x onerror=alert(1)>",
            "\"'><svg onload=alert(1)>",
            "' onmouseover='alert(1)",
            "javascript:alert(1)",
            "//evil.example/x",
            "]]><!--",
            "--><![CDATA[",
            "&lt;b&gt;&amp;&#60;",
            "{{ 7 * 7 }}{% raw %}",
            "\u2028\u2029\x00\x08\x1b[31m\x7f\x85",
            "\u202egnp.exe\u2066",
            "\ud800\udfff\ufffe\uffff",
            "a\r\nSet-Cookie: b\tc",
            "../../../admin",
            "x" * 5000,
        ]
    ),
)
NAMES = st.fixed_dictionaries(dict.fromkeys(KINDS, HOSTILE))
PLAIN = {kind: kind for kind in KINDS}


def pages(names):
    table, partition, dag = names["table"], names["partition"], names["dag"]
    run, task, reason = names["run"], names["task"], names["reason"]
    owners = [
        Owner((dag, run, task), site="here"),
        Owner((dag, run), task, "here"),
        Owner((dag, run, task), site=f"not {names['site']}"),
    ]
    path = f"s3://lake/{table}"
    queue = [
        QueuedRequest(
            Request(f"{n}", one, (Scope(path, partitions=(partition,)),), 60_000), f"{n}", (n,)
        )
        for n, one in enumerate(owners, start=1)
    ]
    signature = Signature("identity", dag, run, task)
    pending = Instant("2", "commit", State.INFLIGHT, "2.inflight")
    service = Instant("3", "compaction", State.REQUESTED, "3.compaction.requested")
    state = TableState(
        path,
        NOW,
        (LiveWriter(pending, f"kind {reason}", Fate.ALIVE, NOW, 60_000, (partition,)),),
        (PendingService(service, Fate.GONE, (partition,), 1000),),
        (
            Bar("1", reason, Fate.ROLLED_BACK, NOW - 90_000, NOW - 30_000, writer=signature),
            Bar("2", "UPSERT", Fate.ALIVE, NOW - 60_000, seen_ms=NOW, writer=signature),
            Bar("3", "compaction", Fate.GONE, NOW - 60_000, is_service=True),
        ),
        (Edge("9", "1", "rollback"), Edge("3", "2", "conflict")),
        tuple(queue_lines(queue, path)),
    )
    finding = Finding(f"check {names['site']}", Severity.ERROR, (), f"evidence {reason}", f"do {reason}")
    known = KnownTable(table, path, state, Reach(False, NOW, reason), Reach(True, NOW), (finding,))
    attempt = AttemptRecord(
        1,
        2,
        "i",
        path,
        NOW,
        Handle("spark", f"driver {task}"),
        reason,
        end=reason,
        outcome=f"outcome {reason}",
    )
    record = TaskRecord(
        f"identity {reason}", attempts=(attempt,), waiting=Waiting(f"waits {reason}", NOW)
    )
    shown = (AttemptRow(attempt, {"1": f"state {reason}"}, "1"),)
    viewer = Viewer("../../", site="here")
    keys = {path: table}
    yield tables_page(TablesPage((known,), NOW, viewer))
    yield table_page(TablePage(known, NOW, viewer))
    yield attempts_page(
        AttemptsPage(dag, run, task, -1, record, shown, NOW, viewer, f"cannot {reason}", keys)
    )


def expected(names):
    """The texts of which each page shows at least these, by page."""
    run_of = " / ".join((names["dag"], names["run"], names["task"]))
    return (
        {f"s3://lake/{names['table']}", f"check {names['site']}"},
        {
            f"s3://lake/{names['table']}",
            run_of,
            f"{names['dag']} / {names['run']} / by {names['task']}",
            f"another Airflow (site not {names['site']})",
            f"exclusive, {names['partition']}",
            f"evidence {names['reason']}",
            f"do {names['reason']}",
            f"kind {names['reason']}",
        },
        {run_of, f"driver {names['task']}", f"waits {names['reason']}", f"cannot {names['reason']}"},
    )


HARMLESS = [as_html(page) for page in pages(PLAIN)]


def bare(text):
    return visible(text).strip(" \n")


@settings(max_examples=EXAMPLES, deadline=None)
@given(NAMES)
def test_a_hostile_name_is_text_and_nothing_else(names):
    steps = {".", ".."}.intersection(names.values())
    for page, harmless, shown in zip(pages(names), HARMLESS, expected(names), strict=True):
        found = as_html(page)
        if not steps:  # such a name has no link
            assert found.tags == harmless.tags
            assert len(found.values) == len(harmless.values)
        assert {bare(one) for one in shown} <= set(found.texts)
        for name, value in found.values:
            if name in ("href", "src"):
                assert urlsplit(value)[:2] == ("", "")
                assert value.startswith(("../../", "?range="))
            else:
                assert (name, value) in harmless.values
        root = as_xml(page)
        tags = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert tags == [tag.split()[0] for tag, *_ in found.tags] or steps


@given(HOSTILE, HOSTILE)
def test_a_link_leads_to_the_names_that_it_is_made_of(dag, run):
    names = {**PLAIN, "dag": dag, "run": run}
    *_, page = pages(names)
    links = [value for name, value in as_html(page).values if name == "href" and "/dags/" in value]
    if not {dag, run} & {".", ".."}:
        parts = [one.encode(errors="replace").decode() for one in (dag, run)]
        (link,) = links
        assert [unquote(one) for one in link.split("/")[3:]] == [
            *("dags", parts[0], "runs", parts[1], "tasks", "task")
        ]
    else:
        assert links == []

"""Which user gets which page, by Airflow's own auth manager."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from airflow.api_fastapi.app import purge_cached_app
from airflow.models.taskinstance import TaskInstance
from airflow.state import TaskScope, get_state_backend
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.concurrency import run_in_threadpool

from airflow_occ_provider.attempts.record import RECORD_KEY, AttemptRecord, TaskRecord
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.task.run import site
from airflow_occ_provider.task.table_link import page_path, table_key
from airflow_occ_provider.ui import catalog, table_readers
from airflow_occ_provider.ui.answers import HEADERS
from airflow_occ_provider.ui.app import make_app
from airflow_occ_provider.ui.catalog import Catalog
from airflow_occ_provider.ui.table_reads import TableReads
from tests.golden.table_archive import unpack
from tests.support.session_site import SITE
from tests.unit import airflow_database
from tests.unit.airflow_database import OURS, THEIRS, push, token

TABLES = Path(__file__).parents[1] / "golden" / "tables"
ROUTES = {
    "tables": "/hudi/",
    "table": "/hudi/t/early/",
    "table without slash": "/hudi/t/early?range=24h",
    "unknown table": "/hudi/t/other/",
    "attempts": f"/hudi/attempts/{OURS}/r/t/-1",
    "file": "/hudi/static/page.css",
    "other file": "/hudi/static/app.py",
}
SHOWN = {"table without slash": 307, "unknown table": 404, "other file": 404}


@pytest.fixture(scope="module")
def database():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "secret" * 16)
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        airflow_database.create()
        yield
        airflow_database.drop()
        purge_cached_app()


@pytest.fixture
def table(tmp_path):
    return unpack(TABLES / "1.2.0" / "early_conflict.zip", tmp_path)


@pytest.fixture
def client(database, monkeypatch, table):
    entry = {"table": str(table), "key": "early"}
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_TABLES", json.dumps([entry]))
    app = FastAPI()
    app.mount("/hudi", make_app())
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


def forget(client):
    """Let what Airflow has be read anew, by the next page."""
    for name in ("published", "site"):
        shared(client, name)._ended_s = float("-inf")


def shared(client, name):
    return getattr(client.app.routes[-1].app.state.catalog, f"_{name}")


def get(client, path, given=None):
    return client.get(path, headers={"Authorization": f"Bearer {given}"} if given else {})


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_token_nothing_is_shown(client, route):
    assert get(client, ROUTES[route]).status_code == 401


@pytest.mark.parametrize("route", ROUTES)
def test_a_forged_token_is_refused(client, route):
    header, body, _ = token("admin").split(".")
    assert get(client, ROUTES[route], f"{header}.{body}.AAAA").status_code == 403


@pytest.mark.parametrize("role", ["viewer", "op"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_user_who_may_read_gets_the_page(client, route, role):
    answer = get(client, ROUTES[route], token(role, OURS))
    assert answer.status_code == SHOWN.get(route, 200)


@pytest.mark.parametrize("route", ROUTES)
def test_a_user_without_a_role_gets_no_page(client, route):
    expected = SHOWN.get(route, 200) if "file" in route else 403
    assert get(client, ROUTES[route], token("", OURS)).status_code == expected


@pytest.mark.parametrize("route", ROUTES)
def test_a_user_of_another_dag_gets_all_but_the_attempts(client, route):
    answer = get(client, ROUTES[route], token("viewer", THEIRS))
    expected = 403 if route == "attempts" else SHOWN.get(route, 200)
    assert answer.status_code == expected


def test_the_cookie_of_airflow_counts(client):
    client.cookies.set("_token", token("viewer", OURS))
    assert client.get("/hudi/").status_code == 200


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("route", ROUTES)
def test_pages_are_only_read(client, method, route):
    given = {"Authorization": f"Bearer {token('admin')}"}
    answer = client.request(method, ROUTES[route], headers=given)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["docs", "redoc", "openapi.json", "docs/oauth2-redirect", "static/"])
def test_nothing_describes_the_app(client, path):
    assert get(client, f"/hudi/{path}", token("admin")).status_code == 404


def answers(client):
    yield from (get(client, path, token("viewer", OURS)) for path in ROUTES.values())
    yield get(client, "/hudi/")
    yield get(client, "/hudi/", token(""))
    yield get(client, "/hudi/no/such/page")
    yield get(client, f"/hudi/t/early/?range={'9' * 30}h", token("viewer"))
    yield get(client, "/hudi/t/early", token("viewer"))
    yield client.post("/hudi/")


def test_every_answer_has_the_strict_headers(client):
    given = list(answers(client))
    assert {one.status_code for one in given} == {200, 307, 400, 401, 403, 404, 405}
    for one in given:
        assert {name: one.headers[name] for name in HEADERS} == dict(HEADERS)


def test_a_failure_shows_nothing_of_the_inside(client, monkeypatch):
    def fails():
        raise RuntimeError("secret path")

    monkeypatch.setattr(shared(client, "published"), "_read", fails)
    answer = get(client, "/hudi/", token("viewer"))
    assert answer.status_code == 500
    assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
    assert not re.search("secret|RuntimeError|Traceback", answer.text)


def views(monkeypatch):
    """What the pages of all tables and of one are given."""
    given = []
    for name in ("tables_page", "table_page"):
        monkeypatch.setattr(
            f"airflow_occ_provider.ui.pages.{name}", lambda view: given.append(view) or ""
        )
    return given


@pytest.mark.parametrize("name", ["published", "site"])
def test_what_airflow_had_is_kept_while_it_cannot_be_read(client, monkeypatch, name, tmp_path):
    def fails():
        raise RuntimeError("secret path")

    other = unpack(TABLES / "1.2.0" / "compaction.zip", tmp_path / "other")
    push(OURS, "r", "kept", hudi_table={"table": str(other)})
    given = views(monkeypatch)
    for _ in range(2):
        for page in ("/hudi/", "/hudi/t/early/"):
            assert get(client, page, token("viewer")).status_code == 200
        forget(client)
        monkeypatch.setattr(shared(client, name), "_read", fails)
    _, table, tables, table_again = given
    assert table.viewer.site == table_again.viewer.site == SITE
    assert str(other) in {one.path for one in tables.tables}


def test_without_a_site_other_owners_have_no_names(client, monkeypatch):
    given = views(monkeypatch)
    monkeypatch.setattr(shared(client, "site"), "_read", lambda: 1 / 0)
    assert get(client, "/hudi/t/early/", token("viewer")).status_code == 200
    assert given[0].viewer.site == ""


def test_twenty_pages_read_once_what_airflow_has(client, monkeypatch):
    reads = []
    for name in ("read_published", "site"):
        real = getattr(catalog, name)
        monkeypatch.setattr(catalog, name, lambda real=real: reads.append(real) or real())
    app = client.app.routes[-1].app

    async def at_once():
        known = Catalog(app.state.reads)
        end_s = time.monotonic() + 60
        await asyncio.gather(*(known.published(end_s) for _ in range(20)))
        await asyncio.gather(*(known.site(end_s) for _ in range(20)))

    asyncio.run(at_once())
    assert len(reads) == 2


def test_a_wrong_configuration_is_logged_once(client, monkeypatch, caplog):
    for value, times in (("[", 1), ("[", 1), ('["no path"]', 2), ('["no path"]', 2)):
        monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_TABLES", value)
        assert get(client, "/hudi/", token("viewer")).status_code == 200
        warned = [one for one in caplog.records if one.name.endswith("known_tables")]
        assert len(warned) == times


def test_the_link_of_a_task_leads_to_the_page_of_its_table(client, table):
    path = page_path(str(table)).removeprefix("/plugin/hudi")
    answer = get(client, f"{path}?range=24h", token("viewer"))
    assert (answer.status_code, answer.headers["Location"]) == (307, "early/?range=24h")
    assert path.endswith(table_key(f"file://{table}/"))


def test_only_names_of_readable_dags_are_given_to_a_page(client, monkeypatch):
    given = []
    monkeypatch.setattr(
        "airflow_occ_provider.ui.pages.table_page", lambda view: given.append(view) or ""
    )
    for team in (OURS, THEIRS):
        get(client, "/hudi/t/early/", token("viewer", team))
    assert [(one.viewer.dags, one.viewer.site) for one in given] == [
        ({OURS}, SITE),
        ({THEIRS}, SITE),
    ]


@pytest.mark.parametrize(
    ("route", "made"),
    [("tables", "tables_page"), ("table", "table_page"), ("attempts", "attempts_page")],
)
def test_no_page_is_made_in_the_servers_loop(client, monkeypatch, route, made):
    loops = []
    monkeypatch.setattr(
        f"airflow_occ_provider.ui.pages.{made}",
        lambda _: loops.append(asyncio._get_running_loop()) or "",
    )
    assert get(client, ROUTES[route], token("viewer", OURS)).status_code == 200
    assert loops == [None]


def test_a_table_that_a_task_published_has_a_page(client, tmp_path, database):
    other = unpack(TABLES / "1.2.0" / "compaction.zip", tmp_path / "other")
    found = f"/hudi/t/{table_key(str(other))}/"
    assert get(client, found, token("viewer")).status_code == 404
    push(OURS, "r", "t", hudi_table={"table": str(other)})
    forget(client)
    assert get(client, found, token("viewer")).status_code == 200


@pytest.fixture
def until(monkeypatch):
    """The times until which pages waited for queues, which answer once a table was read."""
    done, until, real = threading.Event(), [], table_readers.read_state

    def read_state(*given, **options):
        try:
            return real(*given, **options)
        finally:
            done.set()

    async def queues(_, __, until_s):
        until.append(until_s)
        assert await run_in_threadpool(done.wait, 30)
        return {}

    monkeypatch.setattr(table_readers, "read_state", read_state)
    monkeypatch.setattr(TableReads, "queues", queues)
    return until


def test_the_tables_are_read_while_a_queue_does_not_answer(client, until, monkeypatch):
    monkeypatch.setattr("airflow_occ_provider.ui.app.page_end", lambda: time.monotonic() + 6000)
    answer = get(client, "/hudi/", token("viewer"))
    assert answer.status_code == 200
    assert "never read" not in answer.text
    assert until[0] - time.monotonic() <= 3000  # the tables have the rest


def test_attempts_on_known_tables_ask_no_queue(client, until, table):
    keep_attempt(AttemptRecord(1, 3, "me", str(table), 1))
    assert get(client, ROUTES["attempts"], token("viewer", OURS)).status_code == 200
    assert not until


def keep_attempt(attempt):
    push(OURS, "r", "t")
    record = json.dumps(TaskRecord(attempts=(attempt,)).to_json())
    scope = TaskScope(dag_id=OURS, run_id="r", task_id="t", map_index=-1)
    get_state_backend().set(scope, RECORD_KEY, record)


def test_the_attempts_are_shown_with_what_the_table_says_of_them(client, monkeypatch, table):
    pending = sorted(one.name[:17] for one in (table / ".hoodie" / "timeline").glob("*.inflight"))
    attempt = AttemptRecord(1, 3, "me", f"file://{table}", 1, instants=(*pending, "20200101000000000"))
    keep_attempt(attempt)
    given = []
    monkeypatch.setattr(
        "airflow_occ_provider.ui.pages.attempts_page", lambda view: given.append(view) or ""
    )
    for map_index in ("-1", "{MAP_INDEX}", "0", "one", "9" * 5000, "²"):
        get(client, f"/hudi/attempts/{OURS}/r/t/{map_index}", token("viewer", OURS))
    plain, literal, mapped = given
    (shown,) = plain.attempts
    assert (shown.commit, shown.committed) == (None, None)  # it began before what the table shows
    assert set(shown.instants.values()) == {"dead", "not in the last 24 hours"}
    assert list(shown.instants) == list(attempt.instants)
    assert plain.keys == {f"file://{table}": "early"}
    assert literal.record == plain.record
    assert (mapped.record, mapped.map_index) == (None, 0)


def test_the_queue_of_a_table_shows_the_states_of_its_tasks(client, table, tmp_path, monkeypatch):
    entry = {"table": str(table), "key": "queued", "lock_conn_id": "lock"}
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__UI_TABLES", json.dumps([entry]))
    lock = {"conn_type": "hudi_storage_lock", "host": str(tmp_path / "locks")}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(lock))
    with closing(lock_hook("lock").leases()) as queue:
        for name, owner_site in (("ours", site()), ("elsewhere", "another")):
            owner = Owner((OURS, "r9", "writes"), site=owner_site)
            queue.request(Request(name, owner, (Scope(str(table), Mode.SHARED),), 60_000))
    push(OURS, "r9", "writes")
    with create_session() as session:
        session.query(TaskInstance).filter_by(run_id="r9").update({"state": "deferred"})
    answer = get(client, "/hudi/t/queued/", token("admin"))
    assert answer.status_code == 200
    assert answer.text.count("task: deferred") == 1
    assert f"{OURS} / r9 / writes" in answer.text

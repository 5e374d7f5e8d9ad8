"""The submitter of Livy's batches against a small server with recorded answers."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    StateStoreError,
    SubmitterUnreachableError,
    TableUnreadableError,
)
from airflow_occ_provider.submitters import livy as submitter
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_api import LivyApi
from airflow_occ_provider.submitters.livy_batch import livy_batch
from tests.livy import PlainHook

KEY = "k1"
FACT = "airflow_occ_provider: "


def fact(**values):
    return f"{FACT}{json.dumps(values)}\n"


PROTECTED = fact(fact="protected", options=9, followed=True)


class RecordedLivy(ThreadingHTTPServer):
    """Answers as Livy 0.7.1 was seen to answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.batches, self.next, self.requests = {}, 0, []
        self.lost_answers = self.broken = 0
        self.breaks_alone = ""
        self.error = (503, "Service Unavailable")
        self.names = self.begins = True

    def add(self, name, state="running", **more):
        number, self.next = self.next, self.next + 1
        self.batches[number] = {
            "id": number,
            "name": name,
            "owner": None,
            "proxyUser": None,
            "state": state,
            "appId": None,
            "appInfo": {"driverLogUrl": None, "sparkUiUrl": None},
            "log": ["stdout: ", "\nstderr: "],
            **more,
        }
        return self.batches[number]


class Handler(BaseHTTPRequestHandler):
    def answer(self, code, content):
        server = self.server
        if server.broken and server.breaks_alone in ("", self.command):
            server.broken -= 1
            code, content = server.error
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        if server.lost_answers and self.command != "GET":
            server.lost_answers -= 1
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def number(self):
        number = int(self.path.split("/")[2].partition("?")[0])
        if number not in self.server.batches:
            self.answer(404, {"msg": f"Session '{number}' not found."})
            return None
        return number

    def do_GET(self):
        server = self.server
        server.requests.append(("GET", self.path))
        if self.path.startswith("/batches?"):
            each = list(server.batches.values())
            self.answer(200, {"from": 0, "total": len(each), "sessions": each})
        elif (number := self.number()) is not None:
            is_log = "/log" in self.path
            if server.begins and server.batches[number]["state"] == "starting":
                server.batches[number]["state"] = "running"
            log = server.batches[number]["log"]
            found = {"id": number, "from": 0, "total": len(log), "log": log}
            self.answer(200, found if is_log else server.batches[number])

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append(("POST", body))
        name = body.get("name")
        if any(name == one["name"] for one in server.batches.values()):
            server.next += 1
            message = f"Duplicate session name: Some({name}) for session {server.next - 1}"
            self.answer(400, {"msg": message})
        elif not body["file"].startswith(("/", "file:")):
            server.add(name, "starting")  # Livy keeps it, without a process
            self.answer(400, {"msg": f"requirement failed: Path '{body['file']}' is not absolute."})
        else:
            self.answer(201, server.add(name if server.names else None, "starting"))

    def do_DELETE(self):
        server = self.server
        server.requests.append(("DELETE", self.path))
        if (number := self.number()) is not None:
            del server.batches[number]
            self.answer(200, {"msg": "deleted"})

    def log_message(self, *_):
        pass


@contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def server():
    with serving(RecordedLivy()) as one:
        yield one


class Told:
    """A report whose lines a test gives."""

    def __init__(self):
        self.missed, self.waiting, self.refusals = 0, [], 0

    def lines(self):
        if self.refusals:
            self.refusals -= 1
            raise TableUnreadableError("away")
        found, self.waiting = self.waiting, []
        return found


def told(lines):
    one = Told()
    one.waiting = [*lines]
    return one


@pytest.fixture
def report():
    return Told()


@pytest.fixture
def livy(server, report):
    return made(server, report)


def made(server, report=None, batch=None, **options):
    one = Livy(
        PlainHook(f"http://127.0.0.1:{server.server_port}"),
        livy_batch("file:///x/run_job.py", ["p"]) if batch is None else batch,
        report="file:///x/1.jsonl",
        open_report=(lambda _: report) if report else None,
        poll_s=0,
        **{"is_on_server": True, **options},
    )
    one._api.sleep = lambda _: None
    return one


def begun(server, one):
    handle = one.submit(KEY, lambda _: None)
    server.batches[handle.facts["id"]]["state"] = "running"
    return handle


def ends(server, handle, state="success", log=()):
    server.batches[handle.facts["id"]].update(state=state, log=["stdout: ", *log, "\nstderr: "])


def posted(server):
    return [body for method, body in server.requests if method == "POST"]


def test_a_batch_is_read_by_its_report_to_its_end(server, livy, report):
    handle = begun(server, livy)
    assert (handle.facts["id"], handle.facts["report"]) == (0, "file:///x/1.jsonl")
    assert livy.read(handle, 0) == []
    report.waiting = [PROTECTED]
    assert livy.read(handle, 0) == [PROTECTED]
    assert livy.poll(handle) == Running()
    report.waiting = [fact(fact="end", exit_code=0)]
    ends(server, handle, log=["a line", fact(fact="end", exit_code=0).strip()])
    assert livy.read(handle, 0) == [fact(fact="end", exit_code=0), "a line\n"]
    assert livy.read(handle, 0) is None
    assert livy.poll(handle) == Ended(0)


def test_a_forgotten_end_stays_known_to_the_process_that_saw_it(server, livy, report):
    handle = begun(server, livy)
    ends(server, handle)
    assert livy.poll(handle) == Ended(0, log_is_whole=False)
    server.batches.clear()
    assert livy.poll(handle) == Ended(0, log_is_whole=False)
    assert isinstance(made(server).poll(handle), Unseen)


def test_another_batch_of_the_same_number_is_not_the_driver(server, livy):
    handle = begun(server, livy)
    server.batches.clear()
    server.next = 0
    server.add("someone else's")
    assert isinstance(livy.poll(handle), Unseen)
    livy.end(handle)
    assert 0 in server.batches


@pytest.mark.parametrize(
    ("state", "lines", "code", "is_whole"),
    [
        ("success", [PROTECTED, fact(fact="end", exit_code=0)], 0, True),
        ("dead", [PROTECTED, fact(fact="end", exit_code=3)], 3, True),
        ("dead", [fact(fact="not_protected", reason="r")], 78, True),
        ("dead", [PROTECTED], -9, False),
        ("dead", [], 1, False),
        ("dead", [PROTECTED, fact(fact="end", exit_code=0)], 1, True),
        # Spark on Kubernetes: spark-submit succeeds where the driver failed.
        ("success", [PROTECTED, fact(fact="end", exit_code=4)], 4, True),
        # Another logging library: Hudi's records are only in the log.
        ("dead", [fact(fact="protected", followed=False), fact(fact="end", exit_code=3)], 3, False),
        ("killed", [PROTECTED], -15, False),
        ("error", [], 1, False),
    ],
)
def test_the_exit_code_is_the_runners_as_far_as_livy_agrees(
    server, livy, report, state, lines, code, is_whole
):
    handle = begun(server, livy)
    report.waiting = lines
    ends(server, handle, state)
    while livy.read(handle, 0) is not None:
        pass
    assert livy.poll(handle) == Ended(code, is_whole)


def test_a_report_without_its_middle_is_not_whole(server, livy, report):
    handle = begun(server, livy)
    report.waiting, report.missed = [PROTECTED, fact(fact="end", exit_code=0)], 7
    ends(server, handle)
    livy.read(handle, 0)
    assert livy.poll(handle) == Ended(0, log_is_whole=False)


def test_a_storage_that_fails_once_at_the_end_is_asked_again(server, livy, report, monkeypatch):
    monkeypatch.setattr("airflow_occ_provider.submitters.livy._LOOK_S", 0)
    handle = begun(server, livy)
    report.refusals = 1
    assert livy.read(handle, 0) == []
    report.refusals, report.waiting = 2, [fact(fact="end", exit_code=0)]
    ends(server, handle)
    assert livy.read(handle, 0) == [fact(fact="end", exit_code=0)]


def test_without_a_report_the_kept_lines_are_read_and_do_not_count_as_the_log(server):
    one = made(server)
    assert one.traits.logs == "none"
    handle = begun(server, one)
    ends(server, handle, "dead", ["a line", fact(fact="end", exit_code=5).strip()])
    assert one.read(handle, 0) == ["a line\n", fact(fact="end", exit_code=5)]
    assert one.read(handle, 0) is None
    assert one.poll(handle) == Ended(5, log_is_whole=False)


def test_a_batch_is_named_for_the_task_run_and_found_until_it_ends(server, livy):
    server.add(f"airflow_occ_{KEY}0_1")  # of another task run
    server.add(None)
    server.add(f"airflow_occ_{KEY}_0", "dead")
    assert livy.find(KEY) is None
    handle = begun(server, livy)
    assert made(server).find(KEY).facts["id"] == handle.facts["id"]
    ends(server, handle)
    assert livy.find(KEY) is None
    (body,) = posted(server)
    assert body["name"].startswith(f"airflow_occ_{KEY}_")
    assert body["conf"] == {"spark.yarn.maxAppAttempts": "1", "spark.driver.supervise": "false"}


def test_each_attempt_has_a_name_of_its_own(server, livy):
    names = {livy.create(KEY).facts["batch"] for _ in range(3)}
    assert len(names) == 3


def test_a_lost_answer_makes_no_second_batch(server, livy):
    server.lost_answers = 1
    handle = livy.submit(KEY, lambda _: None)
    assert len(server.batches) == 1
    assert server.batches[handle.facts["id"]]["name"] == handle.facts["batch"]
    assert len({body["name"] for body in posted(server)}) == 1


def test_a_livy_that_never_answers_is_an_error_after_which_the_batch_is_found(server, livy):
    server.lost_answers = 99
    with pytest.raises(SubmitterUnreachableError, match="POST /batches") as caught:
        livy.submit(KEY, lambda _: None)
    assert caught.value.retry
    assert caught.value.committed is None
    assert made(server).find(KEY)


def test_a_refused_batch_is_removed(server):
    one = made(server, batch=livy_batch("relative.py", []))
    with pytest.raises(ConfigurationError, match="is not absolute"):
        one.submit(KEY, lambda _: None)
    assert server.batches == {}


def test_a_livy_without_names_is_refused(server, livy):
    server.names = False
    with pytest.raises(ConfigurationError, match="does not name"):
        livy.submit(KEY, lambda _: None)
    assert server.batches == {}


def test_what_cannot_be_recorded_is_found(server, livy):
    def refuses(_):
        raise StateStoreError("away")

    with pytest.raises(StateStoreError):
        livy.submit(KEY, refuses)
    assert livy.find(KEY)


def test_an_end_that_was_asked_for_is_known(server, livy):
    handle = begun(server, livy)
    livy.end(handle)
    assert livy.poll(handle) == Ended(-15, log_is_whole=False)
    livy.end(handle)
    assert [method for method, _ in server.requests].count("DELETE") == 1
    assert livy.read(handle, 0) is None
    assert isinstance(made(server).poll(handle), Unseen)


def test_a_batch_that_has_ended_is_not_deleted(server, livy):
    handle = begun(server, livy)
    ends(server, handle, "dead", ["why"])
    livy.end(handle)
    assert 0 in server.batches


def test_a_batch_that_never_began_is_removed_without_proof(server, livy, monkeypatch):
    """Livy forgets a batch that is being started without ending what it starts."""
    monkeypatch.setattr("airflow_occ_provider.submitters.livy._START_S", 0.05)
    server.begins = False
    handle = livy.submit(KEY, lambda _: None)
    livy.end(handle)
    assert server.batches == {}
    assert isinstance(livy.poll(handle), Unseen)


def test_a_kill_while_it_is_read_ends_it(server, livy, report):
    handle = begun(server, livy)
    livy.killed.set()
    report.waiting = [PROTECTED]
    assert livy.read(handle, 0) == [PROTECTED]
    assert livy.poll(handle) == Ended(-15, log_is_whole=False)


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([PROTECTED, fact(fact="end", exit_code=0)], Ended(0, log_is_whole=False)),
        ([PROTECTED, fact(fact="end", exit_code=3)], Ended(1, log_is_whole=False)),
        ([fact(fact="not_protected", reason="r")], Ended(1, log_is_whole=False)),
        ([PROTECTED], Unseen),
        ([], Unseen),
    ],
)
def test_the_report_proves_the_end_of_a_batch_that_livy_has_forgotten(server, livy, lines, state):
    handle = begun(server, livy)
    server.batches.clear()
    later = made(server)
    later.open_report = lambda _: told(lines)
    found = later.poll(handle)
    assert found == state if isinstance(state, Ended) else isinstance(found, state)
    if isinstance(state, Ended):
        assert later.read(handle, 0) == lines
        assert later.read(handle, 0) is None
        assert later.poll(handle).log_is_whole


def test_a_later_process_reads_an_ended_batch_without_pauses(server, livy, report):
    handle = begun(server, livy)
    ends(server, handle)
    later = made(server, report)
    later.poll_s = 60
    report.waiting = [PROTECTED]
    assert later.poll(handle) == Ended(0, log_is_whole=False)
    started = time.monotonic()
    while later.read(handle, 0) is not None:
        assert time.monotonic() - started < later.poll_s


def test_a_batch_on_a_cluster_is_refused_and_ended_before_it_is_followed(server, livy):
    recorded = []
    add = server.add
    server.add = lambda *given, **more: add(*given, **more, appId="application_1_1")
    with pytest.raises(ConfigurationError, match=r"conn_id: .*application_1_1, not as a process"):
        livy.submit(KEY, recorded.append)
    assert len(recorded) == 1
    assert server.batches == {}


def test_a_handle_names_the_connections_by_which_a_later_process_follows_it(server):
    one = made(server, origin={"conn_id": "my_livy", "storage_conn_id": None})
    assert begun(server, one).facts["conn_id"] == "my_livy"


@pytest.mark.timeout(20)
def test_an_end_within_a_signal_handler_does_not_wait_for_the_interrupted_request(server, livy):
    handle, asked = begun(server, livy), []
    hook = livy.hook
    request = hook.run_method

    def interrupted(*given):
        if not asked:
            asked.append(1)
            livy.end(handle)
        return request(*given)

    hook.run_method = interrupted
    assert isinstance(livy.poll(handle), Ended | Unseen)
    assert server.batches == {}


def test_an_application_of_a_cluster_is_no_process_of_the_server(server, report):
    one = made(server, report)
    handle = begun(server, one)
    server.batches[0].update(appId="application_1_1", state="success")
    assert isinstance(one.poll(handle), Unseen)
    on_yarn = made(server, report, is_on_server=False)
    assert on_yarn.poll(handle) == Ended(0, log_is_whole=False)
    assert not on_yarn.traits.end_is_final


def test_short_outages_are_ridden_out(server, livy, report):
    handle = begun(server, livy)
    server.broken = 2
    assert livy.poll(handle) == Running()
    server.broken = 3
    report.waiting = ["x\n"]
    assert livy.read(handle, 0) == ["x\n"]  # the report is another service's
    server.broken = 3
    assert livy.poll(handle).is_away
    livy.patience.limit_s = -1
    server.broken = 3
    with pytest.raises(SubmitterUnreachableError, match="503"):
        livy.read(handle, 0)


def test_a_livy_that_stays_away_is_given_up(server, livy, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(submitter.time, "monotonic", lambda: clock[0])
    handle = begun(server, livy)
    server.broken = 3
    assert livy.poll(handle).is_away
    clock[0] += 600
    assert livy.poll(handle) == Running()  # which begins the time anew
    server.broken = 99
    assert livy.poll(handle).is_away
    clock[0] += 599
    assert livy.poll(handle).is_away
    clock[0] += 1
    given_up = livy.poll(handle)
    assert not given_up.is_away
    assert "has not answered for 10 minutes" in given_up.reason
    with pytest.raises(SubmitterUnreachableError, match="whether it commits, is unknown"):
        livy.read(handle, 0)


def test_a_batch_that_is_found_by_its_name_has_its_report(server, report):
    known = {"report_of": lambda key, attempt: f"file:///{key}/{attempt}.jsonl"}
    one = made(server, report, **known)
    one.report = f"file:///{KEY}/a1.jsonl"
    handle = begun(server, one)
    assert made(server, report, **known).find(KEY) == handle
    server.batches.clear()
    server.add(f"airflow_occ_{KEY}_0a1b2c3d")  # of an earlier release
    assert made(server, report, **known).find(KEY).facts["report"] == ""


def test_a_signal_handler_opens_no_report(server, report):
    handle = begun(server, made(server, report))
    later = made(server, report)
    later.open_report = lambda _: pytest.fail("it would look up a connection")
    later.killed.set()
    later.end(handle)
    assert server.batches == {}


def test_a_proxys_404_does_not_mean_that_livy_has_forgotten_the_batch(server, livy):
    handle = begun(server, livy)
    server.broken, server.error = 3, (404, "<html>no such route</html>")
    assert "no such route" in livy.poll(handle).reason
    assert livy.read(handle, 0) == []
    assert livy.poll(handle) == Running()


def test_refused_credentials_are_no_end(server, livy):
    handle = begun(server, livy)
    server.broken, server.error = 9, (403, "no")
    assert isinstance(livy.poll(handle), Unseen)
    assert livy.read(handle, 0) == []
    with pytest.raises(SubmitterUnreachableError, match="refuses to show"):
        livy.find(KEY)
    server.broken = 0
    assert livy.poll(handle) == Running()


def test_requests_are_bounded_but_a_time_out_of_the_user_stays(server):
    hook = PlainHook("http://127.0.0.1:1")
    LivyApi(hook, timeout_s=7)
    assert hook.extra_options == {"check_response": False, "timeout": 7}
    hook.extra_options = {"timeout": 3, "verify": False}
    LivyApi(hook, timeout_s=7)
    assert hook.extra_options == {"check_response": False, "timeout": 3, "verify": False}


def test_handles_have_no_secrets_and_survive_the_journal(server, livy):
    one = made(server, batch=livy_batch("/x.py", ["a"], {"spark.secret": "do-not-show"}))
    handle = begun(server, one)
    assert "do-not-show" not in json.dumps(handle.to_json())
    assert livy.poll(Handle.from_json(json.loads(json.dumps(handle.to_json())))) == Running()


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"spark.yarn.maxAppAttempts": 2}, "maxAppAttempts"),
        ({"spark.driver.supervise": True}, "supervise"),
    ],
)
def test_a_driver_that_a_cluster_may_run_again_is_refused(conf, named):
    with pytest.raises(ConfigurationError, match=named):
        livy_batch("/x.py", [], conf)


def test_a_request_has_livys_names():
    body = livy_batch("/x.py", ["a"], {"spark.b": True, "spark.n": None}, driver_memory="1g", jars=["j"])
    assert body["file"] == "/x.py"
    assert body["conf"]["spark.b"] == "true"
    assert "spark.n" not in body["conf"]
    assert (body["driverMemory"], body["jars"]) == ("1g", ["j"])
    with pytest.raises(ConfigurationError, match="driver_memoyr"):
        livy_batch("/x.py", [], driver_memoyr="1g")

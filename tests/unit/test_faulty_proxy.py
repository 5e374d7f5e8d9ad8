"""The proxy forwards what it does not fail, and fails what it says."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.faulty_proxy import Fault, FaultyProxy

LONG = b"x" * 300_000


class Echo(BaseHTTPRequestHandler):
    """Answers with the host and the body of a request; counts its requests."""

    protocol_version = "HTTP/1.1"
    seen = 0

    def do_PUT(self):
        type(self).seen += 1
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("X-Host", self.headers["Host"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "12345")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy():
    Echo.seen = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    with FaultyProxy(f"http://127.0.0.1:{server.server_port}", slow_s=0.1) as running:
        yield running
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def client(proxy):
    one = http.client.HTTPConnection("127.0.0.1", int(proxy.url.rpartition(":")[2]), timeout=20)
    yield one
    one.close()


def put(client, body=LONG, **headers):
    client.request("PUT", "/lake/a?b=c", body, headers)
    answer = client.getresponse()
    return answer.status, answer.read(), answer.headers


@pytest.mark.parametrize("headers", [{}, {"Expect": "100-continue"}])
def test_a_request_is_forwarded_with_the_host_that_its_signature_covers(proxy, client, headers):
    for _ in range(2):  # on one connection
        status, body, answered = put(client, **headers)
        assert (status, body) == (200, LONG)
        assert answered["X-Host"] == f"127.0.0.1:{client.port}"
    assert [str(one) for one in proxy.counted()] == ["PUT /lake/a?b=c"] * 2


def test_a_chunked_request_and_an_answer_without_a_body(proxy, client):
    pieces, headers = iter([b"one", LONG]), {"Transfer-Encoding": "chunked"}
    client.request("PUT", "/lake/a", pieces, headers, encode_chunked=True)
    assert client.getresponse().read() == b"one" + LONG
    client.request("HEAD", "/lake/a")
    answer = client.getresponse()
    assert (answer.headers["Content-Length"], answer.read()) == ("12345", b"")


@pytest.mark.parametrize(("fault", "status"), [(Fault.ERROR_500, 500), (Fault.ERROR_503, 503)])
def test_an_error_is_answered_as_s3_does_and_nothing_is_carried_out(proxy, client, fault, status):
    proxy.plan(fault)
    answered, body, _ = put(client)
    assert (answered, body[:5], Echo.seen) == (status, b"<?xml", 0)
    assert put(client)[0] == 200
    assert proxy.faults == {fault: 1}


@pytest.mark.parametrize(
    ("fault", "seen"), [(Fault.CUT_BEFORE, 0), (Fault.CUT_AFTER, 1), (Fault.CUT_ANSWER, 1)]
)
def test_a_cut_request_is_carried_out_or_not(proxy, client, fault, seen):
    proxy.plan(fault)
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        put(client)
    assert Echo.seen == seen
    client.close()
    assert put(client)[0] == 200


def test_a_slow_request_is_answered_and_a_plan_waits_for_its_request(proxy, client):
    proxy.plan(Fault.SLOW)
    assert put(client)[:2] == (200, LONG)
    proxy.plan(Fault.ERROR_500, at=lambda one: one.is_listing)
    assert put(client)[0] == 200
    proxy.forget_plan()


def test_the_same_seed_draws_the_same_faults(proxy):
    def drawn():
        with FaultyProxy("http://127.0.0.1:1", seed=3, percent=30) as one:
            return [one.draw(None)[0] for _ in range(200)]

    assert drawn() == drawn()
    assert 30 < sum(one is not None for one in drawn()) < 90

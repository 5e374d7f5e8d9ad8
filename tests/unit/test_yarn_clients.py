"""The clients of YARN's REST interfaces against answers that a real YARN gave."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.submitters.yarn_place import Container, ResourceManager, YarnAccess
from tests.golden.record_yarn import FOLDER
from tests.services.certificates import make_certificates

RUNNING = (FOLDER / "running.json").read_bytes()
NAME = json.loads(RUNNING)["app"]["id"]
NOT_FOUND = b'{"RemoteException":{"exception":"NotFoundException","message":"it is not found"}}'


class Server:
    """Answers each path by a function of the request; keeps what was asked."""

    def __init__(self):
        self.answers, self.asked, outer = {}, [], self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                size = int(self.headers.get("Content-Length", 0))
                path, _, query = self.path.partition("?")
                outer.asked.append((self.command, self.path, self.rfile.read(size)))
                code, body, headers = outer.answers.get(path, lambda _: (404, NOT_FOUND, {}))(query)
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def on(self, path, body, code=200, **headers):
        self.answers[f"/ws/v1/{path}"] = lambda _: (code, body, headers)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    one = Server()
    yield one
    one.close()


@pytest.fixture
def other():
    one = Server()
    yield one
    one.close()


@pytest.fixture
def closed():
    one = Server()
    one.close()
    return one.url


def test_an_application_is_read(server):
    server.on(f"cluster/apps/{NAME}", RUNNING)
    found = ResourceManager([server.url + "/"]).application(NAME)
    assert (found.id, found.state, found.is_over) == (
        NAME,
        "RUNNING",
        False,
    ) or found.state == "ACCEPTED"
    assert "airflow_occ_key" in found.tags
    assert found.container.id == NAME.replace("application", "container") + "_01_000001"
    assert found.container.manager.startswith("http://localhost:")


def test_an_unknown_application_is_none_and_none_has_the_tag(server):
    server.on("cluster/apps", b'{"apps":{}}')
    manager = ResourceManager([server.url])
    assert manager.application("application_1_0001") is None
    assert manager.applications("Some,Tag") == []
    assert server.asked[-1][1] == "/ws/v1/cluster/apps?applicationTags=some%2Ctag"


def test_the_drivers_of_all_attempts_of_an_application_are_listed(server):
    base = NAME.replace("application", "container")
    attempts = [
        {
            "id": number,
            "containerId": f"{base}_{number:02}_000001",
            "nodeHttpAddress": "node:8042",
            "logsLink": f"http://node:8042/node/containerlogs/{base}_{number:02}_000001/me",
        }
        for number in (1, 2)
    ]
    attempts.append({"id": 3, "containerId": "", "logsLink": ""})  # it waits
    answer = json.dumps({"appAttempts": {"appAttempt": attempts}}).encode()
    server.on(f"cluster/apps/{NAME}/appattempts", answer)
    manager = ResourceManager([server.url])
    expected = [Container("http://node:8042", f"{base}_{n:02}_000001") for n in (1, 2)]
    assert manager.containers(NAME) == expected
    assert manager.containers("application_1_0001") == []


def test_a_kill_goes_to_the_active_manager(server, other, closed):
    path = f"cluster/apps/{NAME}/state"
    where = {"Location": f"{other.url}/ws/v1/{path}"}
    server.on(path, b"This is standby RM. The redirect url is: x", 307, **where)
    other.on(path, b'{"state":"KILLING"}', 202)
    manager = ResourceManager([closed, server.url, other.url])
    manager.kill(NAME)
    manager.kill(NAME)  # now the active one is asked first
    assert other.asked == [("PUT", f"/ws/v1/{path}", b'{"state": "KILLED"}')] * 2
    assert len(server.asked) == 1


@pytest.mark.parametrize("code", [301, 302, 307])
def test_a_node_that_redirects_to_another_host_is_not_followed(server, other, code):
    """Its answer would be taken for the state of the container."""
    container = Container(server.url, "container_1_1_01_000001")
    path = f"node/containers/{container.id}"
    server.on(path, b"", code, Location=f"{other.url}/ws/v1/{path}")
    other.on(path, b'{"container": {"state": "EXITED_WITH_SUCCESS"}}')
    assert container.lives(1) is None
    assert other.asked == []


@pytest.mark.parametrize("code", [200, 307])
def test_a_standby_that_answers_in_words_is_not_active(server, code):
    words = b"Can not find any active RM. Will retry in next 3 seconds.\n"
    refresh = {"Refresh": f"3;url={server.url}/ws/v1/cluster/apps/{NAME}?next.refresh.interval=1"}
    server.on(f"cluster/apps/{NAME}", words, code, **refresh)
    with pytest.raises(SubmitterUnreachableError, match="no active ResourceManager answers"):
        ResourceManager([server.url]).application(NAME)


def test_a_refusal_is_named(server):
    server.on(f"cluster/apps/{NAME}/state", b"User dr_who cannot", 403)
    with pytest.raises(SubmitterUnreachableError, match="403 User dr_who cannot"):
        ResourceManager([server.url]).kill(NAME)


@pytest.mark.parametrize("address", ["rm:8088", "ftp://rm", "http://me:secret@rm:8088", ""])
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(ConfigurationError, match="yarn_resourcemanager_webapp_address") as refusal:
        ResourceManager([address] if address else [])
    assert "secret" not in str(refusal.value)


def container(server):
    return Container(server.url, "container_1")


@pytest.mark.parametrize(
    ("state", "lives"),
    [("RUNNING", True), ("KILLING", True), ("DONE", False), ("EXITED_WITH_FAILURE", False)],
)
def test_a_container_that_the_node_knows(server, state, lives):
    server.on("node/containers/container_1", json.dumps({"container": {"state": state}}).encode())
    assert container(server).lives(5) is lives


@pytest.mark.parametrize(("started", "lives"), [(4, False), (6, None)])
def test_a_container_that_the_node_does_not_know_has_ended_unless_the_node_restarted(
    server, started, lives
):
    server.on("node/info", json.dumps({"nodeInfo": {"nmStartupTime": started}}).encode())
    assert container(server).lives(5) is lives


def test_a_node_that_does_not_answer_proves_nothing(server, closed):
    assert Container(closed, "container_1").lives(5) is None
    server.on("node/containers/container_1", b"<html>no such page</html>", 404)
    assert container(server).lives(5) is None


def test_an_own_authority_is_trusted_where_it_is_named(tmp_path):
    certificates = make_certificates(tmp_path / "certificates")
    server = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    server.on(f"cluster/apps/{NAME}", RUNNING)
    url = f"https://localhost:{server.http.server_port}"
    access = YarnAccess.of({"yarn_certificate_authorities": str(certificates.ca)})
    try:
        assert ResourceManager([url], access).application(NAME).container.access == access
        with pytest.raises(SubmitterUnreachableError, match="certificate"):
            ResourceManager([url]).application(NAME)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("extra", "field"),
    [
        ({"yarn_authentication": "basic"}, "yarn_authentication"),
        ({"yarn_certificate_authorities": "/no/such.pem"}, "yarn_certificate_authorities"),
    ],
)
def test_an_access_that_cannot_be_used_is_refused_by_its_field(extra, field):
    with pytest.raises(ConfigurationError) as caught:
        YarnAccess.of(extra)
    assert caught.value.field == field


def test_an_access_is_passed_on_to_other_processes(tmp_path):
    (tmp_path / "ca.pem").touch()
    fields = {"yarn_authentication": "kerberos", "yarn_certificate_authorities": f"{tmp_path}/ca.pem"}
    assert YarnAccess.of({**fields, "other": 1}).to_json() == fields
    assert YarnAccess.of({}).to_json() == {}


def test_kerberos_without_its_package_names_the_extra(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests_gssapi", None)
    with pytest.raises(ConfigurationError, match="kerberos") as caught:
        ResourceManager([server.url], YarnAccess("kerberos")).application(NAME)
    assert "its extra kerberos" in caught.value.remedy


def test_a_secured_cluster_asks_to_name_its_authentication(server):
    server.on(f"cluster/apps/{NAME}", b"Authentication required", 401)
    with pytest.raises(SubmitterUnreachableError, match=r"401 .*yarn_authentication"):
        ResourceManager([server.url]).application(NAME)

"""Who may stand in a line over ZooKeeper, and what those are told who may not."""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from airflow_occ_provider.embedded.certificates import Certificates, make_certificates
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.zookeeper.client import Access, Tls, check_lock_service
from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes
from airflow_occ_provider.leases.zookeeper.wire import LOG
from tests.real.lines import Lines, asks, bare_client, wait_until_held

pytestmark = pytest.mark.real

SECRET, WRONG = "s3same-0pen", "0pen-s3same"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory, certificates):
    with EmbeddedZookeeper(tmp_path_factory.mktemp("zk"), certificates=certificates) as zookeeper:
        yield zookeeper


@pytest.fixture
def lines():
    with Lines() as lines:
        yield lines


@pytest.fixture(autouse=True)
def no_secret_in_the_log(caplog):
    caplog.set_level(1)
    caplog.set_level(1, logger=LOG.name)
    yield
    said = "\n".join(
        record.getMessage() for when in ("setup", "call") for record in caplog.get_records(when)
    )
    assert SECRET not in said
    assert WRONG not in said


def ann(zookeeper, **changes):
    return replace(Access(zookeeper.hosts, 10.0, "ann", SECRET), **changes)


def told(error):
    """Return all that a log would show of an error."""
    text = "".join(traceback.format_exception(error.value)) + repr(error.value)
    assert SECRET not in text
    assert WRONG not in text
    return str(error.value)


def test_another_login_is_told_so(zookeeper, lines, caplog):
    line = lines.open(ann(zookeeper), "/of-ann")
    ticket = line.request(asks())
    rival = lines.open(ann(zookeeper, password=WRONG), "/of-ann")
    for call in (lambda: rival.request(asks()), lambda: rival.release(ticket), rival.requests):
        with pytest.raises(ConfigurationError, match=r"does not let login ann use /of-ann") as error:
            call()
        assert "lock connection: " in told(error)
        assert "check the connection's login and password" in told(error)
    line.ensure_held(ticket)
    assert [one.name for one in line.requests()] == [ticket.name]
    assert any(record.levelno == logging.DEBUG for record in caplog.records), "kazoo logged its messages"


def test_what_a_login_made_nobody_else_touches(zookeeper, lines):
    line = lines.open(ann(zookeeper), "/private")
    ticket = line.request(asks())
    path = f"/private/requests/{ticket.name}"
    with bare_client(zookeeper.hosts) as stranger:
        for touch in (
            lambda: stranger.get(path),
            lambda: stranger.set(path, b""),
            lambda: stranger.delete(path),
            lambda: stranger.set_acls(path, OPEN_ACL_UNSAFE),
            lambda: stranger.get_children("/private/requests"),
            lambda: stranger.create("/private/requests/mine"),
        ):
            with pytest.raises(NoAuthError):
                touch()
    assert [one.name for one in line.requests()] == [ticket.name]
    without = lines.at(zookeeper.hosts, "/private")
    with pytest.raises(ConfigurationError, match="does not let clients without a login use /private"):
        without.request(asks())


def test_a_root_that_lets_nobody_in_is_told_and_left_as_it_was(zookeeper, lines):
    with bare_client(zookeeper.hosts) as keeper:
        keeper.add_auth("digest", "keeper:of-the-root")
        keeper.create("/closed", acl=[make_digest_acl("keeper", "of-the-root", all=True)])
        for access in (Access(zookeeper.hosts), ann(zookeeper)):
            with pytest.raises(
                ConfigurationError, match=r"use /closed/leases/requests: NoAuth"
            ) as error:
                lines.open(access, "/closed/leases").request(asks())
            assert "the rights (ACL) of the path" in told(error)
            with pytest.raises(ConfigurationError, match="use /closed"):
                check_lock_service(access, None, "/closed")
        assert keeper.get_children("/closed") == []


def test_a_root_that_may_only_be_read_is_told_too(zookeeper, lines):
    with bare_client(zookeeper.hosts) as keeper:
        keeper.create("/readable/requests", makepath=True)
        keeper.create("/readable/requests/elder", acl=OPEN_ACL_UNSAFE)
        keeper.set_acls("/readable/requests", READ_ACL_UNSAFE)
    nodes = ZookeeperNodes(Access(zookeeper.hosts), "/readable")
    try:
        for beside in (None, "elder"):
            with pytest.raises(ConfigurationError, match="use /readable/requests/mine"):
                nodes.create("mine", b"", beside)
        with pytest.raises(ConfigurationError, match="use /readable/requests/elder"):
            nodes.delete("elder", 0)
        assert nodes.names() == {"elder"}
    finally:
        nodes.close()


def test_a_password_is_nowhere_to_be_read(zookeeper):
    access = ann(zookeeper)
    assert SECRET not in repr(access)
    assert "ann" in repr(access)


@pytest.mark.parametrize("hosts", ["", "zk:port", "zk:99999999"])
def test_hosts_that_are_none_are_told_so(hosts):
    with pytest.raises(ConfigurationError, match=r"is not a list of ZooKeeper hosts.*host:port"):
        ZookeeperNodes(Access(hosts, 2.0), "/leases")


def test_a_line_by_tls(zookeeper, lines, certificates):
    tls = Tls(str(certificates.ca), str(certificates.client))
    access = ann(zookeeper, hosts=zookeeper.secure_hosts, tls=tls)
    first, second = (lines.open(access, "/by-tls") for _ in range(2))
    held, waiting = first.request(asks()), second.request(asks())
    assert first.status(held).held
    assert not second.status(waiting).held
    assert first.release(held)
    wait_until_held(second, waiting)
    assert waiting.token > held.token


def test_a_server_of_another_authority_is_refused(zookeeper, certificates, tmp_path):
    others = make_certificates(tmp_path)
    tls = Tls(str(others.ca), str(certificates.client))
    access = Access(zookeeper.secure_hosts, 2.0, tls=tls)
    with pytest.raises(ConfigurationError, match=r"CERTIFICATE_VERIFY_FAILED.*tls_ca is the CA"):
        ZookeeperNodes(access, "/leases")
    ZookeeperNodes(replace(access, tls=replace(tls, verify=False)), "/leases").close()


def test_a_server_of_another_name_is_refused(certificates, tmp_path):
    nameless = Certificates(certificates.ca, certificates.client, certificates.client)
    tls = Tls(str(certificates.ca), str(certificates.client))
    with EmbeddedZookeeper(tmp_path, certificates=nameless) as zookeeper:
        access = Access(zookeeper.secure_hosts, 2.0, tls=tls)
        with pytest.raises(ConfigurationError, match="IP address mismatch"):
            ZookeeperNodes(access, "/leases")
        ZookeeperNodes(replace(access, tls=replace(tls, verify=False)), "/leases").close()


def test_a_client_without_a_certificate_is_refused(zookeeper, certificates):
    with pytest.raises(ConfigurationError, match="that the server trusts tls_certificate"):
        ZookeeperNodes(Access(zookeeper.secure_hosts, 2.0, tls=Tls(str(certificates.ca))), "/leases")


def test_a_port_that_speaks_otherwise_is_told(zookeeper, certificates):
    tls = Tls(str(certificates.ca), str(certificates.client))
    with pytest.raises((LockUnreachableError, ConfigurationError), match="TLS"):
        ZookeeperNodes(Access(zookeeper.hosts, 2.0, tls=tls), "/leases")
    with pytest.raises(LockUnreachableError, match="that these ports are without TLS"):
        ZookeeperNodes(Access(zookeeper.secure_hosts, 2.0), "/leases")


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("tls_ca", {"ca": "no/such.pem"}),
        ("tls_certificate", {"certificate": "no/such.pem"}),
        ("tls_certificate", {"key": "no/such.pem"}),
    ],
)
def test_a_file_that_cannot_be_used_is_named(certificates, field, changes):
    tls = replace(Tls(str(certificates.ca), str(certificates.client)), **changes)
    with pytest.raises(
        ConfigurationError, match=rf"{field}.*no/such\.pem.* cannot be used for TLS"
    ) as error:
        tls.context()
    assert error.value.field.startswith(field)


def test_a_key_with_a_password_is_refused_at_once(certificates, tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(certificates.client.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(SECRET.encode())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, form, locked))
    tls = Tls(str(certificates.ca), str(certificates.client), str(tmp_path / "key.pem"))
    with pytest.raises(ConfigurationError, match="with an unencrypted key"):
        tls.context()

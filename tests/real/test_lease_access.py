"""Which clients may use a queue over ZooKeeper, and the errors that the others get."""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_digest_acl

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.zookeeper.access import Tls, ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.client import LOG, check_lock_service
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.real.queues import Queues, asks, bare_client, wait_until_held
from tests.services.certificates import Certificates, TlsZookeeper, make_certificates

pytestmark = pytest.mark.real

SECRET, WRONG = "s3same-0pen", "0pen-s3same"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory, certificates):
    with TlsZookeeper(tmp_path_factory.mktemp("zk"), certificates) as zookeeper:
        yield zookeeper


@pytest.fixture
def queues():
    with Queues() as queues:
        yield queues


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
    return replace(ZookeeperAccess(zookeeper.hosts, 10.0, "ann", SECRET), **changes)


def message(error):
    """Return an error's message; check that its traceback shows no secret."""
    text = "".join(traceback.format_exception(error.value)) + repr(error.value)
    assert SECRET not in text
    assert WRONG not in text
    return str(error.value)


def test_a_wrong_login_gets_an_error_that_names_it(zookeeper, queues, caplog):
    queue = queues.open(ann(zookeeper), "/of-ann")
    ticket = queue.request(asks())
    rival = queues.open(ann(zookeeper, password=WRONG), "/of-ann")
    for call in (lambda: rival.request(asks()), lambda: rival.release(ticket), rival.requests):
        with pytest.raises(ConfigurationError, match=r"does not let login ann use /of-ann") as error:
            call()
        assert "lock connection: " in message(error)
        assert "check the connection's login and password" in message(error)
    queue.ensure_held(ticket)
    assert [one.name for one in queue.requests()] == [ticket.name]
    assert any(record.levelno == logging.DEBUG for record in caplog.records), "kazoo logged its messages"


def test_only_the_login_that_made_a_node_can_read_or_change_it(zookeeper, queues):
    queue = queues.open(ann(zookeeper), "/private")
    ticket = queue.request(asks())
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
    assert [one.name for one in queue.requests()] == [ticket.name]
    without = queues.at(zookeeper.hosts, "/private")
    with pytest.raises(ConfigurationError, match="does not let clients without a login use /private"):
        without.request(asks())


def test_a_root_without_rights_is_reported_and_left_unchanged(zookeeper, queues):
    with bare_client(zookeeper.hosts) as keeper:
        keeper.add_auth("digest", "keeper:of-the-root")
        keeper.create("/closed", acl=[make_digest_acl("keeper", "of-the-root", all=True)])
        for access in (ZookeeperAccess(zookeeper.hosts), ann(zookeeper)):
            with pytest.raises(
                ConfigurationError, match=r"use /closed/leases/requests: NoAuth"
            ) as error:
                queues.open(access, "/closed/leases").request(asks())
            assert "the rights (ACL) of the path" in message(error)
            with pytest.raises(ConfigurationError, match="use /closed"):
                check_lock_service(access, None, "/closed")
        assert keeper.get_children("/closed") == []


def test_a_root_that_is_read_only_is_reported_too(zookeeper, queues):
    with bare_client(zookeeper.hosts) as keeper:
        keeper.create("/readable/requests", makepath=True)
        keeper.create("/readable/requests/earlier", acl=OPEN_ACL_UNSAFE)
        keeper.set_acls("/readable/requests", READ_ACL_UNSAFE)
    nodes = ZookeeperStore(ZookeeperAccess(zookeeper.hosts), "/readable")
    try:
        for beside in (None, "earlier"):
            with pytest.raises(ConfigurationError, match="use /readable/requests/mine"):
                nodes.create("mine", b"", beside)
        with pytest.raises(ConfigurationError, match="use /readable/requests/earlier"):
            nodes.delete("earlier", 0)
        assert set(nodes.stamps()) == {"earlier"}
    finally:
        nodes.close()


def test_a_password_is_never_shown(zookeeper):
    access = ann(zookeeper)
    assert SECRET not in repr(access)
    assert "ann" in repr(access)


@pytest.mark.parametrize("hosts", ["", "zk:port", "zk:99999999"])
def test_malformed_hosts_are_reported(hosts):
    with pytest.raises(ConfigurationError, match=r"is not a list of ZooKeeper hosts.*host:port"):
        ZookeeperStore(ZookeeperAccess(hosts, 2.0), "/leases")


def test_a_queue_over_tls(zookeeper, queues, certificates):
    tls = Tls(str(certificates.ca), str(certificates.client))
    access = ann(zookeeper, hosts=zookeeper.secure_hosts, tls=tls)
    first, second = (queues.open(access, "/by-tls") for _ in range(2))
    held, waiting = first.request(asks()), second.request(asks())
    assert first.status(held).held
    assert not second.status(waiting).held
    assert first.release(held)
    wait_until_held(second, waiting)
    assert waiting.token > held.token


def test_a_server_of_another_authority_is_refused(zookeeper, certificates, tmp_path):
    others = make_certificates(tmp_path)
    tls = Tls(str(others.ca), str(certificates.client))
    access = ZookeeperAccess(zookeeper.secure_hosts, 2.0, tls=tls)
    with pytest.raises(ConfigurationError, match=r"CERTIFICATE_VERIFY_FAILED.*tls_ca is the CA"):
        ZookeeperStore(access, "/leases")
    ZookeeperStore(replace(access, tls=replace(tls, verify=False)), "/leases").close()


def test_a_server_of_another_name_is_refused(certificates, tmp_path):
    nameless = Certificates(certificates.ca, certificates.client, certificates.client)
    tls = Tls(str(certificates.ca), str(certificates.client))
    with TlsZookeeper(tmp_path, nameless) as zookeeper:
        access = ZookeeperAccess(zookeeper.secure_hosts, 2.0, tls=tls)
        with pytest.raises(ConfigurationError, match="IP address mismatch"):
            ZookeeperStore(access, "/leases")
        ZookeeperStore(replace(access, tls=replace(tls, verify=False)), "/leases").close()


def test_a_client_without_a_certificate_is_refused(zookeeper, certificates):
    with pytest.raises(ConfigurationError, match="that the server trusts tls_certificate"):
        ZookeeperStore(
            ZookeeperAccess(zookeeper.secure_hosts, 2.0, tls=Tls(str(certificates.ca))), "/leases"
        )


def test_a_port_with_the_wrong_protocol_is_reported(zookeeper, certificates):
    tls = Tls(str(certificates.ca), str(certificates.client))
    with pytest.raises((LockUnreachableError, ConfigurationError), match="TLS"):
        ZookeeperStore(ZookeeperAccess(zookeeper.hosts, 2.0, tls=tls), "/leases")
    with pytest.raises(LockUnreachableError, match="that these ports are without TLS"):
        ZookeeperStore(ZookeeperAccess(zookeeper.secure_hosts, 2.0), "/leases")


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

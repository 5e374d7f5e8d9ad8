"""Certificates from a private authority, and a ZooKeeper with TLS on loopback."""

from __future__ import annotations

import datetime as dt
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509 import Certificate

_SERVER = "localhost"
_VALID = dt.timedelta(days=2)
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files with certificates; those of server and client also contain the key.

    :param ca: certificate of the authority.
    :param server: certificate of a server on 127.0.0.1 and localhost.
    :param client: certificate of a client; it names no host.
    """

    ca: Path
    server: Path
    client: Path


class TlsZookeeper(EmbeddedZookeeper):
    """A ZooKeeper server that also listens on ``secure_hosts``, for clients with a certificate."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.secure_port = free_port()
        super().__init__(
            folder,
            settings={
                "secureClientPort": self.secure_port,
                "secureClientPortAddress": "127.0.0.1",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": certificates.server,
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": certificates.ca,
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need",
            },
        )

    @property
    def secure_hosts(self) -> str:
        """The connect string for TLS connections."""
        return f"127.0.0.1:{self.secure_port}"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.secure_port), 1.0).close()
        except OSError:
            return False
        return super()._answers()


def make_certificates(folder: Path) -> Certificates:
    """Make an authority, and certificates for one server and one client.

    The authority's key is not kept.

    :param folder: folder of the files, which only their owner can read.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "client.pem")
    authority_key = _key()
    # Each authority has its own name: otherwise a client may send the wrong one with its certificate.
    authority = _certificate(f"authority {secrets.token_hex(4)}", authority_key, None, authority_key)
    _write(made.ca, authority)
    for name, path in ((_SERVER, made.server), ("client", made.client)):
        key = _key()
        _write(path, _certificate(name, key, authority, authority_key), key)
    return made


def _key() -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _certificate(
    name: str, key: RSAPrivateKey, issuer: Certificate | None, signed_by: RSAPrivateKey
) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key())
    now = dt.datetime.now(dt.UTC)
    unsigned = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        # Python 3.13 refuses certificates that name neither their keys nor what these may be used for.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signer, critical=False)
    )
    if issuer is None:
        signs = {name: name == "key_cert_sign" for name in _USES}
        unsigned = unsigned.add_extension(x509.KeyUsage(**signs), critical=True)
    if name == _SERVER:
        loopback = [x509.DNSName(_SERVER), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        unsigned = unsigned.add_extension(x509.SubjectAlternativeName(loopback), critical=False)
    return unsigned.sign(signed_by, SHA256())


def _write(path: Path, certificate: Certificate, key: RSAPrivateKey | None = None) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    text = certificate.public_bytes(pem)
    if key:
        pkcs8, bare = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        text += key.private_bytes(pem, pkcs8, bare)
    path.touch(mode=0o600)
    path.write_bytes(text)

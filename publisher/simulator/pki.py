"""A temporary public key infrastructure: a CA, a server, a client, and certificates with every kind of error.

For demonstrations, rehearsals and tests: the keys are unprotected and live for weeks. Files are 0600, directories 0700.
The CA directory has the hashed form that grid sites use (`HASH.0` for certificates, `HASH.r0` for CRLs).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from publisher.security.distinguished_name import name_hash, slash_dn

KeyKind = Literal["rsa", "ec"]
Validity = Literal["current", "expired", "future"]
_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
_LIFE = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its key, as two PEM files. `dn` has the slash form of SGAS and GOCDB."""

    certificate: Path
    key: Path
    dn: str

    def load(self) -> x509.Certificate:
        """The first certificate in the file."""
        return x509.load_pem_x509_certificate(self.certificate.read_bytes())


@dataclass(frozen=True, slots=True)
class Pki:
    """A CA with a server certificate (localhost, 127.0.0.1, ::1) and a client certificate; methods make more."""

    directory: Path
    ca: Credential
    ca_file: Path
    ca_directory: Path
    server: Credential
    client: Credential

    def issue(
        self, name: str, cn: str, *, key: KeyKind = "rsa", validity: Validity = "current", server: bool = False
    ) -> Credential:
        """Another certificate of this CA in NAME.pem and NAME.key."""
        private = _new_key(key)
        subject = _subject(cn)
        certificate = _sign(
            subject,
            private,
            self.ca.load().subject,
            _load_key(self.ca),
            validity=validity,
            server=server,
            issuer=self.ca,
        )
        return _write(self.directory, name, certificate, private)

    def issue_proxy(self, name: str, of: Credential | None = None) -> Credential:
        """A proxy certificate of RFC 3820: issued by a user's certificate (`of`), with proxyCertInfo."""
        parent = of or self.client
        private = _new_key("rsa")
        serial = secrets.randbits(31)
        subject = x509.Name(
            [*parent.load().subject, x509.NameAttribute(NameOID.COMMON_NAME, str(serial))],
        )
        certificate = _sign(subject, private, parent.load().subject, _load_key(parent), issuer=parent, proxy=True)
        credential = _write(self.directory, name, certificate, private)
        _write_private(
            credential.certificate, credential.certificate.read_bytes() + parent.certificate.read_bytes()
        )  # a proxy is sent together with the certificate that issued it
        return credential

    def other_key(self, name: str, *, key: KeyKind = "rsa") -> Path:
        """A key that belongs to none of the certificates."""
        path = self.directory / f"{name}.key"
        _write_private(path, _pem_key(_new_key(key)))
        return path

    def revoke(self, *credentials: Credential) -> Path:
        """A CRL of this CA with these certificates (none: an empty CRL), written to the CA directory."""
        authority = self.ca.load()
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(authority.subject)
            .last_update(now - timedelta(minutes=5))
            .next_update(now + _LIFE)
            .add_extension(x509.CRLNumber(1), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(_load_key(self.ca).public_key()), critical=False
            )
        )
        for credential in credentials:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(credential.load().serial_number)
                .revocation_date(now - timedelta(minutes=5))
                .build()
            )
        path = self.ca_directory / f"{name_hash(authority.subject):08x}.r0"
        _write_private(path, builder.sign(_load_key(self.ca), hashes.SHA256()).public_bytes(Encoding.PEM))
        return path


def make_pki(
    directory: Path,
    *,
    client_cn: str = "ce1.example.org",
    client_key: KeyKind = "rsa",
    server_names: Sequence[str] = ("localhost",),
    ca_cn: str = "Throw-away CA",
) -> Pki:
    """A new CA with a server and a client certificate in `directory` (made if absent).

    Another CA is another call with another directory and `ca_cn`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    ca_key = _new_key("ec")
    ca_name = _subject(ca_cn)
    ca_certificate = _sign(ca_name, ca_key, ca_name, ca_key, authority=True)
    authority = _write(directory, "ca", ca_certificate, ca_key)
    ca_directory = directory / "certificates"
    ca_directory.mkdir(mode=0o700, exist_ok=True)
    _write_private(ca_directory / f"{name_hash(ca_name):08x}.0", ca_certificate.public_bytes(Encoding.PEM))
    server_key = _new_key("ec")
    server_certificate = _sign(
        _subject(server_names[0]), server_key, ca_name, ca_key, server=True, names=server_names, issuer=authority
    )
    client_private = _new_key(client_key)
    client_certificate = _sign(_subject(client_cn), client_private, ca_name, ca_key, issuer=authority)
    return Pki(
        directory=directory,
        ca=authority,
        ca_file=authority.certificate,
        ca_directory=ca_directory,
        server=_write(directory, "server", server_certificate, server_key),
        client=_write(directory, "client", client_certificate, client_private),
    )


def _subject(cn: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "org"),
            x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
            x509.NameAttribute(NameOID.COMMON_NAME, cn),
        ]
    )


def _new_key(kind: KeyKind) -> _PrivateKey:
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _load_key(credential: Credential) -> _PrivateKey:
    key = load_pem_private_key(credential.key.read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    return key


def _sign(
    subject: x509.Name,
    key: _PrivateKey,
    issuer_name: x509.Name,
    issuer_key: _PrivateKey,
    *,
    issuer: Credential | None = None,
    validity: Validity = "current",
    authority: bool = False,
    server: bool = False,
    proxy: bool = False,
    names: Sequence[str] = ("localhost",),
) -> x509.Certificate:
    now = datetime.now(UTC)
    start, end = {
        "current": (now - timedelta(hours=1), now + _LIFE),
        "expired": (now - _LIFE, now - timedelta(hours=1)),
        "future": (now + timedelta(days=1), now + _LIFE),
    }[validity]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(authority=authority), critical=True)
    )
    if issuer is not None:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    if proxy:
        # proxyCertInfo of RFC 3820 with the policy "inherit all" (1.3.6.1.5.5.7.21.1): SEQUENCE { SEQUENCE { OID } }
        policy = bytes.fromhex("300c300a06082b06010505071501")
        info = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.5.5.7.1.14"), policy)
        return builder.add_extension(info, critical=True).sign(issuer_key, hashes.SHA256())
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if server:
        addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
        alternatives = x509.SubjectAlternativeName([*(x509.DNSName(name) for name in names), *addresses])
        builder = builder.add_extension(alternatives, critical=False)
    if not authority:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        purposes = [purpose] if server else [purpose, ExtendedKeyUsageOID.EMAIL_PROTECTION]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_key(key: _PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(directory: Path, name: str, certificate: x509.Certificate, key: _PrivateKey) -> Credential:
    credential = Credential(directory / f"{name}.pem", directory / f"{name}.key", slash_dn(certificate.subject))
    _write_private(credential.certificate, certificate.public_bytes(Encoding.PEM))
    _write_private(credential.key, _pem_key(key))
    return credential


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)  # a link or a file of another user is replaced, never followed
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)

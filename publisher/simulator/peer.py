"""Who is at the other end of a TLS connection, and what nginx would say of that certificate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from publisher.credentials import slash_dn

_PROXY_CERT_INFO = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.14")


class Peer(msgspec.Struct, frozen=True):
    """The client of a connection. `trouble` is empty for a certificate that is good."""

    dn: str
    cn: str
    trouble: str


def peer_of(der: bytes, revocations: Sequence[x509.CertificateRevocationList]) -> Peer:
    """Judge a certificate whose issuer the handshake has verified: dates, proxies and revocation are left to this."""
    certificate = x509.load_der_x509_certificate(der)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return Peer(
        dn=slash_dn(certificate.subject),
        cn=str(names[-1].value) if names else "",
        trouble=_trouble(certificate, revocations),
    )


def _trouble(certificate: x509.Certificate, revocations: Sequence[x509.CertificateRevocationList]) -> str:
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return "certificate has expired"
    if now < certificate.not_valid_before_utc:
        return "certificate is not yet valid"
    if any(extension.oid == _PROXY_CERT_INFO for extension in certificate.extensions):
        return "proxy certificates not allowed"
    if any(
        revocation.issuer == certificate.issuer
        and revocation.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None
        for revocation in revocations
    ):
        return "certificate revoked"
    return ""

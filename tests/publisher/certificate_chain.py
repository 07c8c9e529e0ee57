"""A chain of authorities: a root, one below it, and a server's certificate, with revocation lists of either."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from publisher.security.distinguished_name import name_hash
from publisher.simulator.pki import Credential


class Chain:
    """Its authorities are in `directory`, in hashed form: the root alone, or both."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "certificates"
        self.directory.mkdir(parents=True)
        self.root = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.sub = self.root.create_child_ca(key_type=trustme.KeyType.ECDSA)
        issued = self.sub.issue_cert("localhost", key_type=trustme.KeyType.ECDSA)
        self.server = Credential(folder / "server.pem", folder / "server.key", "")
        self.server.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        self.server.key.write_bytes(issued.private_key_pem.bytes())
        self.add(self.root)

    @property
    def leaf(self) -> x509.Certificate:
        """The server's certificate."""
        return self.server.load()

    def add(self, authority: trustme.CA) -> None:
        """Install an authority."""
        certificate = certificate_of(authority)
        (self.directory / f"{name_hash(certificate.subject):08x}.0").write_bytes(authority.cert_pem.bytes())

    def write_list(
        self,
        authority: trustme.CA,
        revoked: Sequence[x509.Certificate] = (),
        *,
        days: float = 1,
        age_s: float = 30 * 86400,
        number: int = 0,
        signer: trustme.CA | None = None,
        scope: x509.IssuingDistributionPoint | None = None,
        base: int | None = None,
        entry_issuer: trustme.CA | None = None,
        append: bool = False,
    ) -> Path:
        """Write a list of an authority that is valid for this number of days from now (negative: it has expired).

        It was issued `age_s` seconds ago (negative: it is not valid yet). `base` makes it a delta list of that number.
        The first entry names `entry_issuer`. `append` adds the list to the file instead of replacing the file.
        """
        now = datetime.now(UTC)
        name = certificate_of(authority).subject
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(name)
            .last_update(now - timedelta(seconds=age_s))
            .next_update(now + timedelta(days=days))
        )
        if scope is not None:
            builder = builder.add_extension(scope, critical=True)
        if base is not None:
            builder = builder.add_extension(x509.DeltaCRLIndicator(base), critical=True)
        for number_of_entry, certificate in enumerate(revoked):
            entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now)
            if entry_issuer is not None and number_of_entry == 0:
                names = [x509.DirectoryName(certificate_of(entry_issuer).subject)]
                entry = entry.add_extension(x509.CertificateIssuer(names), critical=True)
            builder = builder.add_revoked_certificate(entry.build())
        key = serialization.load_pem_private_key((signer or authority).private_key_pem.bytes(), None)
        made = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
        path = self.directory / f"{name_hash(name):08x}.r{number}"
        before = path.read_bytes() if append else b""
        path.write_bytes(before + made.public_bytes(serialization.Encoding.PEM))
        return path


def certificate_of(authority: trustme.CA) -> x509.Certificate:
    """An authority's own certificate."""
    return x509.load_pem_x509_certificate(authority.cert_pem.bytes())


def only(*, authorities: bool) -> x509.IssuingDistributionPoint:
    """The scope of a list about authorities, or about all others."""
    return x509.IssuingDistributionPoint(None, None, not authorities, authorities, None, False, False)


def indirect() -> x509.IssuingDistributionPoint:
    """The scope of a list with certificates of several authorities."""
    return x509.IssuingDistributionPoint(None, None, False, False, None, True, False)

"""Revocation lists (CRLs) of a directory of authorities: each certificate of a chain whose issuer has one is looked up.

OpenSSL either demands a list of every authority of a chain or looks up the leaf alone, so that one authority without a
list leaves the lists of the others unused. Here a missing list leaves unchecked only what its own authority issued. A
list that is there counts: one that has expired, or cannot be read or verified, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from publisher.name_hash import name_hash

LIST_FILE: Final = re.compile(r"[0-9a-f]{8}\.r\d+").fullmatch
"""HASH.rN: the hash is that of the issuer's name."""
LARGEST_LIST_BYTES: Final = 64 << 20
_SIGNING_KEYS: Final = (
    rsa.RSAPublicKey, ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey, ed448.Ed448PublicKey,
)  # fmt: skip
_HINT: Final = "let fetch-crl get it anew"


class RevocationError(ValueError):
    """A certificate cannot be accepted because of a revocation list. The text says of which, and why."""


class RevokedError(RevocationError):
    """A certificate was revoked by the authority that issued it."""


class RevocationLists:
    """The lists of a directory. Each is read, and its signature verified, when it is first needed."""

    def __init__(self, directory: Path | None) -> None:
        """None: there are no lists."""
        self._directory = directory
        self._known: dict[x509.Certificate, list[tuple[Path, x509.CertificateRevocationList]]] = {}

    def check(self, chain: Sequence[x509.Certificate], at: datetime) -> None:
        """Look up each certificate of a verified chain, from the leaf to the trusted one, in its issuer's lists.

        Raises `RevokedError`, and `RevocationError` where a list cannot be used at `at` (UTC).
        """
        for certificate, issuer in pairwise(chain):
            lists = [(file, one) for file, one in self._of(issuer) if _covers(one, certificate)]
            for file, one in lists:
                entry = one.get_revoked_certificate_by_serial_number(certificate.serial_number)
                if entry is not None and not _is_release(entry):
                    raise RevokedError(
                        f"{_name(certificate)} was revoked by the authority that issued it ({file.name})"
                    )
            if lists and not any(_is_current(one, at) for _, one in lists):
                files = ", ".join(file.name for file, _ in lists)
                raise RevocationError(
                    f"the revocation list of {issuer.subject.rfc4514_string()} has expired ({files}): {_HINT}"
                )

    def _of(self, issuer: x509.Certificate) -> list[tuple[Path, x509.CertificateRevocationList]]:
        """The lists of an authority. Raises `RevocationError` where one cannot be read, or is not signed by it."""
        known = self._known.get(issuer)
        if known is None:
            known = self._known[issuer] = self._read(issuer)
        return known

    def _read(self, issuer: x509.Certificate) -> list[tuple[Path, x509.CertificateRevocationList]]:
        if self._directory is None:
            return []
        files = sorted(self._directory.glob(f"{name_hash(issuer.subject):08x}.r*"))
        found = []
        for file in files:
            if not LIST_FILE(file.name):
                continue
            try:
                one = read_list(file)
                if one.issuer != issuer.subject or not _is_of_key(one, issuer):
                    continue  # of another authority: of the same hash, or of the same name with another key
                valid = _is_signed_by(one, issuer)
            except (OSError, ValueError, UnsupportedAlgorithm):
                raise RevocationError(f"the revocation list {file.name} cannot be read: {_HINT}") from None
            if not valid:
                raise RevocationError(
                    f"the revocation list {file.name} is not signed by {issuer.subject.rfc4514_string()}: {_HINT}"
                )
            found.append((file, one))
        return found


def read_list(file: Path) -> x509.CertificateRevocationList:
    """A list in PEM or DER form. Raises OSError and ValueError."""
    with file.open("rb") as stream:
        content = stream.read(LARGEST_LIST_BYTES)
    pem = content.lstrip().startswith(b"-----")
    return (x509.load_pem_x509_crl if pem else x509.load_der_x509_crl)(content)


def has_expired(one: x509.CertificateRevocationList, at: datetime) -> bool:
    """Whether a later list should have been there at `at` (UTC)."""
    return one.next_update_utc is not None and one.next_update_utc < at


def _is_current(one: x509.CertificateRevocationList, at: datetime) -> bool:
    return one.last_update_utc <= at and not has_expired(one, at)


def _is_of_key(one: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    """Whether the identifiers of the key, where both have one, are the same (RFC 5280, 5.2.1)."""
    try:
        told = one.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return True
    return told is None or told == own


def _is_signed_by(one: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    key = issuer.public_key()
    return isinstance(key, _SIGNING_KEYS) and one.is_signature_valid(key)


def _covers(one: x509.CertificateRevocationList, certificate: x509.Certificate) -> bool:
    """Whether the list is about such certificates: some are about authorities only, or about all others only."""
    try:
        scope = one.extensions.get_extension_for_class(x509.IssuingDistributionPoint).value
    except x509.ExtensionNotFound:
        return True
    try:
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        authority = False
    others_only = scope.only_contains_user_certs if authority else scope.only_contains_ca_certs
    return not (others_only or scope.only_contains_attribute_certs)


def _is_release(entry: x509.RevokedCertificate) -> bool:
    """Whether the entry takes a certificate off hold: it is not revoked any more."""
    try:
        reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except x509.ExtensionNotFound:
        return False
    return reason is x509.ReasonFlags.remove_from_crl


def _name(certificate: x509.Certificate) -> str:
    return f"the certificate of {certificate.subject.rfc4514_string()}"

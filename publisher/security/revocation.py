"""Revocation lists (CRLs) in a directory of authorities: each certificate of a chain is looked up, if its issuer has a
list.

OpenSSL either requires a list of every authority of a chain or looks up only the leaf, so that one authority without a
list leaves the lists of the others unused. Here, if a list is missing, only the certificates of this authority are not
checked. A list that exists must be usable: one that has expired, or cannot be read or verified, is an error. An
indirect list revokes only certificates of its entries' issuers (RFC 5280, 5.3.3); a delta list revokes, and does not
replace the complete list (RFC 5280, 5.2.4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

from publisher.security.distinguished_name import name_hash
from publisher.text import CLOCK_SKEW_S

LIST_FILE: Final = re.compile(r"[0-9a-f]{8}\.r\d+").fullmatch
"""HASH.rN: the hash is that of the issuer's name."""
LARGEST_LIST_BYTES: Final = 64 << 20
_SIGNING_KEYS: Final = (
    rsa.RSAPublicKey, ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey, ed448.Ed448PublicKey,
)  # fmt: skip
_HINT: Final = "run fetch-crl to renew it"
_PEM_BEGIN: Final = b"-----BEGIN X509 CRL-----"


class RevocationError(ValueError):
    """A certificate cannot be accepted because of a revocation list. The text names the list and the reason."""


class RevokedError(RevocationError):
    """A certificate was revoked by the authority that issued it."""


class RevocationLists:
    """The lists of a directory. Each is read, and its signature is verified, when it is first needed."""

    def __init__(self, directory: Path | None) -> None:
        """None: there are no lists."""
        self._directory = directory
        self._known: dict[x509.Certificate, list[tuple[Path, x509.CertificateRevocationList]]] = {}

    def check(self, chain: Sequence[x509.Certificate], at: datetime) -> None:
        """Look up each certificate of a verified chain, from the leaf to the trusted one, in its issuer's lists.

        Raises `RevokedError`, and `RevocationError` if a list cannot be used at `at` (UTC).
        """
        for certificate, issuer in pairwise(chain):
            lists = [(file, one) for file, one in self._of(issuer) if _covers(one, certificate)]
            for file, one in lists:
                try:
                    revoked = _revokes(one, certificate)
                except ValueError:
                    raise RevocationError(f"the revocation list {file.name} cannot be read: {_HINT}") from None
                if revoked:
                    raise RevokedError(
                        f"{_name(certificate)} was revoked by the authority that issued it ({file.name})"
                    )
            complete = [(file, one) for file, one in lists if not _is_delta(one)]
            if complete and not any(_is_current(one, at) for _, one in complete):
                raise RevocationError(_reason(issuer, complete, at))

    def _of(self, issuer: x509.Certificate) -> list[tuple[Path, x509.CertificateRevocationList]]:
        """The lists of an authority. Raises `RevocationError` if one cannot be read, or is not signed by it."""
        known = self._known.get(issuer)
        if known is None:
            known = self._known[issuer] = self._read(issuer)
        return known

    def _read(self, issuer: x509.Certificate) -> list[tuple[Path, x509.CertificateRevocationList]]:
        if self._directory is None:
            return []
        files = sorted(self._directory.glob(f"{name_hash(issuer.subject):08x}.r*"))
        read_files: list[tuple[Path, x509.CertificateRevocationList]] = []
        for file in files:
            if not LIST_FILE(file.name):
                continue
            try:
                # the others are of another authority: of the same hash, or of the same name with another key
                lists = [
                    revocation_list
                    for revocation_list in read_lists(file)
                    if revocation_list.issuer == issuer.subject and _is_of_key(revocation_list, issuer)
                ]
                valid = all(_is_signed_by(revocation_list, issuer) for revocation_list in lists)
            except (OSError, ValueError, UnsupportedAlgorithm):
                raise RevocationError(f"the revocation list {file.name} cannot be read: {_HINT}") from None
            if not valid:
                raise RevocationError(
                    f"the revocation list {file.name} is not signed by {issuer.subject.rfc4514_string()}: {_HINT}"
                )
            read_files.extend((file, revocation_list) for revocation_list in lists)
        return read_files


def read_lists(file: Path) -> list[x509.CertificateRevocationList]:
    """All lists of a file: one or more in PEM form, or one in DER form. Raises OSError and ValueError."""
    with file.open("rb") as stream:
        content = stream.read(LARGEST_LIST_BYTES + 1)
    if len(content) > LARGEST_LIST_BYTES:
        raise ValueError(f"{file} is larger than {LARGEST_LIST_BYTES >> 20} MiB")
    _, *blocks = content.split(_PEM_BEGIN)
    if blocks:
        return [x509.load_pem_x509_crl(_PEM_BEGIN + block) for block in blocks]
    return [x509.load_der_x509_crl(content)]


def has_expired(one: x509.CertificateRevocationList, at: datetime) -> bool:
    """Whether a newer list should have been published by `at` (UTC)."""
    return one.next_update_utc is not None and one.next_update_utc < at


def _is_current(one: x509.CertificateRevocationList, at: datetime) -> bool:
    return not _is_not_yet_valid(one, at) and not has_expired(one, at)


def _is_not_yet_valid(one: x509.CertificateRevocationList, at: datetime) -> bool:
    """Whether the list is not yet valid at `at`, with a tolerance for differences of clocks."""
    return one.last_update_utc > at + timedelta(seconds=CLOCK_SKEW_S)


def _is_delta(one: x509.CertificateRevocationList) -> bool:
    """Whether the list contains only the changes since a complete list."""
    return any(extension.oid == x509.DeltaCRLIndicator.oid for extension in one.extensions)


def _reason(
    issuer: x509.Certificate, lists: Sequence[tuple[Path, x509.CertificateRevocationList]], at: datetime
) -> str:
    """The text of the error for an authority whose lists are all not current at `at`."""
    files = ", ".join(dict.fromkeys(file.name for file, _ in lists))
    whose = f"the revocation list of {issuer.subject.rfc4514_string()}"
    early = [one.last_update_utc for _, one in lists if _is_not_yet_valid(one, at)]
    if early:
        return (
            f"{whose} is not valid before {min(early):%Y-%m-%dT%H:%M:%SZ}, and the clock of this host says "
            f"{at:%Y-%m-%dT%H:%M:%SZ} ({files}): check the clock"
        )
    return f"{whose} has expired ({files}): {_HINT}"


def _is_of_key(one: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    """Whether the identifiers of the key are the same, if both have one (RFC 5280, 5.2.1)."""
    try:
        of_list = one.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        of_issuer = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return True
    return of_list is None or of_list == of_issuer


def _is_signed_by(one: x509.CertificateRevocationList, issuer: x509.Certificate) -> bool:
    key = issuer.public_key()
    return isinstance(key, _SIGNING_KEYS) and one.is_signature_valid(key)


def _covers(one: x509.CertificateRevocationList, certificate: x509.Certificate) -> bool:
    """Whether the list applies to such certificates: some lists apply only to authorities, or only to other
    certificates."""
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


def _revokes(one: x509.CertificateRevocationList, certificate: x509.Certificate) -> bool:
    """Whether an entry of the list revokes the certificate. Raises ValueError for an entry that cannot be read.

    An entry without a certificate issuer has that of the entry before; the first ones have the list's issuer
    (RFC 5280, 5.3.3).
    """
    if one.get_revoked_certificate_by_serial_number(certificate.serial_number) is None:
        return False
    of_issuer = True
    for entry in one:
        try:
            names = entry.extensions.get_extension_for_class(x509.CertificateIssuer).value
        except x509.ExtensionNotFound:
            pass
        else:
            of_issuer = certificate.issuer in names.get_values_for_type(x509.DirectoryName)
        if of_issuer and entry.serial_number == certificate.serial_number and not _is_release(entry):
            return True
    return False


def _is_release(entry: x509.RevokedCertificate) -> bool:
    """Whether the entry removes a certificate from hold, so that it is no longer revoked."""
    try:
        reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except x509.ExtensionNotFound:
        return False
    return reason is x509.ReasonFlags.remove_from_crl


def _name(certificate: x509.Certificate) -> str:
    return f"the certificate of {certificate.subject.rfc4514_string()}"

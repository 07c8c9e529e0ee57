"""check, of whom we trust and who we are: authorities, their revocation lists, and our certificate among them.

Every certificate of an authority whose revocation list has expired is refused, so a list that nobody renews stops
delivery; `publisher.revocation` says which lists count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from publisher.config import Config, Credentials
from publisher.credentials import load_certificates
from publisher.errors import PublisherError
from publisher.finding import Finding
from publisher.revocation import (
    LIST_FILE,
    RevocationError,
    RevocationLists,
    RevokedError,
    has_expired,
    read_lists,
)

_AUTHORITY: Final = re.compile(r"[0-9a-f]{8}\.\d+").fullmatch
_NAMED: Final = 3
_LONGEST_CHAIN: Final = 10


def trust(config: Config, now: int) -> Iterator[Finding]:
    """Findings about each directory of authorities, and each certificate of ours that it is used with."""
    used: dict[Path, list[Credentials]] = {}
    for target in config.targets.values():
        given = config.credentials_of(target)
        if given.ca_directory is not None:
            used.setdefault(given.ca_directory, []).append(given)
    for directory, settings in used.items():
        try:
            yield from _directory(directory, settings, datetime.fromtimestamp(now, UTC))
        except OSError as error:
            hint = "Check ca_directory in [credentials]"
            yield Finding("authorities", "red", f"{directory} cannot be read: {error.strerror}", hint)


def _directory(directory: Path, settings: Iterable[Credentials], at: datetime) -> Iterator[Finding]:
    authorities, bad = _authorities(directory)
    lists, bad_lists = _lists(directory)
    old = [file.name for file, one in authorities for each in one if each.not_valid_after_utc < at]
    said = f"{directory}: certificates of authorities: {len(authorities)}, revocation lists: {len(lists)}"
    if not authorities:
        hint = "Install the IGTF distribution, or run openssl rehash on the directory"
        yield Finding("authorities", "red", said, hint)
        return
    yield Finding(
        "authorities", "green", said, "" if lists else "Nothing is revoked without lists: fetch-crl gets them"
    )
    if bad:
        yield Finding("authorities", "yellow", f"cannot be read: {_some(bad)}", "Install the distribution anew")
    if old:
        yield Finding("authorities", "yellow", f"expired: {_some(old)}", "Install a later distribution of authorities")
    expired = dict.fromkeys(file.name for file, one in lists if has_expired(one, at))
    if expired or bad_lists:
        text = f"revocation lists that expired or cannot be read: {_some([*expired, *bad_lists])}"
        hint = "Let fetch-crl run, as a rule by cron: services of these authorities are refused"
        yield Finding("revocation lists", "yellow", text, hint)
    for given in {each.certificate: each for each in settings if each.certificate is not None}.values():
        assert given.certificate is not None  # chosen so
        yield from _ours(given.certificate, [one for _, each in authorities for one in each], directory, at)


def _ours(file: Path, authorities: Iterable[x509.Certificate], directory: Path, at: datetime) -> Iterator[Finding]:
    """Whether services are likely to take our certificate: known authority, neither it nor the certificate revoked."""
    try:
        ours = load_certificates(file)[0]
    except PublisherError:
        return  # told with the credentials
    chain = [ours]
    by_name = {one.subject: one for one in authorities}
    while chain[-1].issuer != chain[-1].subject and chain[-1].issuer in by_name and len(chain) < _LONGEST_CHAIN:
        chain.append(by_name[chain[-1].issuer])
    if len(chain) == 1:
        issuer = ours.issuer.rfc4514_string()
        text = f"{file} is of an authority that is not among ours: {issuer}"
        yield Finding(
            "authorities", "yellow", text, "Services trust the same distribution as a rule, and may refuse it"
        )
    try:
        RevocationLists(directory).check(chain, at)
    except RevokedError as error:
        text = f"{file} cannot be used: {error}"
        yield Finding("certificate", "red", text, "Get a new certificate: every service will refuse this one")
    except RevocationError:
        pass  # told with the lists


def _authorities(directory: Path) -> tuple[list[tuple[Path, list[x509.Certificate]]], list[str]]:
    found: list[tuple[Path, list[x509.Certificate]]] = []
    bad: list[str] = []
    for file in sorted(directory.iterdir()):
        if _AUTHORITY(file.name):
            try:
                found.append((file, load_certificates(file)))
            except PublisherError:
                bad.append(file.name)
    return found, bad


def _lists(directory: Path) -> tuple[list[tuple[Path, x509.CertificateRevocationList]], list[str]]:
    found: list[tuple[Path, x509.CertificateRevocationList]] = []
    bad: list[str] = []
    for file in sorted(directory.iterdir()):
        if not LIST_FILE(file.name):
            continue
        try:
            found.extend((file, one) for one in read_lists(file))
        except (OSError, ValueError):
            bad.append(file.name)
    return found, bad


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

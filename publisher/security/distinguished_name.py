"""Subjects of certificates in the spellings of the services, and the hash by which OpenSSL finds a CA.

SSM compares the signer's name in slash form: each attribute with its short name in OpenSSL, also if several are one
part of the name, `UNDEF` for one that OpenSSL does not know, and the bytes of its value read as UTF-8. nginx, before
SGAS, and the token service of AMS use the form of RFC 2253. Both forms were compared with OpenSSL 3.0 and SSM 4.0.

The hash (`X509_NAME_hash`, since OpenSSL 1.0) is computed without a child process. The name is converted to a canonical
form: every character string becomes UTF-8, white space is trimmed and reduced to one blank, ASCII letters become lower
case; the relative names are encoded in DER without the outer SEQUENCE. The hash is the first four bytes of the SHA-1 of
this, in little-endian order. SHA-1 serves only as a file name here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from cryptography import x509

from publisher.security.der import Element, read_all, write

_SEQUENCE, _SET, _UTF8 = 0x30, 0x31, 0x0C
_CHARACTER_STRINGS = {
    _UTF8: "utf-8",
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String, read as OpenSSL reads it
    0x16: "ascii",  # IA5String
    0x1A: "ascii",  # VisibleString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}


_SHORT_NAMES: Final = {
    "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.3": "mail", "0.9.2342.19200300.100.1.9": "host",
    "0.9.2342.19200300.100.1.25": "DC", "1.2.643.100.1": "OGRN", "1.2.643.100.3": "SNILS", "1.2.643.100.5": "OGRNIP",
    "1.2.643.3.131.1.1": "INN", "1.2.840.113549.1.9.1": "emailAddress", "1.2.840.113549.1.9.2": "unstructuredName",
    "1.2.840.113549.1.9.8": "unstructuredAddress", "1.3.6.1.4.1.311.60.2.1.1": "jurisdictionL",
    "1.3.6.1.4.1.311.60.2.1.2": "jurisdictionST", "1.3.6.1.4.1.311.60.2.1.3": "jurisdictionC", "2.5.4.3": "CN",
    "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "street",
    "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.13": "description", "2.5.4.15": "businessCategory",
    "2.5.4.16": "postalAddress", "2.5.4.17": "postalCode", "2.5.4.18": "postOfficeBox",
    "2.5.4.19": "physicalDeliveryOfficeName", "2.5.4.20": "telephoneNumber", "2.5.4.41": "name", "2.5.4.42": "GN",
    "2.5.4.43": "initials", "2.5.4.44": "generationQualifier", "2.5.4.45": "x500UniqueIdentifier",
    "2.5.4.46": "dnQualifier", "2.5.4.51": "houseIdentifier", "2.5.4.65": "pseudonym", "2.5.4.72": "role",
    "2.5.4.97": "organizationIdentifier", "2.5.4.100": "dnsName",
}  # fmt: skip
"""OpenSSL's short names of the attributes in names of persons, hosts, and services."""

_SPECIAL: Final = re.compile(r'^[# ]|[,+"\\<>;]| $')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def slash_dn(name: x509.Name) -> str:
    """A name as SSM writes it, first part first: `/DC=org/CN=host`."""
    return "".join(
        f"/{_SHORT_NAMES.get(oid, 'UNDEF')}={value.content.decode('utf-8', 'replace')}"
        for part in _parts(name)
        for oid, value in part
    )


def rfc2253_dn(name: x509.Name) -> str:
    """A name as OpenSSL writes it by RFC 2253, last part first: `CN=host,DC=org`."""
    return ",".join(
        "+".join(_rfc2253(*attribute) for attribute in reversed(part)) for part in reversed(list(_parts(name)))
    )


def _parts(name: x509.Name) -> Iterator[list[tuple[str, Element]]]:
    """The attributes of each part of a name, by object identifier, in their order in the certificate."""
    for part in read_all(name.public_bytes()).children():
        pairs = (attribute.children() for attribute in part.children())
        yield [(identifier.oid(), value) for identifier, value in pairs]


def _rfc2253(oid: str, value: Element) -> str:
    encoding = _CHARACTER_STRINGS.get(value.tag)
    if oid not in _SHORT_NAMES or encoding is None:
        return f"{_SHORT_NAMES.get(oid, oid)}=#{value.encoded.hex().upper()}"
    text = _SPECIAL.sub(lambda found: "\\" + found.group(), value.content.decode(encoding, "replace"))
    return f"{_SHORT_NAMES[oid]}=" + _CONTROL.sub(lambda found: f"\\{ord(found.group()):02X}", text)


def name_hash(name: x509.Name) -> int:
    """The hash of a subject's or issuer's name; print it as `%08x`."""
    canonical = b"".join(_relative_name(element) for element in read_all(name.public_bytes()).children())
    return int.from_bytes(hashlib.sha1(canonical, usedforsecurity=False).digest()[:4], "little")


def _relative_name(relative: Element) -> bytes:
    """One SET of attributes in canonical form; DER sorts the members of a SET by their encoding."""
    return write(_SET, *sorted(map(_attribute, relative.children())))


def _attribute(attribute: Element) -> bytes:
    oid, value = attribute.children()
    encoding = _CHARACTER_STRINGS.get(value.tag)
    if encoding is None:
        return attribute.encoded
    folded = b" ".join(value.content.decode(encoding).encode("utf-8").split())
    return write(_SEQUENCE, oid.encoded, write(_UTF8, folded.lower()))

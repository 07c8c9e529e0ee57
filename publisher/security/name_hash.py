"""The hash by which OpenSSL finds a CA in a directory (`X509_NAME_hash`, since OpenSSL 1.0), without a child process.

The name is brought into a canonical form: every character string becomes UTF-8, white space is trimmed and folded to
one blank, ASCII letters become small; the relative names are encoded in DER without the outer SEQUENCE. The hash is the
first four bytes of the SHA-1 of that, read with the lowest byte first. SHA-1 is only a file name here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cryptography import x509

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


def name_hash(name: x509.Name) -> int:
    """The hash of a subject's or issuer's name; print it as `%08x`."""
    canonical = b"".join(_relative_name(content) for _, content in _values(_content(name.public_bytes())))
    return int.from_bytes(hashlib.sha1(canonical, usedforsecurity=False).digest()[:4], "little")


def _relative_name(content: bytes) -> bytes:
    """One SET of attributes in canonical form; DER sorts the members of a SET by their encoding."""
    return _tlv(_SET, b"".join(sorted(_attribute(attribute) for _, attribute in _values(content))))


def _attribute(content: bytes) -> bytes:
    (oid_tag, oid), (tag, value) = _values(content)
    encoding = _CHARACTER_STRINGS.get(tag)
    if encoding is not None:
        folded = b" ".join(value.decode(encoding).encode("utf-8").split())
        tag, value = _UTF8, folded.lower()
    return _tlv(_SEQUENCE, _tlv(oid_tag, oid) + _tlv(tag, value))


def _content(der: bytes) -> bytes:
    ((_, content),) = _values(der)
    return content


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each value of a run of DER values. The names were parsed before: they are well formed."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            octets = length & 0x7F
            length, at = int.from_bytes(der[at : at + octets], "big"), at + octets
        yield tag, der[at : at + length]
        at += length


def _tlv(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content

"""The hash by which OpenSSL finds a CA in a directory (`X509_NAME_hash`, since OpenSSL 1.0), without a child process.

The name is brought into a canonical form: every character string becomes UTF-8, white space is trimmed and folded to
one blank, ASCII letters become small; the relative names are encoded in DER without the outer SEQUENCE. The hash is the
first four bytes of the SHA-1 of that, read with the lowest byte first. SHA-1 is only a file name here.
"""

from __future__ import annotations

import hashlib

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

"""Unwrap messages: gzip, the JSON of AMS, S/MIME encryption and signature, in any order.

The size after decompression, the number of layers, and the number of messages of a reply have limits.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from formats.base import Violation
from formats.signed_text import looks_encrypted
from formats.xml.read import MAX_BYTES
from publisher.errors import CredentialError, UsageError
from publisher.security import verify
from publisher.security.credentials import load_certificates, load_key
from publisher.security.distinguished_name import slash_dn
from publisher.security.revocation import RevocationLists

_AUTHORITY_FILES = ("*.[0-9]", "*.pem", "*.crt")


class DecryptionKeys(msgspec.Struct, frozen=True):
    """The receiver's certificate and key, and the authorities; None if they were not given."""

    certificate: x509.Certificate | None = None
    key: rsa.RSAPrivateKey | None = None
    authorities: tuple[x509.Certificate, ...] | None = None
    lists: RevocationLists = RevocationLists(None)
    """The revocation lists in the folder of the authorities."""


def load_keys(certificate: Path | None, key: Path | None, authorities: Path | None) -> DecryptionKeys:
    """The keys of these files; `authorities` is a file or a directory in hashed grid form.

    Raises `UsageError` for a key without its certificate or a certificate without its key, and `CredentialError`.
    """
    if (certificate is None) != (key is None):
        raise UsageError("--key and --certificate go together", hint="Give both, of the receiver of the message")
    private: rsa.RSAPrivateKey | None = None
    if key is not None:
        loaded = load_key(key)
        if not isinstance(loaded, rsa.RSAPrivateKey):
            raise CredentialError(f"the key in {key} is not an RSA key", hint="S/MIME is encrypted to RSA keys")
        private = loaded
    return DecryptionKeys(
        None if certificate is None else load_certificates(certificate)[0],
        private,
        None if authorities is None else _authorities(authorities),
        RevocationLists(authorities if authorities is not None and authorities.is_dir() else None),
    )


def _authorities(path: Path) -> tuple[x509.Certificate, ...]:
    if not path.exists():
        raise UsageError(
            f"--ca: {path} does not exist",
            hint="Name a PEM file with the authorities, or a directory such as /etc/grid-security/certificates",
        )
    if not path.is_dir():
        return tuple(load_certificates(path))
    files = sorted({file for pattern in _AUTHORITY_FILES for file in path.glob(pattern)})
    authorities = [certificate for file in files for certificate in load_certificates(file)]
    if not authorities:
        raise CredentialError(f"the directory {path} has no certificates", hint="It must have HASH.0 or .pem files")
    return tuple(authorities)


MOST_LAYERS: Final = 6
MOST_MESSAGES: Final = 10_000
"""Most messages of one AMS reply; usually it has 100."""

_SIGNING: Final = "SSM"  # facts on receivers, 3
_AMS: Final = "AMS"  # facts on receivers, 4
_GZIP: Final = b"\x1f\x8b"
_MIME_HEADER: Final = re.compile(
    rb"\A\s*(?!APEL-)(?:[A-Za-z0-9-]{1,60}:[^\n]{0,998}\n(?:[ \t][^\n]{0,998}\n){0,20}){0,40}?content-type:",
    re.IGNORECASE,
)


class MessageLayer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A layer that was removed: `gzip`, `ams`, `encrypted`, `signed`; for a signature also the signer in slash form,
    until when the certificate is valid (epoch seconds), and whether it was verified with authorities."""

    kind: str
    signer: str = ""
    valid_until: int | None = None
    trusted: bool | None = None
    attributes: dict[str, str] = {}


class Unwrapped(msgspec.Struct, frozen=True):
    """The message inside. `payload` is None if it could not be read; `violations` then have the reason."""

    label: str
    layers: tuple[MessageLayer, ...]
    payload: bytes | None
    violations: tuple[Violation, ...] = ()


def unwrap(
    label: str, content: bytes, keys: DecryptionKeys, now: int, *, opens_json: bool = True
) -> Iterator[Unwrapped]:
    """The messages in these bytes: one, or those of an AMS request or reply. `opens_json` False: JSON is a message."""
    yield from _Unwrapping(keys, now, opens_json=opens_json).of(label, content, (), ())


class _Unwrapping:
    def __init__(self, keys: DecryptionKeys, now: int, *, opens_json: bool) -> None:
        self._opens_json = opens_json
        self._keys = keys
        self._now = now

    def of(
        self, label: str, content: bytes, layers: tuple[MessageLayer, ...], found: tuple[Violation, ...]
    ) -> Iterator[Unwrapped]:
        def broken(rule: str, source: str = "") -> Unwrapped:
            return Unwrapped(label, layers, None, (*found, Violation("error", 0, "", rule, source)))

        if len(content) > MAX_BYTES:
            yield broken(f"larger than {MAX_BYTES} bytes; it was not inspected")
        elif len(layers) >= MOST_LAYERS:
            yield broken(f"wrapped more than {MOST_LAYERS} times")
        elif content.startswith(_GZIP):
            unpacked = _gunzip(content)
            if isinstance(unpacked, str):
                yield broken(unpacked)
            else:
                yield from self.of(label, unpacked, (*layers, MessageLayer("gzip")), found)
        elif self._opens_json and content.lstrip()[:1] in {b"{", b"["}:
            yield from self._json(label, content, layers, found)
        elif _MIME_HEADER.match(content):
            try:
                yield from self._mime(label, content, layers, found)
            except verify.SmimeError as error:
                yield broken(str(error), _SIGNING)
        else:
            yield Unwrapped(label, layers, content, found)

    def _mime(
        self, label: str, content: bytes, layers: tuple[MessageLayer, ...], found: tuple[Violation, ...]
    ) -> Iterator[Unwrapped]:
        if verify.is_enveloped(content):
            if self._keys.certificate is None or self._keys.key is None:
                raise verify.SmimeError("encrypted: give --key and --certificate of its receiver")
            inner = verify.decrypt(content, self._keys.certificate, self._keys.key)
            yield from self.of(label, inner, (*layers, MessageLayer("encrypted")), found)
            return
        if looks_encrypted(content):
            rule = "contains the media type of encrypted messages: SSM treats it as encrypted"
            found = (*found, Violation("error", 0, "", rule, _SIGNING))
        opened = verify.open_signed(content)
        certificate = opened.certificate
        at = datetime.fromtimestamp(self._now, UTC)
        trusted = None
        if self._keys.authorities is not None:
            try:
                verify.verify_issued(certificate, self._keys.authorities, at, self._keys.lists)
                trusted = True
            except verify.SmimeError as error:
                trusted = False
                found = (*found, Violation("error", 0, "signature", str(error), _SIGNING))
        elif not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
            rule = f"the signer's certificate is not valid at {at:%Y-%m-%d}: the receiver does not verify it"
            found = (*found, Violation("error", 0, "signature", rule, _SIGNING))
        layer = MessageLayer(
            "signed", slash_dn(certificate.subject), int(certificate.not_valid_after_utc.timestamp()), trusted
        )
        yield from self.of(label, opened.payload, (*layers, layer), found)

    def _json(
        self, label: str, content: bytes, layers: tuple[MessageLayer, ...], found: tuple[Violation, ...]
    ) -> Iterator[Unwrapped]:
        def broken(name: str, rule: str) -> Unwrapped:
            violation = Violation("error", 0, "", rule, _AMS)
            return Unwrapped(name, layers, None, (*found, violation))

        try:
            document = json.loads(content)
            messages = _ams_messages(document)
        except (ValueError, RecursionError) as error:
            place = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
            yield broken(label, f"begins like JSON, and cannot be read as JSON{place}")
            return
        if isinstance(document, dict) and "bins" in document:
            yield Unwrapped(label, layers, content, found)  # a utilization report: a message as it is
            return
        if messages is None:
            yield broken(label, "JSON, but neither a publish request or pull reply of AMS nor a report")
            return
        if not messages:
            yield Unwrapped(label, (*layers, MessageLayer("ams")), None, found)
        for number, message in enumerate(messages[:MOST_MESSAGES], 1):
            name = label if len(messages) == 1 else f"{label}: message {number}"
            data = message.get("data") if isinstance(message, dict) else None
            if not isinstance(data, str):
                yield broken(name, "a message without data")
                continue
            try:
                inner = base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                yield broken(name, "its data is not base64")
                continue
            yield from self.of(name, inner, (*layers, MessageLayer("ams", attributes=_attributes(message))), found)
        if len(messages) > MOST_MESSAGES:
            yield broken(label, f"has {len(messages)} messages; only the first {MOST_MESSAGES} were inspected")


def _gunzip(content: bytes) -> bytes | str:
    """The bytes inside, or the reason why they cannot be read. A file may have several members."""
    parts: list[bytes] = []
    left = MAX_BYTES + 1
    try:
        while content.startswith(_GZIP):
            reader = zlib.decompressobj(wbits=31)
            part = reader.decompress(content, left)
            parts.append(part)
            left -= len(part)
            if left <= 0:
                return f"larger than {MAX_BYTES} bytes when decompressed; it was not inspected"
            if not reader.eof:
                return "compressed data that ends too early"
            content = reader.unused_data.lstrip(b"\0")
    except zlib.error as error:
        return f"damaged compressed data: {error}"
    return b"".join(parts)


def _ams_messages(document: Any) -> list[Any] | None:
    """The messages of a publish request or of a pull reply, or one out of either; None for other JSON."""
    if not isinstance(document, dict):
        return None
    if "data" in document:
        return [document]
    if "message" in document:
        return [document["message"]]
    if isinstance(published := document.get("messages"), list):
        return published
    pulled = document.get("receivedMessages")
    if not isinstance(pulled, list):
        return None
    return [received.get("message") if isinstance(received, dict) else None for received in pulled]


def _attributes(message: dict[str, Any]) -> dict[str, str]:
    attributes = message.get("attributes")
    texts = {str(key): str(value) for key, value in attributes.items()} if isinstance(attributes, dict) else {}
    if isinstance(message.get("messageId"), str):
        texts["messageId"] = message["messageId"]
    return texts

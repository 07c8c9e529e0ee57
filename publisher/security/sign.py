"""S/MIME as the APEL server accepts it: signed, and optionally encrypted.

A message that cannot be signed is not sent. The form was tested (the facts on receivers, section 3): `multipart/signed`
over a `text/plain` part, ASCII, exactly one certificate. The S/MIME writer of `cryptography` uses `email` and takes ten
times as long as the signature; so structure and text are written here, and only digest and signature are computed by
the library. The signature is over canonical line ends (CRLF); on the wire lines end with LF, which verifiers of text
convert. So the size of a message depends only on the size of its payload, and batches can be cut before they are
signed.

Detached signatures: `SignedData` of CMS (RFC 5652), with one signer and only the signer's certificate. `cryptography`
can build these, but only over content in memory. Messages are signed with other line ends than those on the wire; here
only a digest is needed, and no second copy of each message.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from formats.rule_codes import UNSIGNABLE
from formats.signed_text import why_not_signable
from publisher.errors import CredentialError, SigningError
from publisher.security.credentials import ClientCredentials, load_certificates, require_valid
from publisher.security.der import write

_SEQUENCE, _SET, _TAGGED_0 = 0x30, 0x31, 0xA0
_NULL = write(0x05)
_DATA = write(0x06, bytes.fromhex("2a864886f70d010701"))
_SIGNED_DATA = write(0x06, bytes.fromhex("2a864886f70d010702"))
_CONTENT_TYPE = write(0x06, bytes.fromhex("2a864886f70d010903"))
_MESSAGE_DIGEST = write(0x06, bytes.fromhex("2a864886f70d010904"))
_SIGNING_TIME = write(0x06, bytes.fromhex("2a864886f70d010905"))
_SHA256 = write(_SEQUENCE, write(0x06, bytes.fromhex("608648016503040201")), _NULL)
_RSA = write(_SEQUENCE, write(0x06, bytes.fromhex("2a864886f70d010101")), _NULL)
_ECDSA_SHA256 = write(_SEQUENCE, write(0x06, bytes.fromhex("2a8648ce3d040302")))
_VERSION_1 = write(0x02, b"\x01")
_CONTENT_TYPE_ATTRIBUTE = write(_SEQUENCE, _CONTENT_TYPE, write(_SET, _DATA))


class DetachedSigner:
    """Signs SHA-256 digests with one certificate and its key."""

    def __init__(self, certificate: x509.Certificate, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._certificates = write(_TAGGED_0, certificate.public_bytes(Encoding.DER))
        serial = certificate.serial_number
        self._identifier = write(
            _SEQUENCE,
            certificate.issuer.public_bytes(),
            write(0x02, serial.to_bytes(serial.bit_length() // 8 + 1, signed=True)),
        )

    def signed_data(self, digest: bytes, at_s: float) -> bytes:
        """DER of the signature over content with this SHA-256 `digest`, made at `at_s` (epoch seconds)."""
        attributes = b"".join(
            (  # a SET's elements are ordered by their encoding: these are
                _CONTENT_TYPE_ATTRIBUTE,
                write(_SEQUENCE, _SIGNING_TIME, write(_SET, _time(at_s))),
                write(_SEQUENCE, _MESSAGE_DIGEST, write(_SET, write(0x04, digest))),
            )
        )
        algorithm, signature = self._signature(write(_SET, attributes))
        signer = write(
            _SEQUENCE,
            _VERSION_1,
            self._identifier,
            _SHA256,
            write(_TAGGED_0, attributes),
            algorithm,
            write(0x04, signature),
        )
        content = write(
            _SEQUENCE,
            _VERSION_1,
            write(_SET, _SHA256),
            write(_SEQUENCE, _DATA),
            self._certificates,
            write(_SET, signer),
        )
        return write(_SEQUENCE, _SIGNED_DATA, write(_TAGGED_0, content))

    def _signature(self, signed: bytes) -> tuple[bytes, bytes]:
        if isinstance(self._key, rsa.RSAPrivateKey):
            return _RSA, self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        return _ECDSA_SHA256, self._key.sign(signed, ec.ECDSA(hashes.SHA256()))


def _time(at_s: float) -> bytes:
    at = datetime.fromtimestamp(at_s, UTC)
    if at.year < 2050:  # as RFC 5652 has it
        return write(0x17, at.strftime("%y%m%d%H%M%SZ").encode())
    return write(0x18, at.strftime("%Y%m%d%H%M%SZ").encode())


_PART_HEADER = b"Content-Type: text/plain\n\n"
_SIGNED_HEADER = (
    b"MIME-Version: 1.0\n"
    b'Content-Type: multipart/signed; protocol="application/x-pkcs7-signature"; micalg="sha-256"; boundary="%b"\n\n'
    b"This is an S/MIME signed message\n\n--%b\n"
)
_SIGNATURE_HEADER = (
    b"\n--%b\n"
    b'Content-Type: application/x-pkcs7-signature; name="smime.p7s"\n'
    b"Content-Transfer-Encoding: base64\n"
    b'Content-Disposition: attachment; filename="smime.p7s"\n\n'
)
_SIGNED_END = b"\n--%b--\n"
_ENCRYPTED_HEADER = (
    b"MIME-Version: 1.0\n"
    b'Content-Disposition: attachment; filename="smime.p7m"\n'
    b'Content-Type: application/x-pkcs7-mime; smime-type=enveloped-data; name="smime.p7m"\n'
    b"Content-Transfer-Encoding: base64\n\n"
)
_PIECE_BYTES = 32768
_BASE64_LINE_BYTES = 57  # 76 characters
_SIGNATURE_SLACK_BYTES = 24  # an ECDSA signature is a few bytes longer or shorter each time
_CIPHER_BLOCK_BYTES = 16


class Signer:
    """Signs with one certificate and, with `recipient`, encrypts to the receiver. `clock` returns epoch seconds."""

    def __init__(
        self,
        credentials: ClientCredentials,
        *,
        recipient: x509.Certificate | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._credentials = credentials
        self._signer = DetachedSigner(credentials.certificate, credentials.key)
        self._recipient = recipient
        self._clock = clock
        sample = b"x"
        self._signed_overhead = sum(map(len, self._signed(sample))) - len(sample) + _SIGNATURE_SLACK_BYTES
        self._envelope_overhead = 0 if recipient is None else len(_envelope(sample, recipient)) + _CIPHER_BLOCK_BYTES

    def sign(self, payload: bytes) -> bytes:
        """The finished message: signed, then encrypted if there is a recipient. Raises the errors of
        `sign_in_parts`."""
        return b"".join(self.sign_in_parts(payload))

    def sign_in_parts(self, payload: bytes) -> tuple[bytes, ...]:
        """The finished message in parts. One part is the payload itself if its lines end with LF and nothing is
        encrypted.

        Raises `SigningError` for a payload that the receiver would stop at or reject, and `CredentialError` if the
        certificate has expired since it was loaded.
        """
        self._credentials.require_valid(self._clock())
        signed = self._signed(_plain(payload))
        return signed if self._recipient is None else (encrypt(b"".join(signed), self._recipient),)

    def size_bound(self, payload_bytes: int) -> int:
        """The maximum size of a message with a payload of this many bytes (with LF line ends)."""
        size = payload_bytes + self._signed_overhead
        if self._recipient is None:
            return size
        return len(_ENCRYPTED_HEADER) + _lines_size(size + self._envelope_overhead)

    def _signed(self, payload: bytes) -> tuple[bytes, ...]:
        try:
            signature = self._signer.signed_data(_canonical_digest(payload), self._clock())
        except ValueError as error:
            file = self._credentials.certificate_file
            raise SigningError(f"the message could not be signed with the key of {file}: {error}") from error
        boundary = b"----" + hashlib.sha256(signature).hexdigest()[:32].encode()
        return (
            _SIGNED_HEADER % (boundary, boundary) + _PART_HEADER,
            payload,
            _SIGNATURE_HEADER % boundary + _lines(signature) + _SIGNED_END % boundary,
        )


def _canonical_digest(payload: bytes) -> bytes:
    """SHA-256 of the signed part with CRLF line ends, piece by piece, which is faster than copying it."""
    digest = hashlib.sha256(_PART_HEADER.replace(b"\n", b"\r\n"))
    for start in range(0, len(payload), _PIECE_BYTES):
        digest.update(payload[start : start + _PIECE_BYTES].replace(b"\n", b"\r\n"))
    return digest.digest()


def load_recipient(file: Path, *, now_s: float) -> x509.Certificate:
    """The certificate of a receiver to encrypt to. Raises `CredentialError`."""
    certificate = load_certificates(file)[0]
    require_valid(certificate, now_s, file)
    if not isinstance(certificate.public_key(), rsa.RSAPublicKey):
        raise CredentialError(f"the receiver's certificate {file} has no RSA key, so nothing can be encrypted to it")
    return certificate


def encrypt(message: bytes, recipient: x509.Certificate) -> bytes:
    """Envelope a finished message for `recipient` (AES-128-CBC, outer type application/x-pkcs7-mime)."""
    return _ENCRYPTED_HEADER + _lines(_envelope(message, recipient))


def _envelope(message: bytes, recipient: x509.Certificate) -> bytes:
    try:
        builder = pkcs7.PKCS7EnvelopeBuilder().set_data(message).add_recipient(recipient)
        return builder.encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])
    except (ValueError, TypeError) as error:
        raise SigningError(f"the message could not be encrypted to the receiver: {error}") from error


def _plain(payload: bytes) -> bytes:
    """The payload with LF line ends. Raises `SigningError` for text at which receivers are known to stop."""
    why = why_not_signable(payload)
    if why is not None:
        raise SigningError(f"the message cannot be signed: {UNSIGNABLE[why]}")
    if not payload or payload.isspace():
        raise SigningError("the message cannot be signed: it is empty")
    return payload.replace(b"\r\n", b"\n") if b"\r" in payload else payload


def _lines(data: bytes) -> bytes:
    """Base64 in lines of 76 characters, each ended with LF."""
    return base64.encodebytes(data)


def _lines_size(size: int) -> int:
    full, rest = divmod(size, _BASE64_LINE_BYTES)
    return full * 77 + (4 * -(-rest // 3) + 1 if rest else 0)

"""Detached signatures: `SignedData` of CMS (RFC 5652), with one signer and no certificate but the signer's.

`cryptography` can build these, but only over content that lies in memory as it is signed. Messages are signed with
other line ends than they travel with; here only a digest is needed, and no second copy of each message.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from publisher.der import write

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

"""Open S/MIME messages as the receiving services do; content is returned only if the signature is valid.

`inspect` and the simulator use this. It accepts what SSM accepts (the facts on receivers, section 3): a detached
signature, `multipart/signed` over a MIME entity, with exactly one certificate, the signer's. `cryptography` signs but
does not verify CMS, so the necessary structures of RFC 5652 are read here.
"""

from __future__ import annotations

import base64
import binascii
import email.message
import email.parser
import quopri
import re
from collections.abc import Sequence
from datetime import datetime

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs7

from publisher.security.der import Element, read_all
from publisher.security.revocation import RevocationError, RevocationLists

_SIGNED_DATA = "1.2.840.113549.1.7.2"
_ATTRIBUTE_CONTENT_TYPE = "1.2.840.113549.1.9.3"
_ATTRIBUTE_MESSAGE_DIGEST = "1.2.840.113549.1.9.4"
_DIGESTS: dict[str, hashes.HashAlgorithm] = {
    "2.16.840.1.101.3.4.2.1": hashes.SHA256(),
    "2.16.840.1.101.3.4.2.2": hashes.SHA384(),
    "2.16.840.1.101.3.4.2.3": hashes.SHA512(),
}
_SIGNED_ATTRIBUTES = 0xA0
_CERTIFICATES = 0xA0
_ENVELOPED_TYPES = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_HEADER_END = re.compile(rb"\r?\n\r?\n")


class SmimeError(ValueError):
    """A message is not signed or encrypted correctly. The text has the reason."""


class SignedContent(msgspec.Struct, frozen=True):
    """Signed content: `payload` (with its line ends, transfer encoding decoded) and the signer."""

    payload: bytes
    certificate: x509.Certificate


def is_enveloped(message: bytes) -> bool:
    """Whether the message itself, and not something in it, is encrypted: by the type in its header.

    SSM looks for the type anywhere in the text instead (`formats.signed_text.looks_encrypted`). Raises `SmimeError`.
    """
    return _entity(message)[0].get_content_type() in _ENVELOPED_TYPES


def decrypt(message: bytes, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> bytes:
    """The message inside an enveloped one. Raises `SmimeError` if it is damaged, or not for this key."""
    headers, body = _entity(message)
    if headers.get_content_type() not in _ENVELOPED_TYPES:
        raise SmimeError(f"not an encrypted message: its type is {headers.get_content_type()}")
    try:
        return pkcs7.pkcs7_decrypt_der(_base64(body), certificate, key, [])
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SmimeError(f"cannot be decrypted with this key: {error}") from error


def open_signed(message: bytes) -> SignedContent:
    """Verify the signature of a `multipart/signed` message, and return the content and the signer.

    The certificate is not checked against any authority: see `verify_issued`. Raises `SmimeError`.
    """
    headers, body = _entity(message)
    if headers.get_content_type() != "multipart/signed":
        raise SmimeError(f"not a detached signature: the type is {headers.get_content_type()}, not multipart/signed")
    boundary = headers.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise SmimeError("the multipart/signed header names no boundary")
    signed, signature = _parts(body, boundary.encode("ascii", "replace"))
    signature_headers, signature_body = _entity(signature)
    if signature_headers.get_content_type() not in {"application/pkcs7-signature", "application/x-pkcs7-signature"}:
        raise SmimeError(f"the second part is {signature_headers.get_content_type()}, not a signature")
    content = signed.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    certificate = verify_detached(_base64(signature_body), content)
    return SignedContent(payload=_decoded(signed), certificate=certificate)


def verify_detached(signed_data: bytes, content: bytes) -> x509.Certificate:
    """Verify a DER `SignedData` without content over `content` (canonical line ends). Returns the signer's certificate.

    Raises `SmimeError` for any other structure, several signers or certificates, or a signature that does not match.
    """
    try:
        certificate, signer = _single_signer(signed_data)
        digest, signed_bytes, signature = _signed_bytes(signer, content)
        _verify(certificate, signature, signed_bytes, digest)
    except SmimeError:
        raise
    except InvalidSignature:
        raise SmimeError("the signature does not match the signer's certificate") from None
    except (ValueError, IndexError, UnsupportedAlgorithm) as error:
        raise SmimeError(f"the signature or its certificate cannot be read: {error}") from error
    return certificate


def verify_issued(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate], at: datetime, lists: RevocationLists
) -> None:
    """Check that `authorities` issued `certificate`, up to a self-signed one, that all are valid at `at` (UTC), and
    that `lists` revoke none of the chain.

    As in SSM, purposes are not checked. Raises `SmimeError`.
    """
    current = certificate
    chain = [certificate]
    for _ in range(10):
        if not current.not_valid_before_utc <= at <= current.not_valid_after_utc:
            raise SmimeError(f"the certificate of {current.subject.rfc4514_string()} is not valid at {at:%Y-%m-%d}")
        issuer = next((authority for authority in authorities if _issued(current, authority)), None)
        if issuer is None:
            raise SmimeError(f"no trusted authority issued the certificate of {current.subject.rfc4514_string()}")
        chain.append(issuer)
        if issuer.subject == issuer.issuer:
            break
        current = issuer
    else:
        raise SmimeError("the chain of authorities does not end")
    try:
        lists.check(chain, at)
    except RevocationError as error:
        raise SmimeError(str(error)) from error


def _verify(certificate: x509.Certificate, signature: bytes, signed_bytes: bytes, digest: hashes.HashAlgorithm) -> None:
    public = certificate.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        public.verify(signature, signed_bytes, padding.PKCS1v15(), digest)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        public.verify(signature, signed_bytes, ec.ECDSA(digest))
    else:
        raise SmimeError("the signer's key is neither RSA nor EC")


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    if certificate.issuer != authority.subject:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _single_signer(signed_data: bytes) -> tuple[x509.Certificate, list[Element]]:
    content_info = read_all(signed_data).children()
    if content_info[0].oid() != _SIGNED_DATA:
        raise SmimeError("the signature part does not contain SignedData")
    parts = content_info[1].children()[0].children()
    certificates = [part.children() for part in parts if part.tag == _CERTIFICATES]
    if len(certificates) != 1 or len(certificates[0]) != 1:
        raise SmimeError("there must be exactly one certificate, the signer's")
    signers = parts[-1].children()
    if len(signers) != 1:
        raise SmimeError("there must be exactly one signer")
    certificate = x509.load_der_x509_certificate(certificates[0][0].encoded)
    signer = signers[0].children()
    issuer, serial = signer[1].children()[:2]
    if not certificate.subject.rdns:
        raise SmimeError("the signer's certificate has no subject")
    if issuer.encoded != certificate.issuer.public_bytes() or serial.integer() != certificate.serial_number:
        raise SmimeError("the certificate is not the signer's")
    return certificate, signer


def _signed_bytes(signer: list[Element], content: bytes) -> tuple[hashes.HashAlgorithm, bytes, bytes]:
    digest = _DIGESTS.get(signer[2].children()[0].oid())
    if digest is None:
        raise SmimeError("the digest is none of SHA-256, SHA-384, SHA-512")
    if signer[3].tag != _SIGNED_ATTRIBUTES:
        return digest, content, signer[4].content
    attributes = {part.children()[0].oid(): part.children()[1].children()[0] for part in signer[3].children()}
    hasher = hashes.Hash(digest)
    hasher.update(content)
    if _ATTRIBUTE_CONTENT_TYPE not in attributes or _ATTRIBUTE_MESSAGE_DIGEST not in attributes:
        raise SmimeError("the signed attributes lack the content type or the digest of the message")
    if attributes[_ATTRIBUTE_MESSAGE_DIGEST].content != hasher.finalize():
        raise SmimeError("the message was altered after it was signed: its digest differs")
    return digest, b"\x31" + signer[3].encoded[1:], signer[5].content


def _entity(message: bytes) -> tuple[email.message.Message, bytes]:
    end = _HEADER_END.search(message)
    if end is None:
        raise SmimeError("no empty line between header and body")
    headers = email.parser.BytesHeaderParser().parsebytes(message[: end.end()].lstrip())
    return headers, message[end.end() :]


def _parts(body: bytes, boundary: bytes) -> tuple[bytes, bytes]:
    """The two parts between three boundary lines. The line end before a boundary belongs to the boundary."""
    delimiter = b"--" + boundary
    pieces = (b"\n" + body).split(b"\n" + delimiter)
    if len(pieces) != 4 or pieces[3].strip() != b"--":
        raise SmimeError("a signed message has exactly two parts between its boundaries")
    first, second = (piece.removesuffix(b"\r").partition(b"\n") for piece in pieces[1:3])
    if first[0].strip() or second[0].strip():
        raise SmimeError("there is text on a boundary line")
    return first[2], second[2]


def _decoded(signed: bytes) -> bytes:
    headers, body = _entity(signed)
    encoding = str(headers.get("Content-Transfer-Encoding", "7bit")).strip().lower()
    if encoding == "quoted-printable":
        return quopri.decodestring(body)
    if encoding == "base64":
        return _base64(body)
    return body


def _base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error as error:
        raise SmimeError(f"the base64 of the message is damaged: {error}") from error

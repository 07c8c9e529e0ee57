"""Open signed and encrypted messages, OpenSSL's and ours; everything else is refused with a reason."""

from __future__ import annotations

import base64
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key, pkcs7
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.signed_text import looks_encrypted, why_not_signable
from publisher.security import der, verify
from publisher.security.revocation import RevocationLists
from publisher.simulator.pki import Credential, Pki, make_pki
from tests.extent import short_or_whole

PAYLOAD = b"APEL-summary-job-message: v0.2\nSite: EXAMPLE-SITE\n%%\n"
TWO_PARTS = (
    b"Content-Type: multipart/signed; boundary=b\n\n--b\na: b\n\nc\n--b\n"
    b"Content-Type: application/pkcs7-signature\n\n%b\n--b--\n"
)
OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@cache
def key_of(credential: Credential) -> rsa.RSAPrivateKey:
    key = load_pem_private_key(credential.key.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def signed_by_library(pki: Pki, *options: pkcs7.PKCS7Options, extra: bool = False) -> bytes:
    builder = pkcs7.PKCS7SignatureBuilder().set_data(PAYLOAD)
    builder = builder.add_signer(pki.client.load(), key_of(pki.client), hashes.SHA256())
    if extra:
        builder = builder.add_certificate(pki.ca.load())
    return builder.sign(Encoding.SMIME, [pkcs7.PKCS7Options.Text, pkcs7.PKCS7Options.DetachedSignature, *options])


def openssl_sign(pki: Pki, credential: Credential, *arguments: str) -> bytes:
    assert OPENSSL
    command = [OPENSSL, "smime", "-sign", "-signer", str(credential.certificate), "-inkey", str(credential.key)]
    return subprocess.run([*command, *arguments], input=PAYLOAD, capture_output=True, check=True).stdout


@pytest.mark.parametrize("options", [(), (pkcs7.PKCS7Options.NoCapabilities,), (pkcs7.PKCS7Options.NoAttributes,)])
def test_a_message_of_the_library_opens(pki: Pki, options: tuple[pkcs7.PKCS7Options, ...]) -> None:
    opened = verify.open_signed(signed_by_library(pki, *options))
    assert opened.payload.replace(b"\r\n", b"\n") == PAYLOAD
    assert opened.certificate == pki.client.load()


@needs_openssl
@pytest.mark.parametrize("kind", ["rsa", "ec"])
@pytest.mark.parametrize("digest", ["sha256", "sha384", "sha512"])
def test_a_message_of_openssl_opens(pki: Pki, kind: str, digest: str) -> None:
    credential = pki.client if kind == "rsa" else pki.issue("ec-signer", "ec.example.org", key="ec")
    opened = verify.open_signed(openssl_sign(pki, credential, "-text", "-md", digest))
    assert opened.payload.replace(b"\r\n", b"\n") == PAYLOAD
    assert opened.certificate == credential.load()


@needs_openssl
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-text", "-nodetach"), "not a detached signature"),
        (("-text", "-nocerts"), "exactly one certificate"),
        (("-text", "-md", "sha1"), "the digest is none of"),
        ((), "no empty line|digest differs"),
    ],
)
def test_what_the_receiver_rejects_is_rejected(pki: Pki, arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(verify.SmimeError, match=reason):
        verify.open_signed(openssl_sign(pki, pki.client, *arguments))


def test_a_further_certificate_is_rejected(pki: Pki) -> None:
    with pytest.raises(verify.SmimeError, match="exactly one certificate"):
        verify.open_signed(signed_by_library(pki, extra=True))


def test_an_altered_message_is_rejected(pki: Pki) -> None:
    message = signed_by_library(pki)
    with pytest.raises(verify.SmimeError, match="altered after it was signed"):
        verify.open_signed(message.replace(b"EXAMPLE-SITE", b"ANOTHER-SITE"))
    bare = signed_by_library(pki, pkcs7.PKCS7Options.NoAttributes)
    with pytest.raises(verify.SmimeError, match="does not match the signer"):
        verify.open_signed(bare.replace(b"EXAMPLE-SITE", b"ANOTHER-SITE"))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_line_ends_may_change_on_the_way(pki: Pki, line_end: bytes) -> None:
    message = signed_by_library(pki).replace(b"\r\n", b"\n").replace(b"\n", line_end)
    assert verify.open_signed(message).payload == PAYLOAD.replace(b"\n", line_end)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\n\n",
        PAYLOAD,
        b"Content-Type: multipart/signed\n\n",
        b"Content-Type: multipart/signed; boundary=b\n\n--b\n--b\n--b--\n",
        b"Content-Type: multipart/signed; boundary=b\n\n--b\na: b\n\nc\n--b\nContent-Type: text/plain\n\nx\n--b--\n",
        TWO_PARTS % b"MAA=",
        TWO_PARTS % b"!!",
    ],
)
def test_what_is_not_a_signed_message_is_refused(message: bytes) -> None:
    with pytest.raises(verify.SmimeError):
        verify.open_signed(message)


@settings(
    max_examples=short_or_whole(50, 150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.data())
def test_no_altered_byte_of_the_signature_goes_unnoticed(pki: Pki, data: st.DataObject) -> None:
    content = PAYLOAD
    signature = (
        pkcs7.PKCS7SignatureBuilder()
        .set_data(content)
        .add_signer(pki.client.load(), key_of(pki.client), hashes.SHA256())
        .sign(Encoding.DER, [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Binary])
    )
    certificate = verify.verify_detached(signature, content)
    position = data.draw(st.integers(0, len(signature) - 1))
    altered = bytearray(signature)
    altered[position] ^= data.draw(st.integers(1, 255))
    try:  # bytes the signature does not cover may differ (the certificate's own are its issuer's affair); never the key
        assert verify.verify_detached(bytes(altered), content).public_key() == certificate.public_key()
    except verify.SmimeError:
        with pytest.raises(verify.SmimeError):
            verify.verify_detached(bytes(altered), content + b"x")


def test_encrypted_messages_open_with_the_right_key_only(pki: Pki) -> None:
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(b"inner").add_recipient(pki.client.load())
    enveloped = builder.encrypt(Encoding.SMIME, [pkcs7.PKCS7Options.Binary])
    assert verify.is_enveloped(enveloped)
    assert verify.decrypt(enveloped, pki.client.load(), key_of(pki.client)) == b"inner"
    other = pki.issue("other-receiver", "receiver.example.org")
    with pytest.raises(verify.SmimeError, match="cannot be decrypted"):
        verify.decrypt(enveloped, other.load(), key_of(other))
    with pytest.raises(verify.SmimeError, match="not an encrypted message"):
        verify.decrypt(b"Content-Type: text/plain\n\nx", pki.client.load(), key_of(pki.client))


def test_the_authority_is_checked(pki: Pki, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    verify.verify_issued(pki.client.load(), [pki.ca.load()], now, RevocationLists(None))
    stranger = make_pki(tmp_path / "stranger", ca_cn="Another CA")
    with pytest.raises(verify.SmimeError, match="no trusted authority"):
        verify.verify_issued(stranger.client.load(), [pki.ca.load()], now, RevocationLists(None))
    same_name = make_pki(tmp_path / "same-name")
    with pytest.raises(verify.SmimeError, match="no trusted authority"):
        verify.verify_issued(same_name.client.load(), [pki.ca.load()], now, RevocationLists(None))
    with pytest.raises(verify.SmimeError, match="not valid at"):
        verify.verify_issued(pki.client.load(), [pki.ca.load()], now + timedelta(days=400), RevocationLists(None))


def test_transfer_encodings_are_undone(pki: Pki) -> None:
    entity = "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nS=C3=B8ren=\n!\n"
    signature = (
        pkcs7.PKCS7SignatureBuilder()
        .set_data(entity.replace("\n", "\r\n").encode())
        .add_signer(pki.client.load(), key_of(pki.client), hashes.SHA256())
        .sign(Encoding.DER, [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Binary])
    )
    message = (
        f'Content-Type: multipart/signed; boundary="b"\n\n--b\n{entity}\n--b\n'
        f"Content-Type: application/x-pkcs7-signature\n\n{base64.encodebytes(signature).decode()}\n--b--\n"
    ).encode()
    assert verify.open_signed(message).payload.decode() == "Søren!\n"


@given(st.binary(max_size=200))
def test_der_of_anything_is_read_or_refused(data: bytes) -> None:
    try:
        element = der.read_all(data)
    except der.DerError:
        return
    assert element.encoded == data
    assert element.encoded.endswith(element.content)


def test_object_identifiers_read_as_their_dotted_form() -> None:
    for dotted in ("1.2.840.113549.1.7.2", "2.16.840.1.101.3.4.2.1", "2.999.3", "0.9.2342"):
        if dotted == "2.999.3":
            encoded = bytes.fromhex("0603883703")
        else:
            attribute = x509.NameAttribute(x509.ObjectIdentifier(dotted), "x", _type=None)
            name = der.read_all(x509.Name([attribute]).public_bytes())
            encoded = name.children()[0].children()[0].children()[0].encoded
        assert der.read_all(encoded).oid() == dotted
    with pytest.raises(der.DerError):
        der.read_all(bytes.fromhex("0202ff00")).oid()


@pytest.mark.parametrize(
    "text", [b"application/pkcs7-mime", b"APPLICATION/PKCS7-MIME", b"Application/x-Pkcs7-Mime", b"none"]
)
def test_the_receiver_and_the_sender_mean_the_same_by_encrypted(text: bytes) -> None:
    """SSM looks for the type as it is written, whatever a header may say."""
    assert looks_encrypted(b"JobName: " + text) == (why_not_signable(b"JobName: " + text) is not None)

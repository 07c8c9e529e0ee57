"""Signing: what OpenSSL and we ourselves verify, what is refused, and that the size is known beforehand."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.errors import CredentialError, SigningError
from publisher.security.credentials import ClientCredentials, load_credentials
from publisher.security.sign import DetachedSigner, Signer, load_recipient
from publisher.security.verify import decrypt, is_enveloped, open_signed, verify_detached
from publisher.simulator.pki import Credential, Pki, make_pki
from tests.extent import short_or_whole

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
TEXT = st.text(st.characters(codec="ascii", exclude_characters="\r\0"), min_size=1, max_size=3000).filter(
    lambda text: not text.isspace()
)
LINES = b"".join(b"%d: a line of a record, with a number at its start\n" % number for number in range(5000))
AWKWARD = b"From here\n.\n--x\n=3D trailing \t \n" + b"y" * 200_000 + b"\nlast line without an end"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def loaded(credential: Credential) -> ClientCredentials:
    return load_credentials(credential.certificate, credential.key, now_s=time.time())


@pytest.fixture(scope="module", params=["rsa", "ec"])
def credentials(request: pytest.FixtureRequest, pki: Pki) -> ClientCredentials:
    return loaded(pki.client if request.param == "rsa" else pki.issue("ec", "ec.example.org", key="ec"))


@pytest.fixture(scope="module")
def receiver(pki: Pki) -> Credential:
    return pki.issue("receiver", "receiver.example.org")


def openssl(*arguments: str | Path, message: bytes) -> bytes:
    assert OPENSSL
    command = [OPENSSL, "smime", *map(str, arguments)]
    result = subprocess.run(command, input=message, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


@needs_openssl
@pytest.mark.parametrize("payload", [b"x", b"x\n", LINES, AWKWARD, b"a\r\nb\r\n", b"\n\nx\n\n", b"x" * 1023 + b"\ny"])
def test_openssl_verifies_what_was_signed(pki: Pki, credentials: ClientCredentials, payload: bytes) -> None:
    message = Signer(credentials).sign(payload)
    out = openssl("-verify", "-CAfile", pki.ca_file, "-purpose", "any", message=message)
    assert out == b"Content-Type: text/plain\r\n\r\n" + payload.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert openssl("-verify", "-noverify", "-text", message=message.replace(b"\n", b"\r\n")).endswith(payload[-1:])


@given(TEXT)
@settings(max_examples=short_or_whole(20, 60), deadline=None)
def test_what_is_signed_opens_again(credentials: ClientCredentials, text: str) -> None:
    message = Signer(credentials).sign(text.encode())
    assert message.isascii()
    opened = open_signed(message)
    assert opened.payload == text.encode()
    assert opened.certificate == credentials.certificate


def test_signatures_name_their_time_as_the_standard_has_it(pki: Pki) -> None:
    certificate = pki.client.load()
    signer = DetachedSigner(certificate, loaded(pki.client).key)
    digest = hashlib.sha256(b"content").digest()
    for at_s, encoded in ((1_800_000_000, b"\x17\x0d270115080000Z"), (4_000_000_000, b"\x18\x0f20961002070640Z")):
        signed_data = signer.signed_data(digest, at_s)
        assert encoded in signed_data
        assert verify_detached(signed_data, b"content") == certificate


def test_the_signature_carries_only_the_signers_certificate(pki: Pki, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(pki.client.certificate.read_bytes() + pki.ca.certificate.read_bytes())
    credentials = load_credentials(bundle, pki.client.key, now_s=time.time())
    assert len(credentials.chain) == 1
    assert open_signed(Signer(credentials).sign(b"x")).certificate == pki.client.load()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("blåbær".encode(), "not ASCII"),
        (b"a\rb", "carriage return"),
        (b"a\r\nb\r", "carriage return"),
        (b"a\0b", "NUL"),
        (b"", "empty"),
        (b" \r\n\t\n", "empty"),
        (b"x application/pkcs7-mime x", "as encrypted"),
        (b"x application/x-pkcs7-mime x", "as encrypted"),
    ],
)
def test_what_the_receiver_would_choke_on_is_not_signed(pki: Pki, payload: bytes, reason: str) -> None:
    with pytest.raises(SigningError, match=reason):
        Signer(loaded(pki.client)).sign(payload)


def test_harmless_text_that_looks_like_the_forbidden_is_signed(pki: Pki) -> None:
    assert open_signed(Signer(loaded(pki.client)).sign(b"pkcs7-mime")).payload == b"pkcs7-mime"


def test_a_certificate_that_expires_between_two_messages_stops_the_second(pki: Pki) -> None:
    credentials = loaded(pki.client)
    now = [time.time()]
    signer = Signer(credentials, clock=lambda: now[0])
    signer.sign(b"x")
    now[0] = credentials.expires_s + 1
    with pytest.raises(CredentialError, match="expired"):
        signer.sign(b"x")


@needs_openssl
def test_openssl_decrypts_and_verifies(
    pki: Pki, credentials: ClientCredentials, receiver: Credential, tmp_path: Path
) -> None:
    message = Signer(credentials, recipient=load_recipient(receiver.certificate, now_s=time.time())).sign(LINES)
    assert message.isascii()
    inner = openssl("-decrypt", "-recip", receiver.certificate, "-inkey", receiver.key, message=message)
    verified = openssl("-verify", "-CAfile", pki.ca_file, "-purpose", "any", "-text", message=inner)
    assert verified.replace(b"\r\n", b"\n") == LINES


def test_we_decrypt_what_we_encrypted(pki: Pki, receiver: Credential) -> None:
    signer = Signer(loaded(pki.client), recipient=load_recipient(receiver.certificate, now_s=time.time()))
    message = signer.sign(AWKWARD)
    assert is_enveloped(message)
    key = loaded(receiver).key
    assert isinstance(key, rsa.RSAPrivateKey)
    assert open_signed(decrypt(message, receiver.load(), key)).payload == AWKWARD


def test_a_receiver_without_rsa_key_or_validity_is_refused(pki: Pki) -> None:
    with pytest.raises(CredentialError, match="no RSA key"):
        load_recipient(pki.issue("ec-receiver", "r.example.org", key="ec").certificate, now_s=time.time())
    with pytest.raises(CredentialError, match="expired"):
        load_recipient(pki.issue("old", "r.example.org", validity="expired").certificate, now_s=time.time())


@given(size=st.integers(1, 20_000), encrypted=st.booleans(), newlines=st.booleans())
@settings(max_examples=short_or_whole(25, 80), deadline=None)
def test_no_message_is_larger_than_its_bound(
    credentials: ClientCredentials, receiver: Credential, size: int, encrypted: bool, newlines: bool
) -> None:
    recipient = receiver.load() if encrypted else None
    signer = Signer(credentials, recipient=recipient)
    payload = b"x" + (b"\n" if newlines else b"y") * (size - 1)
    length = len(signer.sign(payload))
    assert length <= signer.size_bound(size)
    assert signer.size_bound(size) - length < 200

"""Certificates and keys that services would refuse are refused here, by name and with what to do."""

from __future__ import annotations

import os
import ssl
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.x509.oid import NameOID

from publisher.errors import CredentialError
from publisher.security.credentials import (
    acl_lets_others_read,
    load_certificates,
    load_credentials,
    load_key,
    read_secret,
)
from publisher.simulator.pki import Pki, Validity, make_pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def write_key(path: Path, key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, password: bytes | None = None) -> Path:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    path.chmod(0o600)
    return path


def self_signed(path: Path, key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, name: x509.Name) -> Path:
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=10))
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path


NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "h.example.org")])


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_a_good_pair_is_loaded(pki: Pki, kind: str) -> None:
    credential = pki.client if kind == "rsa" else pki.issue("good-ec", "ce1.example.org", key="ec")
    credentials = load_credentials(credential.certificate, credential.key, now_s=time.time())
    assert credentials.slash_dn == "/DC=org/DC=example/CN=ce1.example.org"
    assert credentials.rfc2253_dn == "CN=ce1.example.org,DC=example,DC=org"
    assert credentials.days_left(time.time()) in {59, 60}
    assert credentials.days_left(credentials.expires_s + 1) == -1


@pytest.mark.parametrize(("validity", "reason"), [("expired", "expired at"), ("future", "is not valid before")])
def test_dates_are_checked(pki: Pki, validity: Validity, reason: str) -> None:
    credential = pki.issue(validity, "ce1.example.org", validity=validity)
    with pytest.raises(CredentialError, match=reason) as raised:
        load_credentials(credential.certificate, credential.key, now_s=time.time())
    assert str(credential.certificate) in str(raised.value)


def test_the_key_of_another_certificate_is_refused(pki: Pki) -> None:
    for other in (pki.other_key("other-rsa"), pki.other_key("other-ec", key="ec")):
        with pytest.raises(CredentialError, match="does not belong to the certificate"):
            load_credentials(pki.client.certificate, other, now_s=time.time())


def test_proxies_are_refused(pki: Pki, tmp_path: Path) -> None:
    proxy = pki.issue_proxy("proxy")
    with pytest.raises(CredentialError, match="proxy certificate"):
        load_credentials(proxy.certificate, proxy.key, now_s=time.time())
    legacy = pki.issue("legacy", "limited proxy")
    with pytest.raises(CredentialError, match="proxy certificate"):
        load_credentials(legacy.certificate, legacy.key, now_s=time.time())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o620, 0o777])
def test_a_key_that_others_can_read_is_refused(pki: Pki, tmp_path: Path, mode: int) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(pki.client.key.read_bytes())
    key.chmod(mode)
    with pytest.raises(CredentialError, match=f"mode {mode:04o}"):
        load_key(key)
    link = tmp_path / "link.pem"
    link.symlink_to(key)
    with pytest.raises(CredentialError, match=f"mode {mode:04o}"):
        load_key(link)
    key.chmod(0o400)
    load_key(link)


def test_the_workers_of_a_target_check_the_same_key_once_and_a_renewed_one_again(tmp_path: Path) -> None:
    file = write_key(tmp_path / "a.key", rsa.generate_private_key(65537, 2048))
    first = load_key(file)
    assert load_key(file) is first
    write_key(file, rsa.generate_private_key(65537, 2048))
    assert load_key(file).public_key() != first.public_key()


def test_the_key_of_another_user_is_refused(pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(pki.client.key.read_bytes())
    key.chmod(0o600)
    owner = key.stat().st_uid
    if owner == 0:
        os.chown(key, 4711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(CredentialError, match="belongs to user id"):
        load_key(key)


@pytest.mark.parametrize("make", ["missing", "directory", "pipe"])
def test_a_key_that_is_not_a_file_is_refused_at_once(tmp_path: Path, make: str) -> None:
    path = tmp_path / "key.pem"
    if make == "directory":
        path.mkdir()
    elif make == "pipe":
        os.mkfifo(path, 0o600)
    with pytest.raises(CredentialError, match=r"cannot be read|not a regular file"):
        read_secret(path, "key")


def test_a_pass_phrase_is_refused_with_advice(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key.pem", rsa.generate_private_key(65537, 2048), b"secret")
    with pytest.raises(CredentialError, match=r"pass phrase.*openssl pkey"):
        load_key(key)


def test_keys_that_cannot_sign_are_refused(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    with pytest.raises(CredentialError, match="cannot sign S/MIME"):
        load_key(write_key(tmp_path / "ed.key", key))
    with pytest.raises(CredentialError, match="Use an RSA or EC key"):
        load_certificates(self_signed(tmp_path / "ed.pem", key, NAME))


def test_short_rsa_keys_are_refused(tmp_path: Path) -> None:
    short = rsa.generate_private_key(65537, 1024)
    with pytest.raises(CredentialError, match="only 1024 bits"):
        load_certificates(self_signed(tmp_path / "short.pem", short, NAME))


def test_a_key_bound_to_rsa_pss_is_refused(tmp_path: Path) -> None:
    path = self_signed(tmp_path / "plain.pem", rsa.generate_private_key(65537, 2048), NAME)
    plain = x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)
    rsa_encryption = bytes.fromhex("06092a864886f70d0101010500")
    assert plain.count(rsa_encryption) == 1
    bound = plain.replace(rsa_encryption, bytes.fromhex("06092a864886f70d01010a3000"))
    path.write_text(ssl.DER_cert_to_PEM_cert(bound))
    with pytest.raises(CredentialError, match="RSA-PSS"):
        load_certificates(path)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_what_is_not_a_certificate_or_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(CredentialError, match="no certificate"):
        load_certificates(path)
    with pytest.raises(CredentialError, match="no usable private key"):
        load_key(path)
    with pytest.raises(CredentialError, match="cannot be read"):
        load_certificates(tmp_path / "missing.pem")


def test_a_key_in_place_of_the_certificate_is_named(tmp_path: Path) -> None:
    pki = make_pki(tmp_path / "pki")
    with pytest.raises(CredentialError, match=r"contains a key but no certificate.*swapped"):
        load_credentials(pki.client.key, pki.client.certificate, now_s=time.time())


def test_nothing_shows_the_key(pki: Pki) -> None:
    credentials = load_credentials(pki.client.certificate, pki.client.key, now_s=time.time())
    assert "PRIVATE" in credentials.pem().decode()
    assert "key" not in repr(credentials).lower()


def acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.parametrize(
    ("entries", "others"),
    [
        ([(0x01, 4, 0), (0x02, 4, 500), (0x04, 0, 0), (0x10, 4, 0), (0x20, 0, 0)], False),  # as systemd writes it
        ([(0x01, 4, 0), (0x02, 4, 501), (0x04, 0, 0), (0x10, 4, 0), (0x20, 0, 0)], True),  # another user
        ([(0x01, 4, 0), (0x02, 4, 501), (0x04, 0, 0), (0x10, 0, 0), (0x20, 0, 0)], False),  # masked
        ([(0x01, 6, 0), (0x04, 4, 0), (0x10, 4, 0), (0x20, 0, 0)], True),  # the group
        ([(0x01, 6, 0), (0x04, 0, 0), (0x08, 4, 7), (0x10, 4, 0), (0x20, 0, 0)], True),  # another group
        ([(0x01, 6, 0), (0x04, 0, 0), (0x10, 7, 0), (0x20, 4, 0)], True),  # the world
    ],
)
def test_access_lists_are_read(entries: list[tuple[int, int, int]], others: bool) -> None:
    assert acl_lets_others_read(acl(*entries), 500) is others

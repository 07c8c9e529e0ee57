"""The temporary PKI: OpenSSL finds and verifies its certificates."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from publisher.security.distinguished_name import name_hash
from publisher.simulator.pki import Pki, make_pki

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl program is not installed")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["openssl", *(str(argument) for argument in arguments)], capture_output=True, text=True, check=False
    )


def verify(pki: Pki, certificate: Path, *more: str | Path) -> str:
    done = openssl("verify", "-CApath", pki.ca_directory, "-no-CAfile", *more, certificate)
    return done.stdout + done.stderr


@needs_openssl
def test_ca_directory_is_the_one_openssl_reads(pki: Pki) -> None:
    printed = openssl("x509", "-noout", "-hash", "-in", pki.ca_file).stdout.strip()
    assert (pki.ca_directory / f"{printed}.0").is_file()
    assert verify(pki, pki.client.certificate, "-x509_strict").endswith(": OK\n")
    assert verify(pki, pki.server.certificate, "-x509_strict", "-purpose", "sslserver").endswith(": OK\n")


@needs_openssl
@pytest.mark.parametrize(
    "attributes",
    [
        [(NameOID.COMMON_NAME, "  Mixed   CASE \t Name ", _ASN1Type.UTF8String)],
        [(NameOID.COMMON_NAME, "Zoë Ærø ÅNGSTRÖM", _ASN1Type.UTF8String)],
        [(NameOID.COMMON_NAME, "ÆRØ 16", _ASN1Type.BMPString)],
        [
            (NameOID.COUNTRY_NAME, "NO", _ASN1Type.PrintableString),
            (NameOID.COMMON_NAME, "x" * 64, _ASN1Type.UTF8String),
        ],
        [(NameOID.ORGANIZATION_NAME, "y " * 70 + "y", _ASN1Type.UTF8String)],
        [
            (NameOID.DOMAIN_COMPONENT, "Org", _ASN1Type.IA5String),
            (NameOID.EMAIL_ADDRESS, "A@B.no", _ASN1Type.IA5String),
        ],
    ],
)
def test_name_hash_is_openssls(
    pki: Pki, tmp_path: Path, attributes: list[tuple[x509.ObjectIdentifier, str, _ASN1Type]]
) -> None:
    name = x509.Name([x509.NameAttribute(oid, value, kind, _validate=False) for oid, value, kind in attributes])
    assert f"{name_hash(name):08x}" == _hash_by_openssl(tmp_path, name)


@needs_openssl
def test_name_hash_of_a_relative_name_with_several_parts(tmp_path: Path) -> None:
    several = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.USER_ID, "ZZ 1"), x509.NameAttribute(NameOID.COMMON_NAME, "A name")]
    )
    name = x509.Name([several, x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.LOCALITY_NAME, "Oslo")])])
    assert f"{name_hash(name):08x}" == _hash_by_openssl(tmp_path, name)


def _hash_by_openssl(directory: Path, name: x509.Name) -> str:
    from datetime import UTC, datetime, timedelta

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    path = directory / "named.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return openssl("x509", "-noout", "-hash", "-in", path).stdout.strip()


@needs_openssl
def test_what_can_be_wrong_with_a_certificate_is_what_openssl_finds_wrong(tmp_path: Path) -> None:
    pki = make_pki(tmp_path / "pki", client_key="ec")
    other = make_pki(tmp_path / "other", ca_cn="Another CA")
    revoked = pki.issue("revoked", "ce2.example.org", key="ec")
    assert "certificate has expired" in verify(
        pki, pki.issue("old", "ce1.example.org", key="ec", validity="expired").certificate
    )
    assert "not yet valid" in verify(pki, pki.issue("new", "ce1.example.org", key="ec", validity="future").certificate)
    assert "unable to get local issuer" in verify(pki, other.client.certificate)
    proxy = pki.issue_proxy("proxy")
    assert "proxy certificates not allowed" in verify(pki, proxy.certificate, "-untrusted", pki.client.certificate)
    allowed = verify(pki, proxy.certificate, "-untrusted", pki.client.certificate, "-allow_proxy_certs")
    assert allowed.endswith(": OK\n")
    pki.revoke(revoked)
    assert "certificate revoked" in verify(pki, revoked.certificate, "-crl_check")
    assert verify(pki, pki.client.certificate, "-crl_check").endswith(": OK\n")


def test_files_are_for_their_owner_only(pki: Pki) -> None:
    pki.other_key("other")
    for path in [pki.directory, *pki.directory.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_names(pki: Pki) -> None:
    assert pki.client.dn == "/DC=org/DC=example/CN=ce1.example.org"

"""Subjects of real certificates, spelled as SSM and OpenSSL spell them."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from publisher.security.distinguished_name import rfc2253_dn, slash_dn

Part = list[tuple[ObjectIdentifier, str, _ASN1Type | None]]

ORG: Part = [(NameOID.DOMAIN_COMPONENT, "org", None)]
NAMES: dict[str, tuple[list[Part], str, str]] = {
    "usual": (
        [
            [(NameOID.COUNTRY_NAME, "SE", None)],
            [(NameOID.ORGANIZATION_NAME, "Example, Inc.", None)],
            [(NameOID.COMMON_NAME, "Åsa/h.example.org", None)],
            [(NameOID.EMAIL_ADDRESS, "a@example.org", None)],
        ],
        "/C=SE/O=Example, Inc./CN=Åsa/h.example.org/emailAddress=a@example.org",
        r"emailAddress=a@example.org,CN=Åsa/h.example.org,O=Example\, Inc.,C=SE",
    ),
    "several in one part": (
        [
            ORG,
            [
                (NameOID.COMMON_NAME, 'Zoë +/,"= x', None),
                (NameOID.USER_ID, "u1", None),
                (NameOID.SERIAL_NUMBER, "7", None),
            ],
        ],
        '/DC=org/serialNumber=7/UID=u1/CN=Zoë +/,"= x',
        r"CN=Zoë \+/\,\"= x+UID=u1+serialNumber=7,DC=org",
    ),
    "of persons": (
        [
            [(NameOID.INITIALS, "A.B.", None)],
            [(NameOID.PSEUDONYM, "p", None)],
            [(NameOID.DN_QUALIFIER, "q", None)],
            [(NameOID.GENERATION_QUALIFIER, "III", None)],
            [(NameOID.X500_UNIQUE_IDENTIFIER, "x5", None)],
            [(NameOID.ORGANIZATION_IDENTIFIER, "VATSE-1", None)],
            [(NameOID.POSTAL_CODE, "0450", None)],
            [(NameOID.BUSINESS_CATEGORY, "b", None)],
            [(NameOID.UNSTRUCTURED_NAME, "u", None)],
            [(NameOID.JURISDICTION_LOCALITY_NAME, "l", None)],
            [(ObjectIdentifier("2.5.4.13"), "d", None)],
        ],
        (
            "/initials=A.B./pseudonym=p/dnQualifier=q/generationQualifier=III/x500UniqueIdentifier=x5"
            "/organizationIdentifier=VATSE-1/postalCode=0450/businessCategory=b/unstructuredName=u/jurisdictionL=l"
            "/description=d"
        ),
        (
            "description=d,jurisdictionL=l,unstructuredName=u,businessCategory=b,postalCode=0450,"
            "organizationIdentifier=VATSE-1,x500UniqueIdentifier=x5,generationQualifier=III,dnQualifier=q,pseudonym=p,"
            "initials=A.B."
        ),
    ),
    "unknown to OpenSSL": (
        [ORG, [(ObjectIdentifier("1.2.3.4.5"), "unk", None)]],
        "/DC=org/UNDEF=unk",
        "1.2.3.4.5=#0C03756E6B,DC=org",
    ),
    "other kinds of text": (
        [[(NameOID.COMMON_NAME, "ab", _ASN1Type.BMPString)], [(NameOID.COMMON_NAME, "x\x01y\tz", None)]],
        "/CN=\x00a\x00b/CN=x\x01y\tz",
        r"CN=x\01y\09z,CN=ab",
    ),
    "special at the ends": (
        [[(NameOID.COMMON_NAME, "#a# ", None)], [(NameOID.COMMON_NAME, " b;<>\\", None)]],
        "/CN=#a# /CN= b;<>\\",
        r"CN=\ b\;\<\>\\,CN=\#a#\ ",
    ),
}
"""The parts of a name; how SSM 4.0.0 with pyOpenSSL spells it; and OpenSSL 3.0, after RFC 2253."""


def certificate(parts: list[Part]) -> x509.Certificate:
    relative = [
        x509.RelativeDistinguishedName(
            [x509.NameAttribute(oid, text, kind, _validate=False) for oid, text, kind in part]
        )
        for part in parts
    ]
    name, key, now = x509.Name(relative), ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return x509.load_pem_x509_certificate(dated.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize(("parts", "slash", "rfc2253"), NAMES.values(), ids=NAMES)
def test_names_in_both_spellings(parts: list[Part], slash: str, rfc2253: str) -> None:
    subject = certificate(parts).subject
    assert slash_dn(subject) == slash
    assert rfc2253_dn(subject) == rfc2253


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize(("parts", "_slash", "rfc2253"), NAMES.values(), ids=NAMES)
def test_openssl_spells_them_so(tmp_path: Path, parts: list[Part], _slash: str, rfc2253: str) -> None:
    file = tmp_path / "certificate.pem"
    file.write_bytes(certificate(parts).public_bytes(serialization.Encoding.PEM))
    command = ["openssl", "x509", "-in", str(file), "-noout", "-subject", "-nameopt", "RFC2253,-esc_msb"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"subject={rfc2253}\n"

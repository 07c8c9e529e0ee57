"""What an inspection needs besides the message: a key to decrypt with, authorities to ask."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from publisher.credentials import load_certificates, load_key
from publisher.errors import CredentialError, UsageError
from publisher.revocation import RevocationLists

_AUTHORITY_FILES = ("*.[0-9]", "*.pem", "*.crt")


class Keys(msgspec.Struct, frozen=True):
    """The receiver's certificate and key, and the authorities; None where they were not given."""

    certificate: x509.Certificate | None = None
    key: rsa.RSAPrivateKey | None = None
    authorities: tuple[x509.Certificate, ...] | None = None
    lists: RevocationLists = RevocationLists(None)
    """The revocation lists beside the authorities."""


def load_keys(certificate: Path | None, key: Path | None, authorities: Path | None) -> Keys:
    """The keys of these files; `authorities` is a file or a directory in hashed grid form.

    Raises `UsageError` for a key without its certificate or the other way round, and `CredentialError`.
    """
    if (certificate is None) != (key is None):
        raise UsageError("--key and --certificate go together", hint="Give both, of the receiver of the message")
    private: rsa.RSAPrivateKey | None = None
    if key is not None:
        loaded = load_key(key)
        if not isinstance(loaded, rsa.RSAPrivateKey):
            raise CredentialError(f"the key in {key} is no RSA key", hint="S/MIME messages are encrypted to RSA keys")
        private = loaded
    return Keys(
        None if certificate is None else load_certificates(certificate)[0],
        private,
        None if authorities is None else _authorities(authorities),
        RevocationLists(authorities if authorities is not None and authorities.is_dir() else None),
    )


def _authorities(path: Path) -> tuple[x509.Certificate, ...]:
    if not path.exists():
        raise UsageError(
            f"--ca: there is no file or directory {path}",
            hint="Name a PEM file with the authorities, or a directory such as /etc/grid-security/certificates",
        )
    if not path.is_dir():
        return tuple(load_certificates(path))
    files = sorted({file for pattern in _AUTHORITY_FILES for file in path.glob(pattern)})
    found = [certificate for file in files for certificate in load_certificates(file)]
    if not found:
        raise CredentialError(f"the directory {path} holds no certificates", hint="It has HASH.0 or .pem files")
    return tuple(found)

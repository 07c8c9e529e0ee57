"""The client certificate and its key: loaded once, and checked before anything is signed or sent with them, so that
nothing is sent unsigned.

A certificate that a service would refuse is refused here, with advice. A key is read through one file descriptor, on
which mode and owner are checked.
"""

from __future__ import annotations

import os
import stat
import struct
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID, PublicKeyAlgorithmOID

from publisher.errors import CredentialError, KeyMismatchError
from publisher.security.distinguished_name import rfc2253_dn, slash_dn

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_LARGEST_FILE_BYTES = 1 << 20
_RSA_BITS = 2048
_DAY_S = 86400
_PROXY_EXTENSIONS = frozenset({"1.3.6.1.5.5.7.1.14", "1.3.6.1.4.1.3536.1.222"})
_PROXY_NAMES = frozenset({"proxy", "limited proxy"})
_ACL_HEADER, _ACL_ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_ACL_USER, _ACL_GROUP_OBJ, _ACL_GROUP, _ACL_MASK, _ACL_OTHER = 0x02, 0x04, 0x08, 0x10, 0x20
_READ = 4


class ClientCredentials(msgspec.Struct, frozen=True):
    """A checked certificate with its key. `chain`: the other certificates of the file, for TLS, not for signing."""

    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: PrivateKey
    certificate_file: Path

    def __repr__(self) -> str:
        return f"ClientCredentials({self.slash_dn!r}, {str(self.certificate_file)!r})"

    @property
    def slash_dn(self) -> str:
        """The subject as OpenSSL prints it on one line; SSM and SGAS use this form: `/DC=org/.../CN=host`."""
        return slash_dn(self.certificate.subject)

    @property
    def rfc2253_dn(self) -> str:
        """The subject in RFC 2253 order; nginx and the AMS token service use this form: `CN=host,...,DC=org`."""
        return rfc2253_dn(self.certificate.subject)

    @property
    def expires_s(self) -> int:
        """End of validity, epoch seconds."""
        return int(self.certificate.not_valid_after_utc.timestamp())

    def days_left(self, now_s: float) -> int:
        """Whole days until the certificate expires; negative once it has."""
        return int((self.expires_s - now_s) // _DAY_S)

    def require_valid(self, now_s: float) -> None:
        """Raise `CredentialError` if the certificate is not yet, or no longer, valid at `now_s` (epoch seconds)."""
        require_valid(self.certificate, now_s, self.certificate_file)

    def pem(self) -> bytes:
        """Certificate, chain, and key in one PEM text, for a TLS context. It contains the key: never write it to a file
        or log."""
        parts = [self.certificate, *self.chain]
        return b"".join(part.public_bytes(serialization.Encoding.PEM) for part in parts) + self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def load_credentials(certificate_file: Path, key_file: Path, *, now_s: float) -> ClientCredentials:
    """Read and check certificate and key. Raises `CredentialError` that names the file and what to do."""
    certificate, *chain = load_certificates(certificate_file)
    require_valid(certificate, now_s, certificate_file)
    if is_proxy(certificate):
        raise CredentialError(
            f"{certificate_file} contains a proxy certificate (RFC 3820), which the services do not accept",
            hint="Use the host certificate itself",
        )
    key = load_key(key_file)
    if key.public_key() != certificate.public_key():
        raise KeyMismatchError(
            f"the key in {key_file} does not belong to the certificate in {certificate_file}",
            hint="Check that both were renewed together and that the certificate comes first in its file",
        )
    return ClientCredentials(certificate=certificate, chain=tuple(chain), key=key, certificate_file=certificate_file)


def load_certificates(file: Path) -> list[x509.Certificate]:
    """All certificates of a PEM file, at least one. Raises `CredentialError`."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_FILE_BYTES)
        certificates = x509.load_pem_x509_certificates(data)
    except OSError as error:
        raise _unreadable("certificate", file, error) from error
    except ValueError as error:
        if b" PRIVATE KEY-----" in data:
            raise CredentialError(
                f"{file} contains a key but no certificate", hint="Check whether the two files are swapped"
            ) from error
        raise CredentialError(
            f"{file} contains no certificate in PEM form",
            hint="A PEM file has a line -----BEGIN CERTIFICATE-----",
        ) from error
    for certificate in certificates:
        _check_public_key(certificate, file)
    return certificates


def load_key(file: Path) -> PrivateKey:
    """Load the private key of a PEM file that only its owner can read. Raises `CredentialError`."""
    data = read_secret(file, "key")
    try:
        key = _parsed_key(data)
    except TypeError:
        raise CredentialError(
            f"the key in {file} is protected by a pass phrase",
            hint="Write it without one (openssl pkey), mode 0400, for a program that runs unattended",
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CredentialError(f"{file} contains no usable private key in PEM form") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise CredentialError(f"the key in {file} cannot sign S/MIME", hint="Use an RSA or EC key")
    return key


@lru_cache(maxsize=4)
def _parsed_key(data: bytes) -> object:
    """The key in a PEM text, checked: 30 ms for an RSA key, which each worker of a target reads. Raises as
    `load_pem_private_key`."""
    return serialization.load_pem_private_key(data, password=None)


def read_secret(file: Path, what: str) -> bytes:
    """The content of a file that only its owner (this user or root) can read.

    This is checked on the descriptor from which the content is read; for a link, it is the file to which it leads.
    Raises `CredentialError`.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise _unreadable(what, file, error) from error
    try:
        _check_private(descriptor, file, what)
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            return stream.read(_LARGEST_FILE_BYTES)
    except OSError as error:
        raise _unreadable(what, file, error) from error
    finally:
        os.close(descriptor)


def _check_private(descriptor: int, file: Path, what: str) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise CredentialError(f"the {what} {file} is not a regular file")
    if status.st_uid not in {0, os.geteuid()}:
        raise CredentialError(
            f"the {what} {file} belongs to user id {status.st_uid}; it must belong to this user or to root",
            hint=f"chown it to the user that runs this program, then chmod 0400 {file}",
        )
    if _is_readable_by_others(descriptor, status):
        raise CredentialError(
            f"the {what} {file} can be read by other users (mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"chmod 0400 {file}",
        )


def require_valid(certificate: x509.Certificate, now_s: float, file: Path) -> None:
    """Raise `CredentialError` if `certificate` (of `file`) is not valid at `now_s` (epoch seconds)."""
    now = datetime.fromtimestamp(now_s, UTC)
    if now < certificate.not_valid_before_utc:
        raise CredentialError(
            f"the certificate {file} is not valid before {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}",
            hint="Check the clock of this host",
        )
    if now > certificate.not_valid_after_utc:
        raise CredentialError(
            f"the certificate {file} expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
            hint="Renew it, if the clock of this host is right. Until then nothing is sent, and nothing is lost",
        )


def _text(part: x509.NameAttribute[str | bytes]) -> str:
    return part.value if isinstance(part.value, str) else part.value.hex()


def is_proxy(certificate: x509.Certificate) -> bool:
    """Whether it is a proxy certificate, of RFC 3820 or of the Globus Toolkit's older kinds."""
    if any(extension.oid.dotted_string in _PROXY_EXTENSIONS for extension in certificate.extensions):
        return True
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return bool(names) and _text(names[-1]).lower() in _PROXY_NAMES


def _check_public_key(certificate: x509.Certificate, file: Path) -> None:
    if certificate.public_key_algorithm_oid == PublicKeyAlgorithmOID.RSASSA_PSS:
        raise CredentialError(
            f"the key of {file} is bound to RSA-PSS, which receivers refuse", hint="Use plain RSA or EC"
        )
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise CredentialError(f"the key of the certificate {file} cannot be used", hint="Use an RSA or EC key")
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _RSA_BITS:
        raise CredentialError(f"the RSA key of {file} has only {key.key_size} bits", hint=f"It needs {_RSA_BITS} bits")


def _unreadable(what: str, file: Path, error: OSError) -> CredentialError:
    return CredentialError(
        f"the {what} {file} cannot be read: {error.strerror}",
        hint="Check the path, and that the user that runs this program may read it",
    )


def _is_readable_by_others(descriptor: int, status: os.stat_result) -> bool:
    """Whether other users than the owner can read. With an access list the mode's group bits are only its mask."""
    try:
        acl = os.getxattr(descriptor, "system.posix_acl_access")
    except OSError:
        return bool(status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    return acl_lets_others_read(acl, os.geteuid())


def acl_lets_others_read(acl: bytes, own_id: int) -> bool:
    """Whether a POSIX access list (Linux's extended attribute) allows other users to read than the owner, this user,
    and root.

    The credentials that systemd gives to a service are files of root with an entry for the service's user.
    """
    entries = list(_ACL_ENTRY.iter_unpack(acl[_ACL_HEADER.size :]))
    mask = next((permission for tag, permission, _ in entries if tag == _ACL_MASK), 0o7)
    for tag, permission, identity in entries:
        if tag == _ACL_OTHER and permission & _READ:
            return True
        if tag in {_ACL_GROUP_OBJ, _ACL_GROUP} and permission & mask & _READ:
            return True
        if tag == _ACL_USER and permission & mask & _READ and identity not in {0, own_id}:
            return True
    return False

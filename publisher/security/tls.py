"""TLS contexts for clients: 1.2 or later, with verification of the server and its name, and our certificate.

Building a context is slow, so `publisher.security.http` builds one for each service and keeps it. Certificate
authorities come from a directory in the hashed form of grid sites, in which only files named HASH.N are used, or from
one file. Revocation lists in that directory (HASH.rN) are checked (`publisher.security.revocation`) after the handshake
and before anything is sent; an authority without a list is trusted.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509

from publisher.errors import CredentialError
from publisher.security.credentials import ClientCredentials
from publisher.security.revocation import RevocationLists

_AUTHORITY_FILE = re.compile(r"[0-9a-f]{8}\.\d+").fullmatch
_DER = 2
"""`_ssl.ENCODING_DER`."""


class Trust(msgspec.Struct, frozen=True):
    """The trusted authorities: of a hashed directory, a file, or both; if neither is given, those of the system."""

    ca_directory: Path | None = None
    ca_file: Path | None = None

    def revocation_lists(self) -> RevocationLists:
        """The revocation lists of the directory; each is read when it is first needed."""
        return RevocationLists(self.ca_directory)

    def authorities(self) -> int | None:
        """The number of authorities' files in the directory; None if no directory is configured."""
        if self.ca_directory is None:
            return None
        try:
            return sum(1 for name in os.listdir(self.ca_directory) if _AUTHORITY_FILE(name))  # noqa: PTH208 - thousands
        except OSError as error:
            raise CredentialError(
                f"cannot read the directory of certificate authorities {self.ca_directory}: {error.strerror}",
                hint="Check ca_directory in [credentials]",
            ) from error


def make_context(trust: Trust, credentials: ClientCredentials | None) -> ssl.SSLContext:
    """A context for connections to one service.

    Raises `CredentialError` if the directory has no authority, or TLS cannot use the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if trust.authorities() == 0:
        raise CredentialError(
            f"the directory {trust.ca_directory} has no certificate authority in a file named HASH.0",
            hint="Install the IGTF distribution, or run openssl rehash on the directory",
        )
    try:
        if trust.ca_directory is not None:
            context.load_verify_locations(capath=trust.ca_directory)
        if trust.ca_file is not None:
            context.load_verify_locations(cafile=trust.ca_file)
        if trust.ca_directory is None and trust.ca_file is None:
            context.set_default_verify_paths()
    except OSError as error:
        raise CredentialError(
            f"cannot use the certificate authorities in {trust.ca_file}: {error.strerror or error}",
            hint="Check ca_file in [credentials]",
        ) from error
    if credentials is not None:
        _add_certificate(context, credentials)
    return context


def verified_chain(connection: Any) -> list[x509.Certificate]:
    """The chain that the handshake verified, from the server's certificate to the trusted one.

    `connection` is a TLS object of `ssl`, or the object inside it, which httpcore gives: Python 3.11 has the chain
    there.
    """
    below = getattr(connection, "_sslobj", connection)
    return [
        x509.load_der_x509_certificate(certificate.public_bytes(_DER)) for certificate in below.get_verified_chain()
    ]


def _add_certificate(context: ssl.SSLContext, credentials: ClientCredentials) -> None:
    """Make `context` send our certificate, from the checked bytes in memory; its file is not read again."""
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            stream.write(credentials.pem())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise CredentialError(
            f"TLS cannot use the certificate {credentials.certificate_file}: {error.reason}"
        ) from error
    finally:
        os.close(descriptor)

"""TLS contexts of our own: 1.2 or later, the server always verified and its name checked, our certificate shown.

Building a context is slow, so `publisher.transport` builds one for each service and keeps it. Certificate authorities
come from a directory in the hashed form of grid sites, where only files named HASH.N count, or from one file.
Revocation lists in that directory (HASH.rN) are honoured; an authority that has none there is trusted without.
"""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Literal

import msgspec

from publisher.credentials import ClientCredentials
from publisher.errors import CredentialError

Revocation = Literal["chain", "leaf", "none"]
"""What is looked up in revocation lists: every certificate of the server's chain, its own only, or nothing."""

LESS_STRICT: dict[Revocation, Revocation] = {"chain": "leaf", "leaf": "none"}
"""What to fall back to where a list is missing, and only then: OpenSSL cannot be told to skip just the missing ones."""

LIST_IS_MISSING = 3
"""OpenSSL's verification result X509_V_ERR_UNABLE_TO_GET_CRL."""

_FLAGS = {
    "chain": ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN,
    "leaf": ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF,
    "none": ssl.VerifyFlags.VERIFY_DEFAULT,
}
_AUTHORITY_FILE = re.compile(r"[0-9a-f]{8}\.\d+")
_REVOCATION_FILE = re.compile(r"[0-9a-f]{8}\.r\d+")


class Trust(msgspec.Struct, frozen=True):
    """Whom to trust: a hashed directory, a file, both, or (neither given) the authorities of the system."""

    ca_directory: Path | None = None
    ca_file: Path | None = None

    def strictest_revocation(self) -> Revocation:
        """How much to look up at first: nothing where no revocation list is installed."""
        return "chain" if self._names(_REVOCATION_FILE) else "none"

    def authorities(self) -> int | None:
        """Files of authorities in the directory; None where there is none configured."""
        return None if self.ca_directory is None else len(self._names(_AUTHORITY_FILE))

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        if self.ca_directory is None:
            return []
        try:
            return [name for name in os.listdir(self.ca_directory) if pattern.fullmatch(name)]  # noqa: PTH208 - thousands
        except OSError as error:
            raise CredentialError(
                f"cannot read the directory of certificate authorities {self.ca_directory}: {error.strerror}",
                hint="Check ca_directory in [credentials]",
            ) from error


def make_context(trust: Trust, credentials: ClientCredentials | None, revocation: Revocation) -> ssl.SSLContext:
    """A context for connections to one service.

    Raises `CredentialError` where there is no authority to trust, and where TLS cannot use the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= _FLAGS[revocation]
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
        _show(context, credentials)
    return context


def _show(context: ssl.SSLContext, credentials: ClientCredentials) -> None:
    """Let `context` show our certificate: the very bytes that were checked, through memory and never a file again."""
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

"""The context that every target gets besides its own settings, and the credentials, which it loads when it first
needs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from publisher.config import schema
from publisher.errors import CredentialError
from publisher.security.authorisation import (
    Authorisation,
    AuthorisedClient,
    ClientSecret,
    FileAuthorisation,
    HeaderSpelling,
    TokenAuthorisation,
    TokenService,
)
from publisher.security.credentials import ClientCredentials, load_credentials
from publisher.security.exchange import USUAL_TIMING, Timing
from publisher.security.http import HttpClient
from publisher.security.sign import Signer, load_recipient
from publisher.security.tls import Trust


class TargetContext(msgspec.Struct, frozen=True):
    """The common credentials of the configuration, the clock (epoch seconds), whether the program is interrupted, and
    how the time of an exchange is measured. `refusals`: what all targets of one run know to be refused, by its name at
    the service (SGAS: a machine), with the answer. `tokens`: what gives them the tokens of a client, so that workers
    share one token and renew it once."""

    credentials: schema.Credentials = schema.Credentials()
    clock: Callable[[], float] = time.time
    stopping: Callable[[], bool] = lambda: False
    timing: Timing = USUAL_TIMING
    refusals: dict[str, str] = msgspec.field(default_factory=dict)
    tokens: dict[ClientSecret, TokenService] = msgspec.field(default_factory=dict)


class Identity:
    """The certificate of one target, loaded and checked when first needed, discarded by `forget`.

    A target's own settings take precedence over the common ones: see `publisher.config.operation.Credentials`.
    """

    def __init__(self, own: schema.Credentials | None, context: TargetContext) -> None:
        given = context.credentials.of_target(own)
        self._given = given
        self._certificate, self._key = given.certificate, given.key
        self.trust = Trust(ca_directory=given.ca_directory, ca_file=given.ca_file)
        self.clock = context.clock
        self._stopping, self._timing, self._tokens = context.stopping, context.timing, context.tokens
        self._loaded: ClientCredentials | None = None
        self._signer: Signer | None = None

    def optional(self) -> ClientCredentials | None:
        """The credentials, or None if none are configured. Raises `CredentialError`."""
        if self._certificate is None or self._key is None:
            return None
        if self._loaded is None:
            self._loaded = load_credentials(self._certificate, self._key, now_s=self.clock())
        return self._loaded

    def required(self) -> ClientCredentials:
        """The credentials. Raises `CredentialError`, also if none are configured."""
        credentials = self.optional()
        if credentials is None:
            raise CredentialError(
                "no certificate is configured", hint="Set certificate and key in [credentials] of publisher.toml"
            )
        return credentials

    def signer(self, encrypt_to: Path | None = None) -> Signer:
        """The signer with these credentials. Raises `CredentialError`."""
        if self._signer is None:
            recipient = None if encrypt_to is None else load_recipient(encrypt_to, now_s=self.clock())
            self._signer = Signer(self.required(), recipient=recipient, clock=self.clock)
        return self._signer

    def client(self, url: str, *, timeout_s: float, proxy: str | None) -> HttpClient:
        """A client for one service that uses the certificate, and no token. Raises `ConfigError`."""
        return HttpClient(url, credentials=self.optional, **self._transport(timeout_s, proxy))

    def authorised_client(self, url: str, *, timeout_s: float, proxy: str | None) -> AuthorisedClient:
        """A client for the service at `url` that uses the certificate and sends the token. Raises `ConfigError`."""
        authorisation = self.authorisation(timeout_s=timeout_s, proxy=proxy)
        return AuthorisedClient(url, authorisation, credentials=self.optional, **self._transport(timeout_s, proxy))

    @property
    def has_token(self) -> bool:
        """Whether a token is configured."""
        return self._given.has_token

    def authorisation(self, *, timeout_s: float, proxy: str | None) -> Authorisation | None:
        """Where the header with the token comes from; None: none is configured."""
        given = self._given
        spelling = HeaderSpelling(given.token_header, given.scheme)
        if given.token_file is not None:
            return FileAuthorisation(given.token_file, spelling)
        if given.token_url is None or given.client_id is None or given.client_secret_file is None:
            return None
        in_body = given.client_auth == "post"
        client = ClientSecret(given.token_url, given.client_id, given.client_secret_file, given.scope, in_body)

        def connected(url: str) -> HttpClient:
            # Without our certificate: the provider knows the client by its secret.
            return HttpClient(url, credentials=lambda: None, **self._transport(timeout_s, proxy))

        service = self._tokens.setdefault(client, TokenService(client, connected, self.clock))
        return TokenAuthorisation(service, spelling)

    def _transport(self, timeout_s: float, proxy: str | None) -> dict[str, Any]:
        return {
            "trust": self.trust,
            "timeout_s": timeout_s,
            "proxy": proxy,
            "stopping": self._stopping,
            "timing": self._timing,
        }

    def has_expired(self) -> bool:
        """Whether the certificate has expired since it was loaded: it may have been renewed on disk."""
        return self._loaded is not None and self._loaded.expires_s < self.clock()

    def forget(self) -> None:
        """Read the files again next time."""
        self._loaded = None
        self._signer = None


def largest_payload(limit_bytes: int, travelling_bytes: Callable[[int], int]) -> int:
    """The largest payload whose message fits `limit_bytes`. `travelling_bytes` bounds its size and never falls."""
    low, high = 0, limit_bytes
    while low < high:
        middle = (low + high + 1) // 2
        if travelling_bytes(middle) <= limit_bytes:
            low = middle
        else:
            high = middle - 1
    return low

"""Headers by which a service knows us: a secret from a file, or a token that an OpenID provider gives to a client
(client credentials, RFC 6749 4.4).

Promises kept here: a header goes only to the host of the client's URL, since a link or a redirect of a service may lead
elsewhere. A header that the service refuses is renewed once: its file may have changed, a token may have been revoked.
Workers of one target share their token, so that it is renewed once for all of them.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from publisher.errors import CredentialError
from publisher.security.credentials import read_secret
from publisher.security.exchange import Failure, FailureKind
from publisher.security.http import HttpClient, Parts, Reply, same_origin
from publisher.security.secret_text import without

_BEARER: Final = "Bearer"
_SECRET: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_BEARER_SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,16384}")
"""RFC 6750 2.1."""
_RENEWED_BEFORE_S: Final = 60.0
"""So long before its end a token is renewed, or at the half of a shorter life: a request may take so long."""
_MOST_ERROR_CHARACTERS: Final = 200
_LATEST_S: Final = 1 << 33
"""Later ends of a token, in epoch seconds, are no dates."""
_UNREADABLE: Final = (ValueError, RecursionError, msgspec.MsgspecError)
"""What is raised for JSON, base64, or numbers that cannot be read; also for JSON that is nested too deeply."""


class Header(msgspec.Struct, frozen=True):
    """A header with a secret. `secrets`: what nobody may read. `expires_s`: epoch seconds; None: unknown."""

    name: str
    value: str
    secrets: tuple[str, ...]
    expires_s: float | None = None

    def __repr__(self) -> str:
        return f"Header({self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name)]


class Authorisation(Protocol):
    """Where the header of a service comes from. `origin`: in words."""

    origin: str

    def header(self) -> Header | Failure:
        """The header as it is now. Raises `CredentialError`."""
        ...

    def renewed(self, refused: Header) -> Header | Failure | None:
        """Another one than the service refused; None: it is still the same. Raises `CredentialError`."""
        ...

    def forget(self) -> None:
        """Read the files again next time."""
        ...


class HeaderSpelling(msgspec.Struct, frozen=True):
    """How a secret is written into a header. `scheme`: the word before it; empty: none."""

    name: str = "Authorization"
    scheme: str = _BEARER

    def header(self, secret: str, expires_s: float | None) -> Header:
        """The header with this secret."""
        value = f"{self.scheme} {secret}" if self.scheme else secret
        return Header(self.name, value, (secret,), expires_s)

    def accepts(self, secret: str) -> bool:
        """Whether it can be written so."""
        return (_BEARER_SECRET if self.scheme == _BEARER else _SECRET).fullmatch(secret) is not None


class FileAuthorisation:
    """A header with the content of a file. Used by one thread at a time."""

    def __init__(self, file: Path, spelling: HeaderSpelling) -> None:
        self.origin = f"from {file}"
        self._file, self._spelling = file, spelling
        self._header: Header | None = None

    def header(self) -> Header:
        """See `Authorisation`."""
        if self._header is None:
            secret = read_secret(self._file, "token").decode("ascii", "replace").strip()
            if not self._spelling.accepts(secret):
                what = "a bearer token" if self._spelling.scheme == _BEARER else "a token of one ASCII word"
                raise CredentialError(f"the file {self._file} does not contain {what}")
            self._header = self._spelling.header(secret, expiry_s(secret))
        return self._header

    def renewed(self, refused: Header) -> Header | None:
        """See `Authorisation`."""
        self._header = None
        header = self.header()
        return None if header.value == refused.value else header

    def forget(self) -> None:
        """See `Authorisation`."""
        self._header = None


class ClientSecret(msgspec.Struct, frozen=True):
    """A client of an OpenID provider: where it gets its tokens, with which secret and for which scope. `in_body`: the
    secret is sent in the body (`client_secret_post`), not by HTTP Basic."""

    token_url: str
    client_id: str
    secret_file: Path
    scope: str | None = None
    in_body: bool = False


class _Token(msgspec.Struct, frozen=True):
    value: str
    renew_s: float
    expires_s: float | None

    def __repr__(self) -> str:
        return "_Token()"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class _TokenAnswer(msgspec.Struct):
    access_token: str
    token_type: str = _BEARER
    expires_in: float | str | None = None


class _Claims(msgspec.Struct):
    exp: float | None = None


class _ErrorAnswer(msgspec.Struct):
    error: str
    error_description: str = ""


class TokenService:
    """The tokens of one client, shared by all threads. `make_client` is called for each request."""

    def __init__(
        self, client: ClientSecret, make_client: Callable[[str], HttpClient], clock: Callable[[], float]
    ) -> None:
        self.client = client
        self._make_client, self._clock = make_client, clock
        self._lock = Lock()
        self._requests = 0
        self._token: _Token | None = None
        self._failure: Failure | None = None

    def token(self, refused: str = "") -> _Token | Failure:
        """A token that is valid for a while, and not the one that was `refused`. Raises `CredentialError`."""
        requests = self._requests
        with self._lock:
            kept = self._token if self._token is not None and self._token.value != refused else None
            if kept is not None and self._clock() < kept.renew_s:
                return kept
            # While we waited for another worker, it got no token: otherwise each in turn would wait for a dead service.
            failure = self._failure if self._requests != requests else None
            if failure is None:
                answer = self._request()
                self._requests += 1
                if not isinstance(answer, Failure):
                    self._token, self._failure = answer, None
                    return answer
                self._failure = failure = answer
            if kept is not None and (kept.expires_s is None or self._clock() < kept.expires_s):
                return kept  # about to expire, but still valid
            return failure

    def _request(self) -> _Token | Failure:
        client = self.client
        secret = read_secret(client.secret_file, "client secret").decode("utf-8", "replace").strip()
        if not _SECRET.fullmatch(secret):
            raise CredentialError(f"the file {client.secret_file} does not contain a client secret of one ASCII word")
        basic = b64encode(f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}".encode()).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": client.scope} if client.scope else {})
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if client.in_body:
            form |= {"client_id": client.client_id, "client_secret": secret}
        else:
            headers["Authorization"] = f"Basic {basic}"
        asked_s = self._clock()
        http = self._make_client(client.token_url)
        try:
            reply = http.request(
                "POST", client.token_url, content=urlencode(form).encode(), headers=headers, secrets=(secret, basic)
            )
        finally:
            http.close()
        return _token_of(reply, client.token_url, asked_s)


class TokenAuthorisation:
    """A header with a token of an OpenID provider."""

    def __init__(self, service: TokenService, spelling: HeaderSpelling) -> None:
        self.origin = f"of {service.client.token_url}"
        self._service, self._spelling = service, spelling

    def header(self) -> Header | Failure:
        """See `Authorisation`."""
        return self._header_of(self._service.token())

    def renewed(self, refused: Header) -> Header | Failure | None:
        """See `Authorisation`."""
        header = self._header_of(self._service.token(refused.secrets[0]))
        return None if isinstance(header, Header) and header.value == refused.value else header

    def forget(self) -> None:
        """Nothing: other workers use the token, and the file with the secret is read for each."""

    def _header_of(self, token: _Token | Failure) -> Header | Failure:
        return token if isinstance(token, Failure) else self._spelling.header(token.value, token.expires_s)


class AuthorisedClient(HttpClient):
    """Requests to one service, with a header that authorises them if there is one."""

    def __init__(self, url: str, authorisation: Authorisation | None, **transport: Any) -> None:
        """`transport`: see `HttpClient`. Raises `ConfigError` as it does."""
        super().__init__(url, **transport)
        self._url, self._authorisation = url, authorisation

    def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | Parts = b"",
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
    ) -> Reply | Failure:
        """See `HttpClient`. Nothing is sent to another host, or without a header."""
        if self._authorisation is None:
            return super().request(method, url, content=content, headers=headers, secrets=secrets)
        if not same_origin(url, self._url):
            return Failure("elsewhere", f"{url} is on another host than {self._url}", sent=False)
        header = self._authorisation.header()
        if isinstance(header, Failure):
            return header

        def attempt(header: Header) -> Reply | Failure:
            sent = {**(headers or {}), header.name: header.value}
            hidden = (*secrets, *header.secrets)
            return super(AuthorisedClient, self).request(method, url, content=content, headers=sent, secrets=hidden)

        reply = attempt(header)
        if not isinstance(reply, Reply) or reply.status != 401:
            return reply
        renewed = self._authorisation.renewed(header)
        if renewed is None:
            return reply
        return renewed if isinstance(renewed, Failure) else attempt(renewed)

    def close(self) -> None:
        """Close the connection; files are read again."""
        super().close()
        if self._authorisation is not None:
            self._authorisation.forget()


def expiry_s(token: str) -> float | None:
    """When a token ends, epoch seconds, if it is a JSON web token (RFC 7519) that says so."""
    try:
        claims = token.split(".")[1]
        expires = msgspec.json.decode(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)), type=_Claims).exp
    except (IndexError, *_UNREADABLE):
        return None
    return expires if expires is not None and 0 <= expires < _LATEST_S else None


def _token_of(reply: Reply | Failure, url: str, asked_s: float) -> _Token | Failure:
    where = f"the token service {url}"
    if isinstance(reply, Failure):
        kind: FailureKind = "stopped" if reply.kind == "stopped" else "no-token"
        return Failure(kind, f"{where}: {reply.message}", sent=False)
    if reply.status != 200:
        # 4xx: our registration is wrong, and people must look at it; 408 and 429 pass, as an outage does.
        refused = reply.status // 100 in {3, 4} and reply.status not in {408, 429}
        kind = "token-refused" if refused else "no-token"
        return Failure(kind, f"{where} gives no token: {_said(reply)}", sent=False)
    token = _token_in(reply.body, asked_s)
    return Failure("no-token", f"{where} {token}", sent=False) if isinstance(token, str) else token


def _token_in(body: bytes, asked_s: float) -> _Token | str:
    """The token of an answer to a request at `asked_s`, or what is wrong with it."""
    try:
        answer = msgspec.json.decode(body, type=_TokenAnswer)
        given = answer.expires_in
        life_s = None if given in {None, ""} else float(given or 0)
    except _UNREADABLE:
        return "answered HTTP 200 without a token"
    if not _BEARER_SECRET.fullmatch(answer.access_token) or answer.token_type.lower() != _BEARER.lower():
        return "gave a token that is not a bearer token"
    expires_s = expiry_s(answer.access_token) if life_s is None else asked_s + life_s
    if expires_s is None or not expires_s < _LATEST_S:
        return _Token(answer.access_token, float("inf"), None)  # used until the service refuses it
    if expires_s <= asked_s:
        return "gave a token that has expired. Check the clock of this host"
    renew_s = expires_s - min(_RENEWED_BEFORE_S, (expires_s - asked_s) / 2)
    return _Token(answer.access_token, renew_s, expires_s)


def _said(reply: Reply) -> str:
    """The status, and the error as RFC 6749 5.2 has it: other bodies are not shown."""
    try:
        answer = msgspec.json.decode(reply.body, type=_ErrorAnswer)
    except _UNREADABLE:
        return f"HTTP {reply.status}"
    text = f"{answer.error}: {answer.error_description}" if answer.error_description else answer.error
    text = " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())
    return f"HTTP {reply.status}: {without(text, reply.secrets)[:_MOST_ERROR_CHARACTERS]}"

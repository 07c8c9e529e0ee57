"""One exchange with a service: its deadline and progress, and what went wrong where there is no answer.

A `Failure` says whether the service may have processed the request: what was certainly not sent waits, what may have
arrived is sent again with the same ids.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Literal, TypeVar

import httpcore
import msgspec

from publisher.security.revocation import RevocationError

FailureKind = Literal[
    "name", "closed", "untrusted", "client-refused", "tls", "timeout", "write-timeout", "cut", "no-http", "too-large",
    "proxy", "stopped", "no-token", "token-refused", "elsewhere",
]  # fmt: skip

_E = TypeVar("_E", bound=BaseException)
_HINTS: dict[FailureKind, str] = {
    "name": "Check the host name in the URL and the name service of this host",
    "closed": "Check host and port in the URL, the firewall, and that the service runs",
    "untrusted": "Check ca_directory or ca_file, and that the URL has the name in the server's certificate",
    "client-refused": "Check that the service trusts the authority of our certificate and knows its name",
    "timeout": "It is tried again; a longer timeout can be set for the target",
    "write-timeout": "It is tried again; a longer timeout can be set for the target",
    "proxy": "Check the proxy setting of the target",
    "stopped": "The next run sends it again",
    "no-token": "Check token_url, and whether the token service works; it is tried again",
    "token-refused": "Check token_url, client_id, client_secret_file, and scope",
    "elsewhere": "Ask the operators of the service: credentials are sent only to the host of the target's URL",
}


class Timing(msgspec.Struct, frozen=True):
    """How the time of an exchange is measured.

    `clock`: seconds, monotonic. `check_every_s`: how often the deadline and a request to stop are checked while waiting
    for an answer; `grace_s`: how long an answer may take after a request to stop.
    """

    clock: Callable[[], float] = time.monotonic
    check_every_s: float = 0.25
    grace_s: float = 3.0


USUAL_TIMING = Timing()


class Failure(msgspec.Struct, frozen=True):
    """No answer. `sent`: the service may have received the whole request, so its outcome is unknown."""

    kind: FailureKind
    message: str
    sent: bool

    @property
    def hint(self) -> str:
        """What to do now."""
        return _HINTS.get(self.kind, "")


class AnswerTooLargeError(httpcore.NetworkError):
    """The answer has more bytes than allowed."""


class Exchange:
    """The progress of the current exchange, and its deadline."""

    def __init__(self, stopping: Callable[[], bool], timing: Timing) -> None:
        self._stopping = stopping
        self._timing = timing
        self._stopped_at: float | None = None
        self.begin(0.0)

    def begin(self, timeout_s: float) -> None:
        self.deadline = self._timing.clock() + timeout_s
        self.reused = True
        self.written = False
        self.read_bytes = 0

    @property
    def check_every_s(self) -> float:
        """How long to wait for a part of the answer before the next check."""
        return self._timing.check_every_s

    @property
    def stopped(self) -> bool:
        """Whether the program was asked to stop during the exchange."""
        return self._stopped_at is not None

    def remaining_s(self, limit_s: float | None, timed_out: type[httpcore.TimeoutException]) -> float:
        now = self._timing.clock()
        if self._stopped_at is None and self._stopping():
            self._stopped_at = now
        ends = (
            self.deadline if self._stopped_at is None else min(self.deadline, self._stopped_at + self._timing.grace_s)
        )
        remaining = ends - now
        if remaining <= 0:
            raise timed_out("the exchange took too long")
        return remaining if limit_s is None else min(limit_s, remaining)


class ServicePlace(msgspec.Struct, frozen=True):
    """The other side of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host} port {self.port}"


def classified(error: Exception, progress: Exchange, peer: ServicePlace, *, plain: bool) -> Failure:
    """The failure of an exchange that ended in an error of httpcore.

    `plain`: the URL begins with http://; a service that expects TLS gives an answer to this that cannot be read.
    """
    hint = ". The URL begins with http://: if the service uses TLS, write https://" if plain else ""
    if isinstance(error, httpcore.TimeoutException) and progress.stopped:
        return Failure("stopped", "the program was stopped before the answer came", progress.written)
    unconnected = _handshake_failure(error) or _connect_failure(error, peer)
    if unconnected is not None:
        return unconnected
    sent = progress.written
    if isinstance(error, AnswerTooLargeError):
        return Failure("too-large", str(error), sent)
    if isinstance(error, httpcore.TimeoutException):
        what = "no complete answer" if sent else "the request could not be written"
        return Failure("timeout" if sent else "write-timeout", f"{what} within the time allowed", sent)
    if isinstance(error, httpcore.ProtocolError) and progress.read_bytes:
        return Failure("no-http", f"the answer is not complete HTTP: {error}{hint}", sent)
    return Failure("cut", f"the connection was cut before the answer was complete{hint}", sent)


def _handshake_failure(error: Exception) -> Failure | None:
    """With TLS 1.3 a server refuses our certificate only after it began to read; it has not looked at the request."""
    revocation = _cause(error, RevocationError)
    if revocation is not None:
        return Failure("untrusted", f"the server's certificate is not trusted: {revocation}", sent=False)
    cause = _cause(error, ssl.SSLError)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Failure("untrusted", f"the server's certificate is not trusted: {cause.verify_message}", sent=False)
    if cause is not None and _is_about_our_certificate(cause.reason):
        other = ", or has no TLS version or cipher in common with us" if "HANDSHAKE" in (cause.reason or "") else ""
        return Failure("client-refused", f"the server refuses our certificate{other} ({cause.reason})", sent=False)
    if cause is not None and (cause.reason or "").endswith(("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")):
        what = f"the server has no TLS version or cipher in common with us ({cause.reason})"
        return Failure("tls", what, sent=False)
    if cause is not None and isinstance(error, httpcore.ConnectError):
        return Failure("tls", f"the TLS handshake failed: {cause.reason or cause}", sent=False)
    return None


def _connect_failure(error: Exception, peer: ServicePlace) -> Failure | None:
    if isinstance(error, httpcore.ProxyError):
        return Failure("proxy", f"the proxy refused: {error}", sent=False)
    if isinstance(error, httpcore.ConnectTimeout):
        return Failure("timeout", f"no connection to {peer} within the time allowed", sent=False)
    if not isinstance(error, httpcore.ConnectError):
        return None
    cause = _cause(error, OSError)
    text = (cause.strerror if cause is not None else None) or str(error) or "no connection"
    if isinstance(cause, socket.gaierror):
        return Failure("name", f"the name {peer.host} does not resolve: {text}", sent=False)
    return Failure("closed", f"cannot connect to {peer}: {text}", sent=False)


def _is_about_our_certificate(reason: str | None) -> bool:
    words = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")
    return reason is not None and "ALERT" in reason and any(word in reason for word in words)


def _cause(error: BaseException, kind: type[_E]) -> _E | None:
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, kind):
            return current
        current = current.__cause__ or current.__context__  # httpcore raises anew "from None"
    return None

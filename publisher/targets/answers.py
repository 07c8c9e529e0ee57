"""Interpretation of answers that mean the same at all HTTP services, and findings that the checks of targets share.

A target first interprets the statuses that have a special meaning at its service; the rest comes here. Findings:
certificate, connection, clock, and where a name must be registered.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from email.utils import parsedate_to_datetime
from pathlib import Path

from publisher.errors import CredentialError
from publisher.finding import Finding, Level
from publisher.security.authorisation import Authorisation
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.security.secret_text import LONGEST_SPELLING, without
from publisher.security.tls import make_context
from publisher.targets.base import Outcome, Oversized, Refused, Throttled, Transient, Unauthorised, Unknown
from publisher.targets.identity import Identity
from publisher.text import iso

_MOST_ANSWER_CHARACTERS = 400
_MOST_READ_BYTES = 16384
_LONGEST_WAIT_S = 86400.0
REGISTER = "The service must know our certificate: `usage-publisher check` shows its name"
REFUSED = "The service must accept our token: `usage-publisher check` tests it"
_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate", "compress", "br", "zstd"})
_TAG = re.compile(r"<(?:style|script|head)\b.*?</(?:style|script|head)>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def of_failure(failure: Failure) -> Outcome:
    """The outcome without an answer: unknown if the request may have arrived, otherwise it waits."""
    answer = f"{failure.message}. {failure.hint}" if failure.hint else failure.message
    if failure.kind in {"client-refused", "token-refused"}:
        return Unauthorised(answer)
    if failure.kind == "elsewhere":
        return Unauthorised(answer, misdirected=True)
    if failure.sent:
        return Unknown(answer, timed_out=failure.kind == "timeout")
    return Transient(answer, timed_out=failure.kind == "write-timeout")


def of_status(reply: Reply, now_s: float, *, hint: str = REGISTER) -> Outcome:
    """The general meaning of a status other than success. `hint`: what to do if the service refuses our identity."""
    answer = describe(reply)
    retry_after_s = wait_s(reply, now_s)
    outcome: Outcome = Refused(answer, certain=False)
    if reply.status == 429 or (reply.status == 503 and retry_after_s is not None):
        outcome = Throttled(answer, retry_after_s)
    elif reply.status in {401, 403, 407} or refuses_certificate(reply):
        outcome = Unauthorised(f"{answer.rstrip('.')}. {hint}")
    elif reply.status in {404, 405, 410} or reply.status // 100 == 3:
        outcome = Unauthorised(f"{answer}. Check the URL of this target", misdirected=True)
    elif reply.status == 413:
        outcome = Oversized(answer)
    elif reply.status in {502, 504}:  # of a proxy: the service behind it may have accepted the message
        outcome = Unknown(answer, timed_out=reply.status == 504)
    elif reply.status == 408 or reply.status // 100 == 5:
        outcome = Transient(answer)
    elif reply.status // 100 == 2:
        outcome = Unknown(answer)
    return outcome


def refuses_certificate(reply: Reply) -> bool:
    """Whether this is nginx's 400 for a request without a client certificate, or with one that it does not trust."""
    return reply.status == 400 and b"SSL certificate" in reply.body


def describe(reply: Reply) -> str:
    """Status and text of an answer on one line: printable, without mark-up, shortened, without its secrets."""
    encoding = reply.headers.get("content-encoding", "").strip().lower()
    if encoding in _COMPRESSED:  # no request allows it
        return f"HTTP {reply.status}: the answer is compressed ({encoding}), which it may not be"
    text = reply.body[:_MOST_READ_BYTES].decode("utf-8", "replace")
    if text.lstrip().startswith("<"):
        text = _TAG.sub(" ", text)
    text = html.unescape(text)
    if len(reply.body) > _MOST_READ_BYTES and any(reply.secrets):
        text = text[: -LONGEST_SPELLING * max(map(len, reply.secrets))]  # the text may end with a part of a secret
    text = " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())
    text = without(text, reply.secrets)  # after removal of mark-up, which may hide it
    text = re.sub(rf"^{reply.status}\b\W*", "", text)  # many pages begin with the status
    if len(text) > _MOST_ANSWER_CHARACTERS:
        text = text[:_MOST_ANSWER_CHARACTERS] + "…"
    if reply.status // 100 == 3 and "location" in reply.headers:
        text = f"redirects to {without(reply.headers['location'], reply.secrets)[:200]!a}, which is not followed"
    return f"HTTP {reply.status}: {text}" if text else f"HTTP {reply.status}"


def wait_s(reply: Reply, now_s: float) -> float | None:
    """Seconds that Retry-After asks for, a day at most; None if it is absent or invalid."""
    value = reply.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), _LONGEST_WAIT_S)
    date_s = _date_s(value)
    return None if date_s is None else min(max(date_s - now_s, 0.0), _LONGEST_WAIT_S)


def clock_offset_s(reply: Reply, now_s: float) -> float | None:
    """How far our clock is ahead of the service's (its Date header), in seconds; None without a valid header."""
    date_s = _date_s(reply.headers.get("date", ""))
    return None if date_s is None else now_s - date_s


def _date_s(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None


_YELLOW_DAYS, _RED_DAYS = 30, 7
_YELLOW_OFFSET_S, _RED_OFFSET_S = 30.0, 300.0


def certificate(name: str, identity: Identity, *, sends_token: bool = False) -> list[Finding]:
    """Check whether the certificate can be used, and for how long; and whether an authority is trusted."""
    subject = f"{name}: certificate"
    try:
        make_context(identity.trust, None)
        credentials = identity.optional()
    except CredentialError as error:
        return [Finding(subject, "red", error.message, error.hint)]
    if credentials is None and sends_token:
        return [Finding(subject, "green", "none is configured; a token is sent")]
    if credentials is None:
        return [Finding(subject, "yellow", "none is configured", "Most services ask for one: see [credentials]")]
    days = credentials.days_left(identity.clock())
    level = _level(days < _YELLOW_DAYS, days < _RED_DAYS)
    return [Finding(subject, level, f"{days} days left", "Renew it" if level != "green" else "")]


def token(name: str, authorisation: Authorisation | None, now_s: float) -> list[Finding]:
    """Check whether there is a token to send, and for how long it is valid."""
    if authorisation is None:
        return []
    subject = f"{name}: token"
    try:
        header = authorisation.header()
    except CredentialError as error:
        return [Finding(subject, "red", error.message, error.hint)]
    if isinstance(header, Failure):
        return [Finding(subject, "red", header.message, header.hint)]
    what = f"{authorisation.origin}, in the header {header.name}"
    if header.expires_s is None:
        return [Finding(subject, "green", what)]
    if header.expires_s <= now_s:
        return [Finding(subject, "red", f"{what}: it expired at {iso(int(header.expires_s))}", "Get a new token")]
    return [Finding(subject, "green", f"{what}; valid until {iso(int(header.expires_s))}")]


def encryption(name: str, identity: Identity, encrypt_to: Path | None) -> list[Finding]:
    """Check whether messages can be encrypted, if they are to be."""
    if encrypt_to is None:
        return []
    try:
        identity.signer(encrypt_to)
    except CredentialError as error:
        return [Finding(f"{name}: encrypt_to", "red", error.message, error.hint)]
    return [Finding(f"{name}: encrypt_to", "green", f"messages are encrypted to {encrypt_to}")]


def reached(name: str, url: str, reply: Reply | Failure, now_s: float, *, expected: AbstractSet[int]) -> list[Finding]:
    """Check whether the service answered as expected, and whether its clock and ours agree."""
    findings = answered(f"{name}: reached", url, reply, expected=expected, means="answers")
    offset_s = clock_offset_s(reply, now_s) if isinstance(reply, Reply) else None
    if offset_s is not None:
        level = _level(abs(offset_s) > _YELLOW_OFFSET_S, abs(offset_s) > _RED_OFFSET_S)
        hint = "Synchronise the clock of this host (chrony, ntpd)" if level != "green" else ""
        findings.append(Finding(f"{name}: clock", level, f"{offset_s:+.0f} s against the service's Date header", hint))
    return findings


def answered(
    subject: str, url: str, reply: Reply | Failure, *, expected: AbstractSet[int], means: str
) -> list[Finding]:
    """Green for an expected status, yellow for another one, red for no answer, a missing address, or a refusal."""
    if isinstance(reply, Failure):
        return [Finding(subject, "red", f"{url}: {reply.message}", reply.hint)]
    if reply.status in expected:
        return [Finding(subject, "green", f"{url} {means}")]
    if reply.status in {404, 410}:
        return [Finding(subject, "red", f"{url}: {describe(reply)}", "Check the URL: the service has no such address")]
    refused = reply.status in {400, 401, 403, 407}
    hint = (
        "Check that the service trusts our certificate and knows its name"
        if refused and not reply.secrets
        else "Check that the token is one of this service, has the right scope, and is sent in the right header"
        if refused
        else "Check the URL, and whether the service works"
    )
    return [Finding(subject, "red" if refused else "yellow", f"{url}: {describe(reply)}", hint)]


def registration(name: str, identity: Identity, where: str, level: Level = "green") -> Finding:
    """The name of the certificate in both spellings, and where it must be registered."""
    credentials = identity.optional()
    names = "no certificate" if credentials is None else f"{credentials.slash_dn} or {credentials.rfc2253_dn}"
    return Finding(f"{name}: name", level, names, where)


def is_red(findings: Sequence[Finding]) -> bool:
    """Whether further checks are pointless."""
    return any(finding.level == "red" for finding in findings)


def _level(yellow: bool, red: bool) -> Level:
    return "red" if red else "yellow" if yellow else "green"

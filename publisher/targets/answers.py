"""How answers are judged where all HTTP services mean the same by them.

A target judges first what its own service means by a status; the rest comes here.
"""

from __future__ import annotations

import html
import re
from email.utils import parsedate_to_datetime

from publisher.targets.base import (
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from publisher.transport import Failure, Reply

_MOST_ANSWER_CHARACTERS = 400
_MOST_READ_BYTES = 16384
_LONGEST_SPELLING = 8
"""Characters that one letter may be spelled with: `&#x0074;`."""
_LONGEST_WAIT_S = 86400.0
_REGISTER = "The service must know our certificate: `usage-publisher check` tells its name"
_TAG = re.compile(r"<(?:style|script|head)\b.*?</(?:style|script|head)>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def of_failure(failure: Failure) -> Outcome:
    """Where there was no answer: what may have arrived is unknown, the rest waits."""
    answer = f"{failure.message}. {failure.hint}" if failure.hint else failure.message
    if failure.kind == "client-refused":
        return Unauthorised(answer)
    return Unknown(answer) if failure.sent else Transient(answer)


def of_status(reply: Reply, now_s: float, *, secret: str = "") -> Outcome:
    """The general meaning of a status other than success. `secret` is kept out of the answer."""
    answer = describe(reply, secret=secret)
    retry_after_s = wait_s(reply, now_s)
    outcome: Outcome = Refused(answer, certain=False)
    if reply.status == 429 or (reply.status == 503 and retry_after_s is not None):
        outcome = Throttled(answer, retry_after_s)
    elif reply.status in {401, 403, 407} or refuses_certificate(reply):
        outcome = Unauthorised(f"{answer.rstrip('.')}. {_REGISTER}")
    elif reply.status in {404, 405, 410} or reply.status // 100 == 3:
        outcome = Unauthorised(f"{answer}. Check the URL of this target", misdirected=True)
    elif reply.status == 413:
        outcome = Oversized(answer)
    elif reply.status == 408 or reply.status // 100 == 5:
        outcome = Transient(answer)
    elif reply.status // 100 == 2:
        outcome = Unknown(answer)
    return outcome


def refuses_certificate(reply: Reply) -> bool:
    """Whether this is the 400 with which nginx answers without a client certificate, or with one it does not trust."""
    return reply.status == 400 and b"SSL certificate" in reply.body


def describe(reply: Reply, *, secret: str = "") -> str:
    """Status and text of an answer on one line: printable, without mark-up, shortened, without `secret`."""
    text = reply.body[:_MOST_READ_BYTES].decode("utf-8", "replace")
    if text.lstrip().startswith("<"):
        text = _TAG.sub(" ", text)
    text = html.unescape(text)
    if len(reply.body) > _MOST_READ_BYTES and secret:
        text = text[: -_LONGEST_SPELLING * len(secret)]  # it may end in a part of the secret
    text = " ".join("".join(mark if mark.isprintable() else " " for mark in text).split())
    text = without(text, secret)  # as it is shown: before, it may be hidden in mark-up
    text = re.sub(rf"^{reply.status}\b\W*", "", text)  # many pages begin with it
    if len(text) > _MOST_ANSWER_CHARACTERS:
        text = text[:_MOST_ANSWER_CHARACTERS] + "…"
    if reply.status // 100 == 3 and "location" in reply.headers:
        text = f"redirects to {without(reply.headers['location'], secret)[:200]!a}, which is not followed"
    return f"HTTP {reply.status}: {text}" if text else f"HTTP {reply.status}"


def without(text: str, secret: str) -> str:
    """Text of an answer without the secret, also where letters of it are spelled as HTML, JSON, or a URL may."""
    if not secret:
        return text
    letters = (
        rf"(?:{re.escape(letter)}|&#0*{ord(letter)};?|&#x0*{ord(letter):x};?|\\u{ord(letter):04x}|%{ord(letter):02x})"
        for letter in secret
    )
    return re.sub(r"\s*".join(letters), "[token]", text, flags=re.IGNORECASE)


def wait_s(reply: Reply, now_s: float) -> float | None:
    """Seconds that Retry-After asks for, a day at most; None where it is absent or makes no sense."""
    value = reply.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), _LONGEST_WAIT_S)
    date_s = _date_s(value)
    return None if date_s is None else min(max(date_s - now_s, 0.0), _LONGEST_WAIT_S)


def clock_offset_s(reply: Reply, now_s: float) -> float | None:
    """How far our clock is ahead of the service's (its Date header), in seconds; None where it does not tell."""
    date_s = _date_s(reply.headers.get("date", ""))
    return None if date_s is None else now_s - date_s


def _date_s(value: str) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None

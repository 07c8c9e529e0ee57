"""Log-ins: a random cookie instead of the token, known here by its digest, until it ends or the token is taken away."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

import msgspec

from publisher.times import elapsed_s

MOST: Final = 10_000
"""More log-ins at a time make the oldest end."""


class _Session(msgspec.Struct, frozen=True):
    token_digest: str
    began: int


class Sessions:
    """The log-ins of one server; they end with it. `clock` gives epoch seconds. Safe in threads."""

    def __init__(self, lasting_s: float, clock: Callable[[], int]) -> None:
        self._lasting_s = int(lasting_s)
        self._clock = clock
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._lock = Lock()

    def begin(self, token_digest: str) -> str:
        """A new session for whoever has this token: the value of its cookie."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(cookie)] = _Session(token_digest, self._clock())
            while len(self._open) > MOST:
                self._open.popitem(last=False)
        return cookie

    def token_digest(self, cookie: str) -> str | None:
        """Whose session this is; None where there is none, or no longer."""
        with self._lock:
            session = self._open.get(_digest(cookie))
            age = elapsed_s(session.began, self._clock()) if session is not None else 0
            if age is None or age >= self._lasting_s:
                del self._open[_digest(cookie)]  # a clock that was ahead lets no session last for years
                return None
        return None if session is None else session.token_digest

    def end(self, cookie: str) -> None:
        """End a session, if there is one."""
        with self._lock:
            self._open.pop(_digest(cookie), None)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()

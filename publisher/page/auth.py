"""The token file, with users, one group each, and the roles of groups; and the sessions of users who are logged in.

Promise kept here: a user sees nothing of other users' jobs. The roles are those of the TORQUE accounting system of Sun
Yat-sen University: users see their own finished jobs, managers see the reports, administrators see everything. The file
has digests of tokens, never tokens. It is read again when it changes: a user who is removed from it has no access.

A session has a random cookie instead of the token, and is stored by the digest of the cookie. It ends after a time, or
when the token is removed from the file.
"""

from __future__ import annotations

import hashlib
import secrets
import tomllib
from collections import OrderedDict
from collections.abc import Callable
from glob import escape
from pathlib import Path
from threading import Lock
from typing import Annotated, Final

import msgspec

from publisher.errors import ConfigError
from publisher.report.view_kind import VIEW_KINDS, Role
from publisher.security.credentials import read_secret
from publisher.text import elapsed_s

ROLES: Final[dict[Role, str]] = {
    "user": "Sees reports of the user's own finished jobs only.",
    "manager": "Sees the state of publishing and the reports of the whole site, but no single jobs.",
    "admin": "Sees everything.",
}
STATUS: Final = "status"


class UserGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of users: its role, and which views of that role it may see; None: all of them."""

    role: Role
    views: tuple[str, ...] | None = None


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user: the group, the SHA-256 of the token, and the user name in the batch systems, if it differs."""

    group: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    owner: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: dict[str, UserGroup]
    users: dict[str, User]


class Person(msgspec.Struct, frozen=True):
    """A person with a token. `owner`: the pattern that the user of every run shown must match; None: any."""

    name: str
    group: str
    role: Role
    views: frozenset[str]
    owner: str | None

    def may(self, view: str) -> bool:
        """Whether the person may see this view."""
        return view in self.views


EVERYBODY: Final = Person(
    "", "", "admin", frozenset({STATUS, *(name for name, kind in VIEW_KINDS.items() if kind.roles)}), None
)
"""The person of every request if there is no token file: then only this host can connect."""


class People:
    """The token file. Raises `CredentialError` and `ConfigError` if it cannot be used: then nobody has access."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._people: dict[str, Person] = {}
        self._read()

    def by_token(self, token: str) -> tuple[str, Person] | None:
        """The digest and the person of a token; None if it is not known.

        The look-up is by digest, so that its time reveals nothing of the token.
        """
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        person = self.by_digest(digest)
        return None if person is None else (digest, person)

    def by_digest(self, digest: str) -> Person | None:
        """The person whose token has this digest; None if it is not in the file now."""
        self._read()
        return self._people.get(digest)

    def _read(self) -> None:
        try:
            file_status = self._file.stat()
            state = (file_status.st_mtime_ns, file_status.st_size, file_status.st_ino)
        except OSError:
            state = None
        if state is not None and state == self._seen:
            return
        self._people, self._seen = {}, None  # the old file is not valid any more, even if the new one fails
        self._people = _people(_parsed(read_secret(self._file, "token file"), self._file), self._file)
        self._seen = state


def _parsed(data: bytes, file: Path) -> _File:
    try:
        return msgspec.convert(tomllib.loads(data.decode("utf-8")), _File)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"is not TOML: {error}", file=file) from None
    except RecursionError:
        raise ConfigError("is nested too deeply", file=file) from None
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"cannot be used: {error}", file=file, hint="The documentation of the page shows a token file"
        ) from None


def _people(read: _File, file: Path) -> dict[str, Person]:
    people: dict[str, Person] = {}
    for name, user in read.users.items():
        group = read.groups.get(user.group)
        if group is None:
            known = ", ".join(read.groups) or "none"
            raise ConfigError(
                f"{user.group!r} is not a group; the groups are: {known}", file=file, key=f"users.{name}.group"
            )
        allowed = _allowed(group.role)
        views = allowed if group.views is None else frozenset(group.views)
        if not views <= allowed:
            wrong = ", ".join(sorted(views - allowed))
            raise ConfigError(
                f"{wrong}: the role {group.role} has only the views {', '.join(sorted(allowed))}",
                file=file, key=f"groups.{user.group}.views",
            )  # fmt: skip
        if user.sha256 in people:
            raise ConfigError(
                "another user has the same token", file=file, key=f"users.{name}.sha256", hint="Give each user a token"
            )
        owner = escape(user.owner or name) if group.role == "user" else None
        people[user.sha256] = Person(name, user.group, group.role, views, owner)
    return people


def _allowed(role: Role) -> frozenset[str]:
    views = frozenset(name for name, kind in VIEW_KINDS.items() if role in kind.roles)
    return views if role == "user" else views | {STATUS}


MOST: Final = 10_000
"""Sessions at a time; more end the oldest."""


class _PageSession(msgspec.Struct, frozen=True):
    token_digest: str
    began: int


class Sessions:
    """The sessions of one server; they end with it. `clock` returns epoch seconds. Thread-safe."""

    def __init__(self, lasting_s: float, clock: Callable[[], int], *, most: int = MOST) -> None:
        self._lasting_s = lasting_s
        self._most = most
        self._clock = clock
        self._open: OrderedDict[str, _PageSession] = OrderedDict()
        self._lock = Lock()

    def begin(self, token_digest: str) -> str:
        """Begin a session for the token of this digest, and return the value of its cookie."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(cookie)] = _PageSession(token_digest, self._clock())
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return cookie

    def token_digest(self, cookie: str) -> str | None:
        """The digest of the token that a session was begun with; None if the session is not known or has ended."""
        with self._lock:
            session = self._open.get(_digest(cookie))
            if session is None:
                return None
            age = elapsed_s(session.began, self._clock())
            if age is None or age >= self._lasting_s:
                del self._open[_digest(cookie)]  # also if it began at a later time than now: a clock was wrong
                return None
        return session.token_digest

    def end(self, cookie: str) -> None:
        """End a session, if it is known."""
        with self._lock:
            self._open.pop(_digest(cookie), None)


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()

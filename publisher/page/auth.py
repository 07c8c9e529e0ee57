"""Who may see what: the token file, with users, one group each, and the groups' roles.

Promise kept here: a user sees nothing of others' jobs. The roles are those of the TORQUE accounting system of Sun
Yat-sen University: users, who see their own finished jobs; managers, who see the reports; administrators, who see all.
The file holds digests of tokens, never tokens, and is read anew when it changes: who is taken out of it is out.

Log-ins: a random cookie instead of the token, known here by its digest, until it ends or the token is taken away.
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
from typing import Annotated, Final, Literal

import msgspec

from publisher.errors import ConfigError
from publisher.report.report import VIEWS
from publisher.security.credentials import read_secret
from publisher.text import elapsed_s

Role = Literal["user", "manager", "admin"]
ROLES: Final[dict[Role, str]] = {
    "user": "Sees reports of the user's own finished jobs, and nothing of others'.",
    "manager": "Sees the reports of the whole site and the publishing status, but no single jobs.",
    "admin": "Sees everything.",
}
_OF_USERS: Final = frozenset({"utilization", "totals", "waiting", "charges", "paths", "job"})
_OF_MANAGERS: Final = frozenset({"utilization", "totals", "occupation", "waiting", "scarce", "charges", "load"})
STATUS: Final = "status"


class UserGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of users: its role, and which of that role's views its menu has; None: all of them."""

    role: Role
    views: tuple[str, ...] | None = None


class User(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user: the one group, the SHA-256 of the token, and the owner's name in the batch systems, if another."""

    group: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    owner: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: dict[str, UserGroup]
    users: dict[str, User]


class Person(msgspec.Struct, frozen=True):
    """Somebody who looks: `owner` is the pattern that all runs shown must match; None: all may be seen."""

    name: str
    group: str
    role: Role
    views: frozenset[str]
    owner: str | None

    def may(self, view: str) -> bool:
        """Whether this view is for this person."""
        return view in self.views


EVERYBODY: Final = Person("", "", "admin", frozenset({*VIEWS, STATUS}), None)
"""Who looks where there is no token file: on the loopback interface, all of them."""


class People:
    """The token file. Raises `CredentialError` and `ConfigError` where it cannot be used: then nobody is let in."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._people: dict[str, Person] = {}
        self._read()

    def by_token(self, token: str) -> tuple[str, Person] | None:
        """The digest and the person of a token. It is looked up by digest: time tells nothing of the token."""
        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        person = self.by_digest(digest)
        return None if person is None else (digest, person)

    def by_digest(self, digest: str) -> Person | None:
        """Who has the token of this digest now."""
        self._read()
        return self._people.get(digest)

    def _read(self) -> None:
        try:
            found = self._file.stat()
            state = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            state = None
        if state is not None and state == self._seen:
            return
        self._people, self._seen = {}, None  # whatever goes wrong now: the old file no longer holds
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
        raise ConfigError(f"cannot be used: {error}", file=file, hint="See the page about `serve`") from None


def _people(read: _File, file: Path) -> dict[str, Person]:
    people: dict[str, Person] = {}
    for name, user in read.users.items():
        group = read.groups.get(user.group)
        if group is None:
            there = ", ".join(read.groups) or "none"
            raise ConfigError(f"is {user.group!r}; there are: {there}", file=file, key=f"users.{name}.group")
        allowed = _allowed(group.role)
        views = allowed if group.views is None else frozenset(group.views)
        if not views <= allowed:
            wrong = ", ".join(sorted(views - allowed))
            raise ConfigError(
                f"{wrong}: no view of the role {group.role}, which has: {', '.join(sorted(allowed))}",
                file=file, key=f"groups.{user.group}.views",
            )  # fmt: skip
        if user.sha256 in people:
            raise ConfigError("two users have the same token", file=file, key=f"users.{name}.sha256")
        owner = escape(user.owner or name) if group.role == "user" else None
        people[user.sha256] = Person(name, user.group, group.role, views, owner)
    return people


def _allowed(role: Role) -> frozenset[str]:
    if role == "admin":
        return EVERYBODY.views
    return _OF_MANAGERS | {STATUS} if role == "manager" else _OF_USERS


MOST: Final = 10_000
"""More log-ins at a time make the oldest end."""


class _Session(msgspec.Struct, frozen=True):
    token_digest: str
    began: int


class Sessions:
    """The log-ins of one server; they end with it. `clock` gives epoch seconds. Safe in threads."""

    def __init__(self, lasting_s: float, clock: Callable[[], int], *, most: int = MOST) -> None:
        self._lasting_s = int(lasting_s)
        self._most = most
        self._clock = clock
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._lock = Lock()

    def begin(self, token_digest: str) -> str:
        """A new session for whoever has this token: the value of its cookie."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(cookie)] = _Session(token_digest, self._clock())
            while len(self._open) > self._most:
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

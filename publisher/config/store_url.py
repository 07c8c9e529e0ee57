"""URLs of stores: which are allowed, and the file that a relative one names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from publisher.errors import UsageError

_POSTGRESQL: Final = ("postgresql://", "postgresql+psycopg://")
_PASSWORDS: Final = frozenset({"password", "sslpassword"})
_URL_HINT: Final = (
    "Write sqlite:////path (four slashes: absolute), sqlite:///path (relative to the configuration), or "
    "postgresql://USER@HOST/DATABASE"
)


def is_url(text: str) -> bool:
    """Whether a text is meant as a URL, and not as a file."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|sqlite:|postgres(ql)?(\+\w+)?:", text) is not None


def store_url(url: str, folder: Path) -> str:
    """The URL of a store; a relative path is relative to a folder.

    Raises `UsageError` for another kind of URL, one with a password, or with a port that is not a number. No message
    has the password.
    """
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return f"sqlite:///{(folder / url.removeprefix('sqlite:///')).absolute()}"
    if url.startswith(_POSTGRESQL):
        _require_usable(url)
        return url
    scheme = url.partition(":")[0]
    if scheme in {"postgres", "postgresql"}:
        raise UsageError("the URL of a PostgreSQL store must begin with postgresql://", hint=_URL_HINT)
    if scheme == "sqlite":
        raise UsageError("the URL of an SQLite store must begin with sqlite:///, followed by a path", hint=_URL_HINT)
    raise UsageError("is not the URL of a store: it must begin with sqlite:/// or postgresql://", hint=_URL_HINT)


def _require_usable(url: str) -> None:
    try:
        parts = urlsplit(url)
        parameters = {name for name, value in parse_qsl(parts.query) if value}
        has_password = parts.password is not None or not parameters.isdisjoint(_PASSWORDS)
    except ValueError:
        raise UsageError("is not a URL: a bracket around an address is not closed", hint=_URL_HINT) from None
    if has_password:
        raise UsageError(
            "the URL of a store must not contain a password: everybody who sees the URL would know it",
            hint="Write it to ~/.pgpass, or the file that PGPASSFILE names (HOST:PORT:DATABASE:USER:PASSWORD, mode "
            "0600), or use a service file: postgresql:///?service=NAME with ~/.pg_service.conf",
        )
    try:
        _ = parts.port
    except ValueError:
        raise UsageError("the port of a URL must be a number from 0 to 65535", hint=_URL_HINT) from None

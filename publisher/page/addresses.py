"""Addresses within the page: of views, with their queries, and the one to return to after log-in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from formats.utilization.measure import KEYS
from publisher.errors import UsageError
from publisher.page.auth import Person
from publisher.text import did_you_mean

OVERVIEW: Final = "/"
JOBS: Final = "/jobs"
LOGIN: Final = "/login"
QUERY_NAMES: Final = frozenset(
    {
        *KEYS,
        "since",
        "until",
        "days",
        "month",
        "bin",
        "by",
        "by2",
        "compare",
        "period",
        "resource",
        "sort",
        "top",
        "measure",
        "style",
        "grid",
        "legend",
        "plot",
        "shown",
        "counted",
        "state",
        "target",
        "row",
    }
)
"""The names that a query may have."""
_KEPT: Final = frozenset(KEYS) - {"job"}
MOST_QUERY_BYTES: Final = 4_000
"""Of a query that the server answers."""
_PATH: Final = re.compile(r"/[a-z]*|/history/[0-9]{1,18}")
_MOST_LETTERS: Final = 2_000


def path_of(view: str) -> str:
    """The path of a view."""
    return f"/{view}"


def with_query(path: str, query: Mapping[str, str], **instead: Any) -> str:
    """A path with a query, in which some values are replaced."""
    given = {**query, **instead}
    return f"{path}?{urlencode(given)}" if given else path


def query_of(values: Mapping[str, str], person: Person) -> dict[str, str]:
    """The values of a query; the user is not asked for where it can only be the person.

    Names are kept as they are, because they may begin or end with a space; an id is often pasted with one. Raises
    `UsageError` for an unknown name: a report that ignores a mistyped filter would show too much.
    """
    for name in values:
        if name not in QUERY_NAMES:
            hint = f"The known names are: {', '.join(sorted(QUERY_NAMES))}"
            raise UsageError(
                f"the address has the unknown name {name[:50]!r}{did_you_mean(name, QUERY_NAMES)}", hint=hint
            )
    names = QUERY_NAMES - {"user"} if person.owner is not None else QUERY_NAMES
    return {name: value if name in _KEPT else value.strip() for name, value in values.items() if name in names}


def answered(address: str) -> str:
    """The address, if the server answers it; else an empty text, which is not a link."""
    return address if len(address.partition("?")[2]) <= MOST_QUERY_BYTES else ""


def login_for(path: str, query: str) -> str:
    """The address of the log-in form, which returns to this address."""
    back = return_address(f"{path}?{query}")
    return LOGIN if back in {None, OVERVIEW} else f"{LOGIN}?next={quote(back or '', safe='')}"


def return_address(text: str) -> str | None:
    """Path and query of a page of this server, from text that anybody may have written; None for any other address.

    The path has lower-case letters only or is that of a run, so that no scheme or host fits in. Of the query only the
    known names are kept, so that a token in an address is not handed on.
    """
    if len(text) > _MOST_LETTERS or not text.isascii() or not text.isprintable():  # `urlsplit` drops tabs
        return None
    try:
        parts = urlsplit(text)
        given = parse_qsl(parts.query, max_num_fields=len(QUERY_NAMES))
    except ValueError:
        return None
    if parts.scheme or parts.netloc or not _PATH.fullmatch(parts.path) or parts.path in {LOGIN, "/logout"}:
        return None
    return with_query(parts.path, {name: value for name, value in given if name in QUERY_NAMES})

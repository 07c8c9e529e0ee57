"""Closed months: numbered statements and what each run was charged for, which nothing changes afterwards.

Statements are evidence: rows are only added, and the digest of a closing is over its month, its price list, the
closings that it replaces, its statements, and the usage of each run that it charged. Names and texts are in a table of
their own, and the digest is over their tokens, salted hashes: a person who is forgotten gets a pseudonym there, and the
digest remains true. Digests of before, of 32 bytes, are over statements and usage alone, and their price lists have
names.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import Connection, func, insert, select, update

from publisher.encoded_run import UNREADABLE
from publisher.errors import StoreCorruptError
from publisher.store import dialect, prepared
from publisher.store.schema import (
    closed_lines,
    closed_runs,
    closed_statements,
    closed_texts,
    closings,
    number_series,
)
from publisher.store.stored_json import read_with

STATEMENTS: Final = "statements"
"""The series of the numbers of statements."""
_AT_ONCE: Final = 10_000
_DIGEST_BYTES: Final = 32
_WHOLE: Final = b"\x02"
"""Begins a digest that is over the month, the price list, and what is replaced, too."""
_TOKEN: Final = "token"  # noqa: S105 - a key of JSON
_NAMES: Final = frozenset({"user", "group", "project", "account", "vo", "payer", "reason", "name"})
"""The keys of a price list whose values may name persons."""
_TOKEN_KEYS: Final = frozenset({_TOKEN, "payer", "user", "reason", "applies_to"})
"""The keys of price lists, statements, and lines whose values are tokens."""
_TOKEN_BYTES: Final = 16
_SALT_BYTES: Final = 16
_insert_runs: Final = prepared.BulkInsert(closed_runs, ("closing_id", "run", "line", "issued_in", "usage"))


class Closing(msgspec.Struct, frozen=True):
    """A closed month, by its number. `settings`: the price list, JSON, with the names of now. `successor`: the closing
    that replaced it."""

    id: int
    month: int
    closed_at: int
    successor: int | None
    settings: str
    digest: bytes


class IssuedStatement(msgspec.Struct, frozen=True):
    """An issued statement. `cancels`: the number of the one that it replaces; `body`: JSON with tokens for texts."""

    number: int
    closing_id: int
    cancels: int | None
    label: str
    body: str


class RunUsage(msgspec.Struct, frozen=True):
    """What a run, by its key, used of a line: the whole numbers of items."""

    run: bytes
    line: int
    usage: int


def closings_of(connection: Connection) -> list[Closing]:
    """All closings, oldest month first."""
    rows = list(connection.execute(select(closings).order_by(closings.c.month, closings.c.id)).mappings())
    named = texts(connection) if any(_TOKEN in str(row["settings"]) for row in rows) else {}
    return [
        Closing(**{**row, "digest": bytes(row["digest"]), "settings": with_names(row["settings"], named)})
        for row in rows
    ]


def issued(connection: Connection) -> list[IssuedStatement]:
    """All statements by number."""
    columns = [closed_statements.c[name] for name in IssuedStatement.__struct_fields__]
    return [IssuedStatement(*row) for row in connection.execute(select(*columns).order_by(closed_statements.c.number))]


def texts(connection: Connection) -> dict[str, str]:
    """The names and texts of all statements by their token."""
    return {row[0]: row[1] for row in connection.execute(select(closed_texts.c.token, closed_texts.c.content))}


def lines(connection: Connection, closing_id: int) -> list[str]:
    """The lines of a closing in order of their number, from 0."""
    query = select(closed_lines.c.body).where(closed_lines.c.closing_id == closing_id).order_by(closed_lines.c.line)
    return list(connection.execute(query).scalars())


def charged(connection: Connection, closing_id: int) -> Iterator[RunUsage]:
    """What each run of a closed month was charged for up to now, by run and line; nothing that is zero."""
    columns = (closed_runs.c.run, closed_runs.c.line, closed_runs.c.usage)
    query = select(*columns).where(closed_runs.c.closing_id == closing_id).order_by(*closed_runs.primary_key)
    last: RunUsage | None = None
    for run, line, usage in _streamed(connection, query):
        row = RunUsage(bytes(run), line, int(usage))
        if last is not None and last.usage and (last.run, last.line) != (row.run, row.line):
            yield last
        last = row
    if last is not None and last.usage:
        yield last


class TextTokens:
    """Tokens for the names and texts of a closing; `add` stores them."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, bytes]] = {}

    def of(self, text: str) -> str:
        """The token of a text; none of an empty one."""
        if text and text not in self._rows:
            salt = secrets.token_bytes(_SALT_BYTES)
            self._rows[text] = (_token(text, salt), salt)
        return self._rows[text][0] if text else ""

    def add(self, connection: Connection) -> None:
        """Store the texts."""
        rows = [{"token": token, "salt": salt, "content": text} for text, (token, salt) in self._rows.items()]
        if rows:
            connection.execute(insert(closed_texts), rows)


def tokenized(settings: str, token: Callable[[str], str]) -> str:
    """A price list whose names are tokens."""

    def of(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: of(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [of(item, key) for item in value]
        return {_TOKEN: token(value)} if isinstance(value, str) and key in _NAMES else value

    return msgspec.json.encode(of(msgspec.json.decode(settings), "")).decode()


def with_names(settings: str, names: Mapping[str, str]) -> str:
    """A price list with the texts of tokens; one that cannot be read as it is."""

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {_TOKEN}:
                return names.get(value[_TOKEN], value[_TOKEN])
            return {name: of(each) for name, each in value.items()}
        return [of(item) for item in value] if isinstance(value, list) else value

    with suppress(*UNREADABLE, TypeError):  # who reads a price list finds that it is damaged
        return msgspec.json.encode(of(msgspec.json.decode(settings))).decode()
    return settings


def plain(connection: Connection, text: str) -> str:
    """A text as the store can have it: PostgreSQL's have no NUL."""
    return text if connection.dialect.name == "sqlite" else text.replace("\0", "\ufffd")


def add_closing(connection: Connection, month: int, settings: str, now: int, replaces: int | None = None) -> int:
    """Add a closing, whose digest is set by `seal`; `replaces`: the closing whose statements its own cancel."""
    values = {"month": month, "closed_at": now, "settings": settings, "digest": b""}
    key = connection.execute(insert(closings).values(values)).inserted_primary_key
    assert key is not None
    if replaces is not None:
        connection.execute(update(closings).where(closings.c.id == replaces).values(successor=key[0]))
    return int(key[0])


def take_numbers(connection: Connection, count: int) -> int:
    """Take so many numbers of the series; return the first. The row is locked until the transaction ends: a number is
    never given twice, nor lost by one that is rolled back."""
    dialect.insert_missing(connection, number_series, [{"series": STATEMENTS, "last": 0}])
    mine = number_series.c.series == STATEMENTS
    connection.execute(update(number_series).where(mine).values(last=number_series.c.last + count))
    last: int = connection.execute(select(number_series.c.last).where(mine)).scalar_one()
    return last - count + 1


def add_statements(connection: Connection, statements: Iterable[IssuedStatement]) -> None:
    """Add statements."""
    rows = [msgspec.structs.asdict(statement) for statement in statements]
    if rows:
        connection.execute(insert(closed_statements), rows)


def add_lines(connection: Connection, closing_id: int, first: int, bodies: Iterable[str]) -> None:
    """Add lines of a closing, from this number on."""
    rows = [{"closing_id": closing_id, "line": line, "body": body} for line, body in enumerate(bodies, first)]
    if rows:
        connection.execute(insert(closed_lines), rows)


def add_runs(connection: Connection, closing_id: int, issued_in: int, rows: Iterable[RunUsage]) -> None:
    """Add what runs of a closed month are charged for by a closing."""
    left = iter(rows)
    while some := [(closing_id, row.run, row.line, issued_in, str(row.usage)) for row, _ in zip(left, range(_AT_ONCE))]:  # noqa: B905 - the last is short
        _insert_runs.run(connection, some)


def seal(connection: Connection, closing_id: int) -> bytes:
    """Set the digest of a closing once all of it is stored; return it."""
    digest = _WHOLE + digest_of(connection, closing_id)
    connection.execute(update(closings).where(closings.c.id == closing_id).values(digest=digest))
    return digest


def digest_of(connection: Connection, closing_id: int, *, is_whole: bool = True) -> bytes:
    """The digest of a closing. `is_whole`: also over its month, its price list, and the closings that it replaces."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    if is_whole:
        facts = (closings.c.month, closings.c.closed_at, closings.c.settings)
        row = connection.execute(select(*facts).where(closings.c.id == closing_id)).one()
        replaced = select(closings.c.id).where(closings.c.successor == closing_id).order_by(closings.c.id)
        digest.update(msgspec.msgpack.encode([*row, list(connection.execute(replaced).scalars())]))
    columns = [closed_statements.c[name] for name in ("number", "cancels", "label", "body")]
    mine = closed_statements.c.closing_id == closing_id
    for row in _streamed(connection, select(*columns).where(mine).order_by(closed_statements.c.number)):
        digest.update(msgspec.msgpack.encode(list(row)))
    issued_here = closed_runs.c.issued_in == closing_id
    months = list(connection.execute(select(closed_runs.c.closing_id).where(issued_here).distinct()).scalars())
    bodies = {about: lines(connection, about) for about in months}  # before the runs: their cursor is open meanwhile
    columns = [closed_runs.c[name] for name in ("closing_id", "run", "line", "usage")]
    query = select(*columns).where(issued_here).order_by(*closed_runs.primary_key)
    for about, run, line, usage in _streamed(connection, query):
        body = bodies[about][line] if line < len(bodies[about]) else ""
        digest.update(msgspec.msgpack.encode([about, bytes(run), body, usage]))
    return digest.digest()


def wrong(connection: Connection) -> Generator[str, None, None]:
    """Closed months that are not what was stored."""
    known = closings_of(connection)
    for one in known:
        is_whole = len(one.digest) > _DIGEST_BYTES
        if one.digest != (_WHOLE if is_whole else b"") + digest_of(connection, one.id, is_whole=is_whole):
            yield f"closing {one.id}: its digest is not that of its statements, jobs, and price list"
        if one.successor is not None and all(one.successor != other.id for other in known):
            yield f"closing {one.id}: the closing that replaced it is not stored"
    missing = _tokens(connection)
    for token, salt, content in _streamed(connection, select(*closed_texts.c)):
        missing.discard(token)
        if salt and _token(content, bytes(salt)) != token:
            yield f"text {token} of a closed statement is not what was stored"
    # A statement would show the token in place of the name, and what its payer owes now would look like another's.
    for token in sorted(missing):
        yield f"text {token} of a closed statement is missing"


def _tokens(connection: Connection) -> set[str]:
    """The tokens of all names and texts of closed months. What cannot be read has another digest than was stored."""

    def of(value: Any, key: str = "") -> Iterator[str]:
        if isinstance(value, dict):
            for name, member in value.items():
                yield from of(member, name)
        elif isinstance(value, list):
            for member in value:
                yield from of(member, key)
        elif isinstance(value, str) and value and key in _TOKEN_KEYS:
            yield value

    tokens: set[str] = set()
    with_tokens = func.length(closings.c.digest) > _DIGEST_BYTES
    for bodies in (
        select(closings.c.settings).where(with_tokens), select(closed_statements.c.body), select(closed_lines.c.body)
    ):  # fmt: skip
        for body in connection.execute(bodies).scalars():
            with suppress(*UNREADABLE):
                tokens.update(of(msgspec.json.decode(body)))
    return tokens


def require_sound(connection: Connection) -> None:
    """Raise `StoreCorruptError` if a closed month is not what was stored: its corrections would be wrong."""
    with closing(wrong(connection)) as problems:  # whose cursor may be open at the first
        problem = next(problems, None)
    if problem is not None:
        raise StoreCorruptError(
            f"the store is damaged: {problem}", hint="`usage-publisher store check` says what to do"
        )


def pseudonymize(connection: Connection, names: Collection[str], pseudonym: str) -> None:
    """Put a pseudonym in place of names. The salt goes with the name: nobody can tell of whom the token was a hash."""
    # The longest first, and whole words only: a name may be a part of another, or of a word.
    longest = sorted(filter(None, names), key=len, reverse=True)
    if not longest:  # an empty pattern would match everywhere
        return
    whole_words = re.compile("|".join(rf"(?<![\w.@-]){re.escape(name)}(?![\w.@-])" for name in longest))

    def renamed(text: str, *, is_pattern: bool) -> str:
        # A pattern such as `ada*` is of others too: with another one, they would be charged otherwise.
        if is_pattern:
            return pseudonym if text in longest else text
        return whole_words.sub(lambda _: pseudonym, text)

    stored = list(connection.execute(select(closings.c.id, closings.c.settings, closings.c.digest)))
    decoded = {
        row.id: read_with(msgspec.json.decode, row.settings, f"the price list of closing {row.id}") for row in stored
    }
    pattern_tokens = {token for settings in decoded.values() for token in _pattern_tokens(settings)}
    for token, content in list(connection.execute(select(closed_texts.c.token, closed_texts.c.content))):
        if (changed := renamed(content, is_pattern=token in pattern_tokens)) != content:
            values = {"content": changed, "salt": b""}
            connection.execute(update(closed_texts).where(closed_texts.c.token == token).values(values))
    # A rule of the price list that goes by the name then goes by the pseudonym. Those with tokens have no names.
    for row in stored:
        if len(row.digest) <= _DIGEST_BYTES:
            values = {"settings": msgspec.json.encode(_renamed(decoded[row.id], renamed)).decode()}
            connection.execute(update(closings).where(closings.c.id == row.id).values(values))


class _Rename(Protocol):
    def __call__(self, text: str, *, is_pattern: bool) -> str: ...


def _renamed(value: Any, rename: _Rename, *, is_pattern: bool = False) -> Any:
    """A price list with other texts; those in lists are patterns."""
    if isinstance(value, dict):
        return {name: _renamed(each, rename) for name, each in value.items()}
    if isinstance(value, list):
        return [_renamed(item, rename, is_pattern=True) for item in value]
    return rename(value, is_pattern=is_pattern) if isinstance(value, str) else value


def _pattern_tokens(value: Any) -> Iterator[str]:
    """The tokens of the patterns in a price list."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _pattern_tokens(each)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict) and item.keys() == {_TOKEN}:
                yield item[_TOKEN]
            else:
                yield from _pattern_tokens(item)


def has_name(connection: Connection, is_person: Callable[[str], bool]) -> bool:
    """Whether a person is named in a closed statement, as a payer or user."""
    return any(map(is_person, connection.execute(select(closed_texts.c.content)).scalars()))


def _token(text: str, salt: bytes) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt, digest_size=_TOKEN_BYTES).hexdigest()


def _streamed(connection: Connection, query: Any) -> Iterator[Any]:
    with closing(dialect.streamed(connection, query, _AT_ONCE)) as pages:
        for page in pages:
            yield from page

"""Closed months: numbered statements and what each run was charged for, which nothing changes afterwards.

Statements are evidence: rows are only added, and the digest of a closing is over its statements and over the usage of
each run that it charged. Names and texts are in a table of their own, and the digest is over their tokens, salted
hashes: a person who is forgotten gets a pseudonym there, and the digest remains true.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, insert, select, update

from publisher.store import dialect, prepared
from publisher.store.schema import (
    closed_lines,
    closed_runs,
    closed_statements,
    closed_texts,
    closings,
    number_series,
)

STATEMENTS: Final = "statements"
"""The series of the numbers of statements."""
_AT_ONCE: Final = 10_000
_TOKEN_BYTES: Final = 16
_SALT_BYTES: Final = 16
_insert_runs: Final = prepared.BulkInsert(closed_runs, ("closing_id", "run", "line", "issued_in", "usage"))


class Closing(msgspec.Struct, frozen=True):
    """A closed month, by its number. `settings`: the price list, JSON. `successor`: the closing that replaced it."""

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
    rows = connection.execute(select(closings).order_by(closings.c.month, closings.c.id)).mappings()
    return [Closing(**{**row, "digest": bytes(row["digest"])}) for row in rows]


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
    rows = [msgspec.structs.asdict(one) for one in statements]
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
    digest = digest_of(connection, closing_id)
    connection.execute(update(closings).where(closings.c.id == closing_id).values(digest=digest))
    return digest


def digest_of(connection: Connection, closing_id: int) -> bytes:
    """The digest over the statements of a closing, and over the usage of each run that it charged."""
    found = blake2b(digest_size=32)
    columns = [closed_statements.c[name] for name in ("number", "cancels", "label", "body")]
    mine = closed_statements.c.closing_id == closing_id
    for row in _streamed(connection, select(*columns).where(mine).order_by(closed_statements.c.number)):
        found.update(msgspec.msgpack.encode(list(row)))
    bodies: dict[int, list[str]] = {}
    columns = [closed_runs.c[name] for name in ("closing_id", "run", "line", "usage")]
    query = select(*columns).where(closed_runs.c.issued_in == closing_id).order_by(*closed_runs.primary_key)
    for about, run, line, usage in _streamed(connection, query):
        if about not in bodies:
            bodies[about] = lines(connection, about)
        body = bodies[about][line] if line < len(bodies[about]) else ""
        found.update(msgspec.msgpack.encode([about, bytes(run), body, usage]))
    return found.digest()


def wrong(connection: Connection) -> Iterator[str]:
    """Closed months that are not what was stored."""
    for one in closings_of(connection):
        if digest_of(connection, one.id) != one.digest:
            yield f"closing {one.id}: its digest is not that of its statements and runs"
    for token, salt, content in _streamed(connection, select(*closed_texts.c)):
        if salt and _token(content, bytes(salt)) != token:
            yield f"text {token} of a closed statement is not what was stored"


def pseudonymize(connection: Connection, names: Collection[str], pseudonym: str) -> None:
    """Put a pseudonym in place of names. The salt goes with the name: nobody can tell of whom the token was a hash."""
    # The longest first, and whole words only: a name may be a part of another, or of a word.
    longest = sorted(filter(None, names), key=len, reverse=True)
    if not longest:  # an empty pattern would match everywhere
        return
    pattern = re.compile("|".join(rf"(?<![\w.@-]){re.escape(name)}(?![\w.@-])" for name in longest))
    for token, content in list(connection.execute(select(closed_texts.c.token, closed_texts.c.content))):
        if (changed := pattern.sub(lambda _: pseudonym, content)) != content:
            values = {"content": changed, "salt": b""}
            connection.execute(update(closed_texts).where(closed_texts.c.token == token).values(values))
    # A rule of the price list that goes by the name then goes by the pseudonym. JSON escapes nothing in usual names.
    for key, settings in list(connection.execute(select(closings.c.id, closings.c.settings))):
        if (changed := pattern.sub(lambda _: pseudonym, settings)) != settings:
            connection.execute(update(closings).where(closings.c.id == key).values(settings=changed))


def has_name(connection: Connection, is_person: Callable[[str], bool]) -> bool:
    """Whether a person is named in a closed statement, as a payer or user."""
    return any(map(is_person, connection.execute(select(closed_texts.c.content)).scalars()))


def _token(text: str, salt: bytes) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), key=salt, digest_size=_TOKEN_BYTES).hexdigest()


def _streamed(connection: Connection, query: Any) -> Iterator[Any]:
    with connection.execute(query, execution_options={"yield_per": _AT_ONCE}) as found:
        yield from found

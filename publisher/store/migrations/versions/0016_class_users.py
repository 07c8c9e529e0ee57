"""The local users of the runs of classes that do not have them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import op

from publisher.encoded_run import UNREADABLE, unpack

revision = "0016"
down_revision = "0015"

# As in `publisher.store.class_users`: a migration does not follow later changes of the program.
_PAGE = 2_000
_MOST_REMEMBERED = 100_000
_encode = msgspec.msgpack.Encoder().encode
_PAIR = _encode((None, None))[:1]
_NOTHING = frozenset({_encode(None), _encode("")})
_PLACES = {4: "user_dn", 7: "vo", 23: "local_user", 24: "local_group"}
_Beginning = msgspec.defstruct(
    "_Beginning", [(_PLACES.get(place, f"fact_{place}"), msgspec.Raw) for place in range(25)], array_like=True
)
"""An encoded run up to these facts: to decode only these takes half the time."""
_decode: Any = msgspec.msgpack.Decoder(_Beginning).decode


def upgrade() -> None:
    """Add and fill the table: every run is read once, in the order of ids, if any class needs it."""
    op.create_table(
        "class_users",
        sa.Column("class_id", sa.Integer(), sa.ForeignKey("classes.id"), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("local_user", sa.LargeBinary(), nullable=False),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    without = _classes_without_users(connection)
    if not without:
        return
    insert = sa.text("INSERT INTO class_users VALUES (:class_id, :digest, :user) ON CONFLICT DO NOTHING")
    page = sa.text("SELECT id, class_id, job FROM runs WHERE id > :last ORDER BY id LIMIT :page")
    recorded: set[tuple[int, bytes]] = set()
    last = -(2**62)
    while rows := connection.execute(page, {"last": last, "page": _PAGE}).all():
        last = rows[-1][0]
        met = {(class_id, _user_of(job)) for _, class_id, job in rows if class_id in without} - recorded
        new = [(class_id, user) for class_id, user in met if user is not None]
        if new:
            values = [{"class_id": class_id, "digest": _digest(class_id, user), "user": user} for class_id, user in new]
            connection.execute(insert, values)
        if len(recorded) > _MOST_REMEMBERED:
            recorded.clear()
        recorded.update(new)


def _classes_without_users(connection: sa.Connection) -> frozenset[int]:
    """The classes with user and VO: local facts decide nothing there, and are facts of their runs alone."""
    rows = connection.execute(sa.text("SELECT id, facts FROM classes")).all()
    decoded = ((class_id, _beginning(facts)) for class_id, facts in rows)
    return frozenset(
        class_id
        for class_id, facts in decoded
        if facts is not None and _NOTHING.isdisjoint(map(bytes, (facts.user_dn, facts.vo)))
    )


def _user_of(job: Any) -> bytes | None:
    facts = _beginning(job)
    return None if facts is None else _PAIR + facts.local_user + facts.local_group


def _beginning(stored: Any) -> Any:
    """The facts at the beginning of a run or class; None for a damaged one, which `store check` reports."""
    try:
        return _decode(unpack(bytes(stored))[1])
    except (*UNREADABLE, TypeError):
        return None


def _digest(class_id: int, user: bytes) -> bytes:
    return blake2b(_encode((class_id, user)), digest_size=8).digest()

"""Check numbers of the columns of a run, by which a changed bit is recognised where no record is decoded.

`sums_check` is a linear function of the columns that sums are made of, modulo a prime: the sum of it over any runs
follows from the sums of these columns, which SQL adds up anyway. `row_check` is that of columns which no digest covers.
A changed bit changes a column by a power of two, which is not a multiple of an odd prime: every single changed bit is
recognised, and several of them in all cases but one of as many as the prime.

`state_check` belongs to a group: to its state, which a changed bit would let be sent again, or never, and to its place
(target, kind, month), without which it would look new there and vanished here. It is linear in the state, so that a
change of the state, which adds the difference, leaves damage as it is. `batch_check` covers what is recorded of a
message before it leaves.

The primes and factors are part of the store's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Integer, cast, func, literal_column

from publisher.store.schema import groups, runs

SUMS_PRIME: Final = 8_388_593
"""Three bytes: of a larger one, each run would take more space, in its row and in the index that is summed."""
_SUMS_FACTORS: Final = (3_158_977, 1_289_321, 5_437_219, 2_476_979, 6_700_417, 4_190_209)
_ROW_PRIME: Final = 32_749
"""Two bytes."""
_ROW_FACTORS: Final = (12_611, 27_449, 5_651, 19_087)

_DIGEST_BYTES: Final = 16
_STATE_FACTOR: Final = 37
_STATE_TERM: Final = 11
_PLACE_PRIME: Final = 31_907
"""With the states added, two bytes."""
_PLACE_FACTORS: Final = (21_221, 9_403)


def sums_check(run_id: int, class_id: int, end: int | None, wall_ms: int, cpu_ms: int, incomplete_usage: int) -> int:
    """The column of a run with these values, or of the sums of runs."""
    a, b, c, d, e, f = _SUMS_FACTORS
    return (run_id * a + class_id * b + (end or 0) * c + wall_ms * d + cpu_ms * e + incomplete_usage * f) % SUMS_PRIME


def is_sum(check: int, *sums: int) -> bool:
    """Whether this is the sum of the column `sums_check` of runs with these sums of the columns."""
    return check % SUMS_PRIME == sums_check(*sums)


def row_check(run_id: int, class_id: int, stored_at: int, finished: int) -> int:
    """The column of a run with these values."""
    a, b, c, d = _ROW_FACTORS
    return (run_id * a + class_id * b + stored_at * c + finished * d) % _ROW_PRIME


@lru_cache(maxsize=1_000)
def _place_check(target_id: int, kind: str, month: int) -> int:
    a, b = _PLACE_FACTORS
    return (month * a + target_id * b + _kind_term(kind)) % _PLACE_PRIME


@lru_cache(maxsize=100)
def _kind_term(kind: str) -> int:
    name = kind.encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(name, digest_size=2).digest()) % _PLACE_PRIME


def state_check(state: int, target_id: int, kind: str, month: int) -> int:
    """The column of a group in a state."""
    return _place_check(target_id, kind, month) + state * _STATE_FACTOR + _STATE_TERM


def is_group_wrong(kind: str, target_id: int | None = None) -> ColumnElement[bool]:
    """Whether the state or place of a group of a kind is not the one that was stored, in SQL. `target_id`: in place of
    that in its row."""
    target = groups.c.target_id if target_id is None else literal_column(str(target_id), Integer)
    place = _linear((groups.c.month, target), _PLACE_FACTORS, _PLACE_PRIME, _kind_term(kind))
    return groups.c.state_check != place + groups.c.state * _STATE_FACTOR + _STATE_TERM


def state_columns(state: int) -> dict[str, Any]:
    """The columns of groups that get another state, by their names, in SQL."""
    return {"state": state, "state_check": groups.c.state_check + (state - groups.c.state) * _STATE_FACTOR}


def batch_check(
    target_id: int,
    uid: str,
    format_name: str,
    records: int,
    size_bytes: int,
    latest_end: int | None,
    created_at: int,
) -> int:
    """The column `row_check` of a batch with these values."""
    values = (target_id, uid, format_name, records, size_bytes, latest_end, created_at)
    return int.from_bytes(blake2b(msgspec.msgpack.encode(values), digest_size=4).digest()) >> 1  # signed on a server


def row_digest(*values: Any) -> bytes:
    """The column `row_digest` of a source or target with these values (`publisher.store.named_rows`)."""
    return blake2b(msgspec.msgpack.encode(values), digest_size=_DIGEST_BYTES).digest()


def of_class(class_id: ColumnElement[int]) -> dict[str, ColumnElement[int]]:
    """Both columns of runs that get another class, by their names, in SQL."""
    summed = (runs.c.id, class_id, runs.c.end_time, runs.c.wall_ms, runs.c.cpu_ms, runs.c.incomplete_usage)
    return {
        "sums_check": _linear(summed, _SUMS_FACTORS, SUMS_PRIME),
        "row_check": _linear((runs.c.id, class_id, runs.c.stored_at, runs.c.finished), _ROW_FACTORS, _ROW_PRIME),
    }


def _linear(
    columns: Sequence[ColumnElement[Any]], factors: Sequence[int], prime: int, term: int = 0
) -> ColumnElement[int]:
    """Each value is reduced first, so that nothing overflows, and to zero or more, as in Python.

    Numbers are written out: prepared statements have no parameters but those that are named.
    """
    modulo: ColumnElement[int] = literal_column(str(prime))
    total: ColumnElement[int] = literal_column(str(term))
    for column, factor in zip(columns, factors, strict=True):
        value = func.coalesce(cast(column, BigInteger), literal_column("0"))
        total = total + (value % modulo + modulo) % modulo * literal_column(str(factor))
    return total % modulo

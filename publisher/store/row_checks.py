"""Check numbers of the columns of a run, by which a changed bit is recognised where no record is decoded.

`sums_check` is a linear function of the columns that sums are made of, modulo a prime: the sum of it over any runs
follows from the sums of these columns, which SQL adds up anyway. `row_check` is that of columns which no digest covers.
A changed bit changes a column by a power of two, which is not a multiple of an odd prime: every single changed bit is
recognised, and several of them in all cases but one of as many as the prime.

`state_check` belongs to the state of a group, which a changed bit would let be sent again, or never.

The primes and factors are part of the store's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, ColumnElement, and_, cast, func, literal_column

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


def state_check(state: int) -> int:
    """The column of a group in a state."""
    return state * _STATE_FACTOR + _STATE_TERM


def is_state_wrong() -> ColumnElement[bool]:
    """Whether the state of a group is not the one that was stored, in SQL."""
    return groups.c.state_check != groups.c.state * _STATE_FACTOR + _STATE_TERM


def in_state(state: int) -> ColumnElement[bool]:
    """Whether a group is in a state. One whose state is damaged is in none: a change of its state would set the check
    right, and nothing would show the damage."""
    return and_(groups.c.state == state, groups.c.state_check == state_check(state))


def state_columns(state: int) -> dict[str, int]:
    """The columns of a group in a state, by their names."""
    return {"state": state, "state_check": state_check(state)}


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


def _linear(columns: Sequence[ColumnElement[Any]], factors: Sequence[int], prime: int) -> ColumnElement[int]:
    """Each value is reduced first, so that nothing overflows, and to zero or more, as in Python.

    Numbers are written out: prepared statements have no parameters but those that are named.
    """
    modulo: ColumnElement[int] = literal_column(str(prime))
    total: ColumnElement[int] = literal_column("0")
    for column, factor in zip(columns, factors, strict=True):
        value = func.coalesce(cast(column, BigInteger), literal_column("0"))
        total = total + (value % modulo + modulo) % modulo * literal_column(str(factor))
    return total % modulo

"""Values of columns, read back: one that no program stored is damage of the store, never a fault of the program.

In a damaged SQLite store a value may be of any type, also in a column that is never NULL.
"""

from __future__ import annotations

from typing import Any, Final

from publisher.errors import StoreCorruptError
from publisher.store.row_checks import state_check
from publisher.store.schema import State

_STATES: Final = {int(state): state for state in State}
"""A look-up takes a fifth of the time of `State(number)`, which matters for a hundred thousand of them."""
_REVISIONS: Final = 2**15


def state_of(number: int) -> State:
    """The state with this number. Raises `StoreCorruptError`."""
    try:
        return _STATES[number]
    except KeyError:
        raise StoreCorruptError(f"the store is damaged: a delivery or group has the state {number}") from None


def checked_state_of(number: int, check: int, target_id: int, kind: str, month: int) -> State:
    """The state of a group, with its check and its place. Raises `StoreCorruptError`."""
    state = state_of(number)
    if check != state_check(state, target_id, kind, month):
        raise StoreCorruptError(
            f"the store is damaged: the state {state.word}, or the place in {month}, of a group is not what was stored"
        )
    return state


def revision_of(value: object) -> int:
    """The revision of a delivery. Raises `StoreCorruptError`."""
    if type(value) is int and 0 <= value < _REVISIONS:
        return value
    raise StoreCorruptError("the store is damaged: a delivery has the revision " + ascii(value)[:40])


def bytes_of(value: Any, what: str) -> bytes:
    """A binary value. `what`: it is. Raises `StoreCorruptError`."""
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    raise StoreCorruptError(f"the store is damaged: {what} is not binary: " + ascii(value)[:40])

"""Columns with JSON, read back: what cannot be decoded is damage of the store, never a fault of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from formats.rule_codes import Reason
from publisher.encoded_run import UNREADABLE
from publisher.errors import StoreCorruptError
from publisher.reason import from_stored

_Value = TypeVar("_Value")
_DAMAGE: Final = (*UNREADABLE, TypeError, KeyError)


def decoded(text: Any, kind: type[_Value], what: str) -> _Value:
    """The value of a column, of a type. Raises `StoreCorruptError`, which says what it is."""
    return read_with(lambda content: msgspec.json.decode(content, type=kind), text, what)


def read_with(read: Callable[[Any], _Value], content: Any, what: str) -> _Value:
    """The value that a function reads from a column. Raises as `decoded`."""
    try:
        return read(content)
    except _DAMAGE as error:
        raise StoreCorruptError(f"the store is damaged: {what} cannot be read: {error}") from error


def stored_reason(code: str | None, parameters: str | None) -> Reason | None:
    """The reason in these columns of a delivery. Raises as `decoded`."""
    return read_with(lambda text: from_stored(code, text), parameters, f"a reason ({code})")

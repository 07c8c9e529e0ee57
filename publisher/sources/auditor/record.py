"""A record of AUDITOR: JSON of its REST interface, or a row of its table. Pure.

AUDITOR's own limits (256 characters in a text, 2**63 - 1 in an amount) are not relied on: whatever else is there, such
as a row that was written by hand, is refused with a reason, and never cut or guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from publisher.sources.fields import LineError
from publisher.sources.limits import IDENTITY_CHARACTERS

LARGEST_AMOUNT: Final = 2**63 - 1
SECOND_US: Final = 1_000_000
_LATEST_US: Final = 253_402_300_800 * SECOND_US
"""The end of the year 9999: larger values are not times."""
_MOST_PARTS: Final = 1_000
"""The most components, scores of one, entries of `meta`, and values of one."""
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:?\d\d)", re.ASCII
)  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class MeasuredComponent(msgspec.Struct, frozen=True):
    """A component: a whole number without a unit, and scores by their names."""

    amount: int
    scores: tuple[tuple[str, float], ...] = ()


class CollectedRecord(msgspec.Struct, frozen=True):
    """A record. Times in microseconds since the epoch; `stop_us` None: it has not ended. `runtime_s`: AUDITOR's own."""

    record_id: str
    start_us: int
    stop_us: int | None = None
    runtime_s: int | None = None
    meta: dict[str, tuple[str, ...]] = {}
    components: dict[str, MeasuredComponent] = {}


class BadRow(msgspec.Struct, frozen=True):
    """A row that cannot even be looked at: its id, as far as it is known, and why."""

    record_id: str
    reason: str


Found = dict[str, Any] | BadRow


class Part(msgspec.Struct, frozen=True):
    """Some records, and how far the reading is: the time (microseconds) by which they are ordered."""

    found: list[Found]
    position_us: int


class Records(Protocol):
    """Where records are read. Every method raises `SourceError`s; none gives less than there is."""

    by_change: bool
    """Whether `since` goes by the last change of a record, so that late and changed ones are met; else by its end."""

    def since(self, position_us: int) -> Iterator[Part]:
        """Records from a position on, in order; those at the position are given again."""
        ...

    def ended(self, begin_us: int, until_us: int | None) -> Iterator[Part]:
        """The records that ended in between, in order; `until_us` exclusive."""
        ...

    def newest(self, number: int) -> list[Found]:
        """The records that ended last, at most `number`."""
        ...

    def oldest_us(self) -> int | None:
        """The earliest end; None: there is no record that has ended."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def record_of(found: Mapping[str, Any]) -> CollectedRecord:
    """The record of a JSON object. Raises `LineError`."""
    stop = found.get("stop_time")
    return CollectedRecord(
        record_id=_text(found.get("record_id"), "record_id"),
        start_us=instant_us(found.get("start_time"), "start_time"),
        stop_us=None if stop is None else instant_us(stop, "stop_time"),
        runtime_s=_runtime(found.get("runtime")),
        meta=_meta(found.get("meta")),
        components=_components(found.get("components")),
    )


def instant_us(value: object, what: str) -> int:
    """An instant in RFC 3339. Raises `LineError`."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise LineError(f"{what} is not a time")
    try:
        zone = "+00:00" if match[3] in "Zz" else match[3]
        whole = datetime.fromisoformat(match[1].upper().replace("T", " ") + zone)
    except (ValueError, OverflowError):
        raise LineError(f"{what} is not a time") from None
    return bounded_us((whole - _EPOCH) // _MICROSECOND + int(((match[2] or "") + "000000")[:6]), what)


def bounded_us(instant: int, what: str) -> int:
    """An instant that a run can have. Raises `LineError` if it is before 1970 or after the year 9999."""
    if not 0 <= instant < _LATEST_US:
        raise LineError(f"{what} is before 1970 or after the year 9999")
    return instant


def time_text(instant: int) -> str:
    """An instant (microseconds) as AUDITOR's queries take it: without characters that a URL encodes."""
    whole = (_EPOCH + instant * _MICROSECOND).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{instant % SECOND_US:06d}Z"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise LineError(f"{what} is not a text")
    if len(value) > IDENTITY_CHARACTERS:
        raise LineError(f"{what} has {len(value)} characters; at most {IDENTITY_CHARACTERS} are read")
    if "\0" in value:
        raise LineError(f"{what} contains NUL")
    return value


def _runtime(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise LineError("runtime is not a whole number")


def _meta(value: object) -> dict[str, tuple[str, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LineError("meta is not an object")
    _require_few(value, "meta")
    return {_text(key, "a key of meta"): tuple(_values(each)) for key, each in value.items()}


def _values(value: object) -> Iterator[str]:
    if not isinstance(value, list):
        raise LineError("an entry of meta is not a list")
    _require_few(value, "an entry of meta")
    for item in value:
        yield _text(item, "a value of meta")


def _components(value: object) -> dict[str, MeasuredComponent]:
    if not isinstance(value, list):
        raise LineError("components is not a list")
    _require_few(value, "components")
    components: dict[str, MeasuredComponent] = {}
    for item in value:
        if not isinstance(item, dict):
            raise LineError("a component is not an object")
        name, amount = _text(item.get("name"), "the name of a component"), item.get("amount")
        if not isinstance(amount, int) or isinstance(amount, bool) or not 0 <= amount <= LARGEST_AMOUNT:
            raise LineError("the amount of a component is not a whole number from 0 to 2^63 - 1")
        if name in components:
            # AUDITOR stores both, and its plugin takes the first: neither the sum nor one of them is certain.
            raise LineError("two components have the same name")
        components[name] = MeasuredComponent(amount, tuple(_scores(item.get("scores"))))
    return components


def _scores(value: object) -> Iterator[tuple[str, float]]:
    if value is None:
        return
    if not isinstance(value, list):
        raise LineError("the scores of a component are not a list")
    _require_few(value, "the scores of a component")
    for item in value:
        if not isinstance(item, dict):
            raise LineError("a score is not an object")
        score = item.get("value")
        if not isinstance(score, int | float) or isinstance(score, bool) or not _is_score(score):
            raise LineError("the value of a score is not a number from 0 on")
        yield _text(item.get("name"), "the name of a score"), float(score)


def _is_score(score: float) -> bool:
    return 0 <= score < 1e18 and math.isfinite(score)


def _require_few(parts: object, what: str) -> None:
    number = len(parts) if isinstance(parts, dict | list) else 0
    if number > _MOST_PARTS:
        raise LineError(f"{what} has {number} parts; at most {_MOST_PARTS} are read")

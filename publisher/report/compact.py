"""Frames in little memory: tens of bytes an entry, for the life of a program.

Numbers have the smallest type that fits all of a chunk, or are one number if all are equal. Other values are numbered;
values that hardly ever repeat (names and events of jobs) are compressed MessagePack. Only requested parts are unpacked.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from formats.job import Events
from publisher.job_ids import JobIds
from publisher.report.column_tally import Ints
from publisher.report.frame import ROW, Frame, Mask

_TYPES: Final = (np.int8, np.int16, np.int32)
_encode: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[str, msgspec.msgpack.Decoder[list[Any]]]] = {
    "job": msgspec.msgpack.Decoder(list[JobIds]),
    "events": msgspec.msgpack.Decoder(list[Events | None]),
    "core_numbers": msgspec.msgpack.Decoder(list[tuple[str, ...]]),
}
OBJECTS_KEPT: Final = frozenset(_DECODERS)
_LEVEL: Final = 1
_ALIKE: Final = 8
"""Values are numbered if each has at least so many entries on average."""
_JOB: Final = "job number"
_Value = TypeVar("_Value")


class _CompactNumbers:
    """A column of whole numbers; `_values` is one number if all are equal."""

    __slots__ = ("_values",)

    def __init__(self, values: Ints) -> None:
        low, high = int(values.min()), int(values.max())
        self._values: int | np.ndarray[Any, Any] = low
        if low != high:
            fits = (kind for kind in _TYPES if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
            self._values = values.astype(next(fits, np.int64))

    def at(self, places: Ints | None) -> Ints:
        """The numbers at these places."""
        if isinstance(self._values, int):
            raise TypeError
        chosen = self._values if places is None else self._values[places]
        return chosen.astype(np.int64)

    @property
    def only(self) -> int | None:
        """The number, if all are equal."""
        return self._values if isinstance(self._values, int) else None

    @property
    def bytes(self) -> int:
        """Approximate memory in bytes."""
        return 32 if isinstance(self._values, int) else self._values.nbytes


class _Objects:
    """A column of other values, numbered or packed."""

    __slots__ = ("_decode", "_numbers", "_packed")

    def __init__(self, name: str, values: list[Any]) -> None:
        self._decode = _DECODERS[name].decode
        numbers: dict[Any, int] = {}
        found = [numbers.setdefault(value, len(numbers)) for value in values]
        alike = len(numbers) * _ALIKE <= len(values)
        self._numbers = np.array(found, np.int32) if alike else None
        self._packed = zlib.compress(_encode(list(numbers) if alike else values), _LEVEL)

    def at(self, places: Ints) -> list[Any]:
        """The values at these places."""
        values = self._decode(zlib.decompress(self._packed))
        chosen = places if self._numbers is None else self._numbers[places]
        return [values[number] for number in chosen.tolist()]

    @property
    def bytes(self) -> int:
        """Approximate memory in bytes."""
        return len(self._packed) + (0 if self._numbers is None else self._numbers.nbytes)


class ColumnChunk:
    """Entries in memory. Immutable."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        """Make it of frames with the same columns, including `ROW`, and at least one entry."""
        first = frames[0]
        self.rows = sum(frame.rows for frame in frames)
        self._numbers = {
            name: _CompactNumbers(_joined([one.numbers[name] for one in frames])) for name in first.numbers
        }
        self._numbers[_JOB] = _CompactNumbers(_joined([one.job_numbers() for one in frames]))
        self._codes = {name: _CompactNumbers(_joined([one.codes[name] for one in frames])) for name in first.codes}
        self._objects = {
            name: _Objects(name, [value for one in frames for value in one.objects[name]]) for name in first.objects
        }
        ends = self.numbers("end", None)
        self._first_end, self._last_end = int(ends.min()), int(ends.max())

    def ended(self, start: int, stop: int | None) -> Frame | None:
        """The entries whose runs ended from `start` until `stop` (exclusive; None: open), or None if there are none."""
        if self._last_end < start or (stop is not None and self._first_end >= stop):
            return None
        if self._first_end >= start and (stop is None or self._last_end < stop):
            return KeptFrame(self, None)
        ends = self.numbers("end", None)
        mask: Mask = ends >= start
        return KeptFrame(self, np.flatnonzero(mask if stop is None else mask & (ends < stop)))

    def without(self, gone: Ints) -> Frame:
        """The places of entries of other runs, in ascending order."""
        return KeptFrame(self, np.flatnonzero(~np.isin(self.numbers(ROW, None), gone)))

    def numbers(self, name: str, places: Ints | None) -> Ints:
        """Numbers at these places, or all; raises KeyError."""
        return self._at(self._numbers[name], places)

    def codes(self, name: str, places: Ints | None) -> Ints:
        """Codes at these places, or all."""
        return self._at(self._codes[name], places)

    def objects(self, name: str, places: Ints | None) -> list[Any]:
        """Values at these places, or all."""
        return self._objects[name].at(np.arange(self.rows) if places is None else places)

    def _at(self, column: _CompactNumbers, places: Ints | None) -> Ints:
        if column.only is not None:
            return np.full(self.rows if places is None else len(places), column.only, np.int64)
        return column.at(places)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the columns of numbers, codes, and objects."""
        numbers = tuple(name for name in self._numbers if name != _JOB)
        return numbers, tuple(self._codes), tuple(self._objects)

    @property
    def bytes(self) -> int:
        """Approximate memory in bytes."""
        return sum(one.bytes for each in (self._numbers, self._codes, self._objects) for one in each.values())


class _Lazy(Mapping[str, _Value]):
    """Columns that are unpacked when they are first requested."""

    def __init__(self, names: tuple[str, ...], unpacked: Callable[[str], _Value]) -> None:
        self._names = names
        self._unpacked = unpacked
        self._found: dict[str, _Value] = {}

    def __getitem__(self, name: str) -> _Value:
        if name not in self._found:
            self._found[name] = self._unpacked(name)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class KeptFrame(Frame):
    """Entries of a chunk, with all its columns, which are unpacked when they are used."""

    __slots__ = ("_chunk", "_places")

    def __init__(self, chunk: ColumnChunk, places: Ints | None) -> None:
        """`places` are the places of the entries in the chunk, ascending; None: all."""
        numbers, codes, objects = chunk.names
        super().__init__(
            chunk.rows if places is None else len(places),
            _Lazy(numbers, lambda name: chunk.numbers(name, places)),
            _Lazy(codes, lambda name: chunk.codes(name, places)),
            _Lazy(objects, lambda name: chunk.objects(name, places)),
        )
        self._chunk = chunk
        self._places = places

    def job_numbers(self) -> Ints:
        """See `Frame`."""
        return self._chunk.numbers(_JOB, self._places)

    def where(self, mask: Mask) -> Frame:
        """The entries for which `mask` is true."""
        if mask.all():
            return self
        chosen = np.flatnonzero(mask)
        return KeptFrame(self._chunk, chosen if self._places is None else self._places[chosen])


def _joined(columns: list[Ints]) -> Ints:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)

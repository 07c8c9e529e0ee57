"""Objects as they are spooled: a key, attributes, and the sublists that the spooling framework distinguishes.

A kind describes what its objects have: single values; lists of values (the framework's lists of references); name/value
pairs; and subordinate objects, which exist only with their object. All of them are rows with columns, so a layout says
only how rows are framed. Layouts depend only on this. An error of a spooling context never stops the publisher: what
could not be written is written later.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from publisher.errors import PublisherError

Scalar = Literal["int", "float", "text", "bytes", "flag", "any"]
"""`any`: an int, float, or text, which the files distinguish."""
Values = Mapping[str, Any]
"""Values by attribute: a scalar; a tuple of scalars; a dictionary of name/value pairs; or, for subordinate objects, a
tuple of such mappings. Missing values are omitted."""


class Shape(enum.IntEnum):
    """What the value of an attribute is, in the order in which the attributes of a kind are."""

    SINGLE = 0
    LIST = 1
    PAIRS = 2
    PARTS = 3
    """Subordinate objects."""


class Attribute(msgspec.Struct, frozen=True):
    """An attribute: its shape, the columns of its rows, and how its value becomes rows, each with a cell for each
    column, and back. `single`: the type of a single value, which is one row with one column."""

    shape: Shape
    columns: Mapping[str, Scalar]
    rows_of: Callable[[Any], Iterable[Sequence[Any]]]
    value_of: Callable[[Sequence[Any]], Any]
    single: Scalar | None = None


def single(of: Scalar) -> Attribute:
    """An attribute with one value."""
    return Attribute(Shape.SINGLE, {"value": of}, lambda value: ((value,),), lambda rows: rows[0][0], of)


def list_of(of: Scalar) -> Attribute:
    """An attribute with a list of values."""
    return Attribute(
        Shape.LIST,
        {"value": of},
        lambda values: [(value,) for value in values],
        lambda rows: tuple([value for (value,) in rows]),
    )


PAIRS: Final = Attribute(Shape.PAIRS, {"name": "text", "value": "any"}, dict.items, dict)
"""An attribute with name/value pairs."""


def parts_of(columns: Mapping[str, Scalar]) -> Attribute:
    """An attribute with subordinate objects."""
    return Attribute(
        Shape.PARTS,
        columns,
        lambda parts: [[part.get(name) for name in columns] for part in parts],
        lambda rows: tuple([dict(zip(columns, row, strict=True)) for row in rows]),
    )


class Kind(msgspec.Struct, frozen=True, dict=True):
    """A kind of object: what its objects have, in the order of shapes."""

    name: str
    fields: Mapping[str, Attribute]

    @cached_property
    def attributes(self) -> Mapping[str, Attribute]:
        """All attributes of an object of this kind except its subordinate objects."""
        return {name: field for name, field in self.fields.items() if field.shape is not Shape.PARTS}

    @cached_property
    def parts(self) -> Mapping[str, Attribute]:
        """The subordinate objects."""
        return {name: field for name, field in self.fields.items() if field.shape is Shape.PARTS}

    def only(self, names: Collection[str]) -> Kind:
        """This kind with only these attributes and subordinate objects."""
        return Kind(self.name, {name: field for name, field in self.fields.items() if name in names})

    def of(self, item: Object) -> Object:
        """Return an object with the values that this kind has."""
        return Object(item.kind, item.key, {name: value for name, value in item.values.items() if name in self.fields})


class Object(msgspec.Struct, frozen=True):
    """An object. Its key is unique among those of its kind."""

    kind: str
    key: str
    values: Values


def key_of(*words: object) -> str:
    """The key of an object that several words together identify; keys are equal only for equal words."""
    return ",".join(quote(str(word), safe="/@:+=") for word in words)


class SpoolError(PublisherError):
    """A context cannot be read or written."""

    retry_helps = True

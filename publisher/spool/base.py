"""Objects as they are spooled: a key, attributes, and the sublists that the spooling framework distinguishes.

A kind defines what its objects have: single values; lists of values (the framework's lists of references); name/value
pairs; and subordinate objects, which exist only with their object. Formats depend only on this. An error of a spooling
context never stops the publisher: what could not be written is written later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from publisher.errors import PublisherError

Scalar = Literal["int", "float", "text", "bytes", "flag"]
Values = Mapping[str, Any]
"""Values by attribute: a scalar; a tuple of scalars; a dictionary of name/value pairs; or, for subordinate objects, a
tuple of such mappings. Missing values are omitted."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of object. `pairs` have values of any scalar type, which the files distinguish."""

    name: str
    scalars: Mapping[str, Scalar]
    lists: Mapping[str, Scalar] = {}
    pairs: tuple[str, ...] = ()
    parts: Mapping[str, Mapping[str, Scalar]] = {}

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes of an object of this kind except its subordinate objects."""
        return (*self.scalars, *self.lists, *self.pairs)

    def only(self, names: Collection[str]) -> Kind:
        """This kind with only these attributes and subordinate objects."""
        return Kind(
            self.name,
            {name: of for name, of in self.scalars.items() if name in names},
            {name: of for name, of in self.lists.items() if name in names},
            tuple(name for name in self.pairs if name in names),
            {name: fields for name, fields in self.parts.items() if name in names},
        )

    def of(self, item: Object) -> Object:
        """Return an object with the values that this kind has."""
        values = {name: value for name, value in item.values.items() if name in self.attributes or name in self.parts}
        return Object(item.kind, item.key, values)


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

"""The part of DER (ITU-T X.690) for signatures and names: bounded, with definite lengths only."""

from __future__ import annotations

import msgspec

_CONSTRUCTED = 0x20
_MOST_LENGTH_BYTES = 4


class DerError(ValueError):
    """The bytes are not DER."""


class Element(msgspec.Struct, frozen=True):
    """One element: its tag, its content, and its complete encoding."""

    tag: int
    content: bytes
    encoded: bytes

    def children(self) -> list[Element]:
        """The elements inside. Raises `DerError` if this one is primitive."""
        if not self.tag & _CONSTRUCTED:
            raise DerError(f"element with tag {self.tag:#x} has no parts")
        elements: list[Element] = []
        position = 0
        while position < len(self.content):
            element = read(self.content, position)
            elements.append(element)
            position += len(element.encoded)
        return elements

    def oid(self) -> str:
        """The object identifier in dotted form."""
        if self.tag != 0x06 or not self.content:
            raise DerError("an object identifier was expected")
        arcs: list[int] = []
        value = 0
        for byte in self.content:
            value = value << 7 | byte & 0x7F
            if not byte & 0x80:
                arcs.append(value)
                value = 0
        if not arcs:
            raise DerError("an object identifier is cut off")
        first = min(arcs[0] // 40, 2)
        return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))

    def integer(self) -> int:
        """The value of an INTEGER."""
        if self.tag != 0x02:
            raise DerError("an integer was expected")
        return int.from_bytes(self.content, signed=True)


def read(data: bytes, position: int = 0) -> Element:
    """The element that begins at `position`. Raises `DerError`."""
    header_end = position + 2
    if header_end > len(data):
        raise DerError("the data end within an element")
    tag, length = data[position], data[position + 1]
    if tag & 0x1F == 0x1F:
        raise DerError("tags of several bytes are not used in signatures")
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= _MOST_LENGTH_BYTES or header_end + count > len(data):
            raise DerError("the length of an element is indefinite, too large or cut off")
        length = int.from_bytes(data[header_end : header_end + count])
        header_end += count
    end = header_end + length
    if end > len(data):
        raise DerError("an element is longer than the data")
    return Element(tag=tag, content=data[header_end:end], encoded=data[position:end])


def read_all(data: bytes) -> Element:
    """The only element of `data`. Raises `DerError` if there is more data."""
    element = read(data)
    if len(element.encoded) != len(data):
        raise DerError("there are data after the element")
    return element


def write(tag: int, *parts: bytes) -> bytes:
    """The encoding of an element with the content `parts`, joined."""
    length = sum(map(len, parts))
    if length < 0x80:
        header = bytes((tag, length))
    else:
        size = length.to_bytes((length.bit_length() + 7) // 8)
        header = bytes((tag, 0x80 | len(size))) + size
    return b"".join((header, *parts))

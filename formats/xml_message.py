"""The message around XML records: a root element that declares the namespaces once, one record a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from formats.signed_text import referenced
from formats.view import NamespaceStyle

DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
"""ASCII is UTF-8 too, and SGAS decodes every message as UTF-8, whatever it declares."""

SEPARATOR: Final = b"\n"

_UNPREFIXED: Final = re.compile(r"<(/?)(?=[A-Z])")
"""A tag of the default namespace. Text never holds a `<`: it is escaped."""


class XmlMessage:
    """A `UsageRecords` element of a format. The records use the prefixes that its root declares.

    Elements stand in the default namespace or, in the style `prefixed`, carry the prefix `urf` as attributes always do:
    the same to every parser of namespaces, and needed by readers that look for the prefix.
    """

    def __init__(self, namespaces: Mapping[str, str], style: NamespaceStyle) -> None:
        """`namespaces`: by prefix; the empty prefix is that of the elements, and `urf` is the same."""
        self._prefixed = style == "prefixed"
        named = {prefix: uri for prefix, uri in namespaces.items() if prefix or not self._prefixed}
        declared = "".join(f' xmlns{":" + prefix if prefix else ""}="{uri}"' for prefix, uri in named.items())
        root = "urf:UsageRecords" if self._prefixed else "UsageRecords"
        self._head = f"{DECLARATION}\n<{root}{declared}>".encode("ascii")
        self._tail = f"</{root}>\n".encode("ascii")

    def styled(self, body: str) -> bytes:
        """A record, rendered in the default namespace, in the style of this message, and such that it can be signed.

        Whether it is signed or not: an element has one spelling, whichever way the message travels.
        """
        return referenced(_UNPREFIXED.sub(r"<\1urf:", body) if self._prefixed else body).encode("ascii")

    def of(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records; without any, its frame."""
        return SEPARATOR.join((self._head, *bodies, self._tail))  # at once: a message is large, and copying it costs

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the frame, with the line end behind the last record."""
        return len(self._head) + 2 * len(SEPARATOR) + len(self._tail)

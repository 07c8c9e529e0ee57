"""Ads of `condor_history -xml`, one after the other; memory is bounded by the largest ad.

A file may contain several documents, for instance if output of the command is appended to it. In one that is cut off or
damaged, only the ads after that place are lost.

HTCondor writes control characters, and bytes that are not UTF-8, unchanged, which XML forbids. They become `?` and
`\\xNN`, so that no text in an ad damages its document.

Input is hostile: no entities, no DTD, no network, no huge texts. The document type that HTCondor writes names a DTD,
which is not read; one with declarations is refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from lxml import etree

from publisher.sources.base import UnreadableLine
from publisher.sources.htcondor.ad import Value, is_read

_BLOCK: Final = 1 << 16
_MOST_BYTES: Final = 16 * 2**20
"""Between the ends of two ads."""
_MARK: Final = re.compile(rb"(?P<begin><\?xml[ \t\r\n])|(?P<end></classads[ \t\r\n]{0,16}>)|(?P<entity><!ENTITY)")
"""The beginning or end of a document, or a declaration of an entity: `<` in the content of a document is always
`&lt;`.
"""
_LONGEST_MARK: Final = 32
_LONGEST_HEAD: Final = 4_096
_NO_ADS: Final = re.compile(rb"[ \t\r\n]*(?:<\?xml[ \t\r\n][^>]*(?:\?>[ \t\r\n]*)?)?")
_FORBIDDEN: Final = bytes(code for code in range(32) if code not in b"\t\n\r")
_ALLOWED: Final = bytes.maketrans(_FORBIDDEN, b"?" * len(_FORBIDDEN))
_PLACE: Final = re.compile(r", line \d+, column \d+$")
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"


def ads(read: Callable[[int], bytes]) -> Iterator[dict[str, Value] | UnreadableLine]:
    """The attributes of each ad, names in lower case; unreadable input ends its document with an `UnreadableLine`."""
    document = _Document(line=1)
    for kind, piece in _pieces(read):
        if kind == "begin":  # the previous one may be cut off
            yield from document.close()
            document = _Document(document.line)
        if kind == "entity":
            yield from document.refuse("the document declares entities; HTCondor's do not")
        yield from document.feed(piece)
        if kind == "end":
            yield from document.close()
            document = _Document(document.line)
    yield from document.close()


class _Document:
    """A document that is being read. `line`: the next line of the file."""

    def __init__(self, line: int) -> None:
        self.line = line
        self._begins = line
        self._parser: Any = None
        self._head = b""
        self._since = 0
        self._over = False

    def feed(self, piece: bytes) -> Iterator[dict[str, Value] | UnreadableLine]:
        """The ads that end in the next piece of the document."""
        if self._parser is None and not self._head:
            bare = piece.lstrip(_BLANK)
            self.line += piece[: len(piece) - len(bare)].count(b"\n")
            self._begins, piece = self.line, bare
        self.line += piece.count(b"\n")
        if self._over or not piece:
            return
        if self._parser is None:
            self._head = piece = self._head + piece
            if len(piece) < _LONGEST_HEAD and _NO_ADS.fullmatch(piece):
                return  # a parser costs more than an empty document
            self._parser = etree.XMLPullParser(
                events=("end",), tag="c", resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False,
                remove_comments=True, remove_pis=True, encoding="utf-8",
            )  # fmt: skip
        self._since += len(piece)
        yield from self._parsed(self._parser.feed, piece)
        if self._since > _MOST_BYTES:
            yield from self.refuse(f"an ad of more than {_MOST_BYTES} bytes")

    def close(self) -> Iterator[dict[str, Value] | UnreadableLine]:
        """What is missing at the end of the document."""
        if self._parser is not None:
            yield from self._parsed(self._parser.close)
        elif self._head:
            yield from self.refuse(f"the document in line {self._begins} of the file is empty")

    def refuse(self, reason: str) -> Iterator[UnreadableLine]:
        """Stop reading the document, and give the reason, once."""
        if not self._over:
            self._over, self._parser = True, None
            yield UnreadableLine(reason)

    def _parsed(self, step: Callable[..., Any], *piece: bytes) -> Iterator[dict[str, Value] | UnreadableLine]:
        """The ads that end in a step of the parser, those before a damage too; then the damage."""
        damage: etree.XMLSyntaxError | None = None
        events = self._parser.read_events()
        try:
            step(*piece)
        except etree.XMLSyntaxError as error:
            damage = error
        for _, element in events:
            parent = element.getparent()
            if parent is not None and parent.tag != "classads":
                continue  # an ad in an ad
            self._since = 0
            yield _attributes(element)
            element.clear()
            while element.getprevious() is not None and parent is not None:
                del parent[0]
        if damage is not None:
            line = self._begins + (damage.lineno or 1) - 1
            what = _PLACE.sub("", str(damage.msg))
            yield from self.refuse(f"the XML is cut off or damaged in line {line} of the file: {what}")


def _pieces(read: Callable[[int], bytes]) -> Iterator[tuple[str, bytes]]:
    """The input in pieces: each mark by itself with its kind, and the text between them."""
    rest = b""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
    while block := read(_BLOCK):
        data = rest + _allowed(block, decoder)
        at = 0
        for mark in _MARK.finditer(data):
            yield "", data[at : mark.start()]
            yield mark.lastgroup or "", mark[0]
            at = mark.end()
        cut = data.rfind(b"<", max(at, len(data) - _LONGEST_MARK))
        cut = len(data) if cut < 0 else cut  # a mark may continue in the next block
        yield "", data[at:cut]
        rest = data[cut:]
    yield "", rest + decoder.decode(b"", final=True).encode()


def _allowed(block: bytes, decoder: codecs.IncrementalDecoder) -> bytes:
    """A block in UTF-8, with only characters that XML allows."""
    if not block.isascii() or decoder.getstate()[0]:  # a character may continue in the next block
        text = decoder.decode(block)
        block = text.replace("\ufffe", "?").replace("\uffff", "?").encode()
    return block.translate(_ALLOWED)


def _attributes(element: Any) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for attribute in element.iterchildren("a"):
        name = (attribute.get("n") or "").lower()
        value = next(attribute.iterchildren(), None)
        if value is not None and is_read(name):
            attributes[name] = _value(value)
    return attributes


def _value(element: Any) -> Value:
    text = element.text or ""
    if element.tag == "s":
        return str(text)
    if element.tag == "b":
        return bool((element.get("v") or text) in {"t", "true"})
    if element.tag == "c":
        return {str(part.get("n")): _value(part[0]) for part in element.iterchildren("a") if len(part)}
    if element.tag in {"i", "r"}:
        try:
            return int(text) if element.tag == "i" else float(text)
        except ValueError:
            return None
    return str(text) if element.tag == "e" else None

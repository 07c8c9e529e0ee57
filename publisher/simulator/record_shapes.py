"""Read records of the same shape without parsing each of them, so that the simulator costs little in a benchmark.

A record is split into tags and texts, and these into the children of the record, each of which is read separately. The
first child with a sequence of tags is read by the parser with a mark in every text, which shows where each value is;
further children with the same tags are looked up. This is correct because `<` and `>` alternate in the whole message,
so that equal tags mean equal structure, with any texts; the values of `RecordIdentity`, which differ from record to
record, count as texts. Everything else (comments, CDATA, declarations, character references, `xmlns` in a varying tag)
and every error is left to the parser, and only the parser refuses a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from typing import Final, NamedTuple, TypeAlias

_HEAD = re.compile(r"(?:<\?xml[^<>?]*\?>\s*)?<([A-Za-z_][\w.-]*:)?UsageRecords(?:\s[^<>]*)?>\s*")
_IDENTITY = re.compile(r'((?:[A-Za-z_][\w.-]*:)?RecordIdentity)((?:\s+[\w.:-]+="[^"&\t\r\n]*")*)(\s*/?)')
_ATTRIBUTE = re.compile(r'([\w.:-]+)="([^"]*)"')
_CONTROLS = bytes({*range(32), 127} - {9, 10})
_NOT_MARKUP = bytes(set(range(256)) - set(b"<>"))
_UNUSUAL = ("\ue000", "\ufffe", "\uffff")
_REFERENCE = re.compile("&(?!(?:amp|lt|gt|quot|apos);)")
_MARK = re.compile("\ue000([0-9]+)\ue001")
_MOST_SHAPES = 1024
_MOST_KINDS = 16
_LONGEST_KEY = 16 * 1024


class NotUsageRecordsError(ValueError):
    """Not well formed, not UTF-8, or not a message of usage records. SGAS answers only `Processing Failed`."""


Leaf: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]
"""One value of a record: its slot, its text (empty for an empty element), its attributes without prefix."""

Values: TypeAlias = tuple[dict[str, str], tuple[Leaf, ...]]
"""A record: the values of which the last counts, by slot, and in order those of which each counts (`MANY`, `EMPTY`)."""

MANY: Final = frozenset(
    {"CpuDuration", "Memory", "RuntimeEnvironment", "Vo", "VoAttribute", "VoGroup", "VoRole", "TransferDownload",
     "TransferUpload", "TransferURL", "TransferSize", "TransferStartTime", "TransferEndTime", "TransferBypassCache",
     "TransferRetrievedFromCache"}
)  # fmt: skip

EMPTY: Final = "Empty"
"""The slot of a leaf whose text is the slot of an empty element, after which another may follow."""


_Attributes: TypeAlias = tuple[tuple[str, str], ...]


class _UncommonRecordError(Exception):
    """A record that only the parser can read."""


class _TextChild(NamedTuple):
    """A child of a record that contains only text: its closing tag, and its slot if SGAS uses it.

    `kept`: the attributes, if each occurrence of the element counts, else None.
    """

    closing: str
    slot: str
    kept: _Attributes | None


class _Shape(NamedTuple):
    """Where the values of a child are in the list of its varying attributes, texts, and `constants`: place, slot, and
    the attributes, if each occurrence counts, else None."""

    places: tuple[tuple[int, str, _Attributes | None], ...]
    constants: tuple[str, ...]


class _ChildrenShape:
    """The known shapes of the children of records whose messages and records begin with the same tags."""

    def __init__(self, start: str, opening: str, end: str) -> None:
        self.before = f"{start}<{opening}>"
        self.after = f"</{opening.split(maxsplit=1)[0]}>{end}"
        self.texts: dict[str, _TextChild] = {}
        self.shapes: dict[str, _Shape] = {}


class _IdentityTag(NamedTuple):
    """The tag of a RecordIdentity with marks in place of its values, and the values."""

    blank: str
    marked: str
    values: list[str]


def collected(leaves: Iterable[Leaf]) -> Values:
    """A record from its values in their order."""
    singles: dict[str, str] = {}
    many: list[Leaf] = []
    for leaf in leaves:
        if leaf[0] in MANY:
            many.append(leaf)
        else:
            singles[leaf[0]] = leaf[1]
            if not leaf[1]:
                many.append((EMPTY, leaf[0], ()))
    return singles, tuple(many)


_Parser = Callable[[str], Iterator[list[Leaf]]]


class Shapes:
    """The shapes known so far. Several threads may use it: at worst a shape is made twice."""

    def __init__(self, parser: _Parser) -> None:
        """`parser` reads a whole message; it raises `NotUsageRecordsError`."""
        self._parser = parser
        self._kinds: dict[tuple[str, str], _ChildrenShape] = {}

    def read(self, body: bytes, text: str) -> list[Values] | None:
        """The records of a message (`text` is `body` decoded), or None for one that the parser must read."""
        markup = body.translate(None, _NOT_MARKUP)
        if markup != b"<>" * (len(markup) // 2) or len(body.translate(None, _CONTROLS)) != len(body):
            return None
        head = _HEAD.match(text)
        if head is None or any(sign in text for sign in _UNUSUAL) or (b"!" in body and b"<!" in body):
            return None
        start = head.group(0)
        if body.count(b"?") > start.count("?") and b"<?" in body[len(start) :]:
            return None
        prefix = head.group(1) or ""
        end = f"</{prefix}JobUsageRecord>"
        *records, rest = text[head.end() :].split(end)
        closing = f"</{prefix}UsageRecords>"
        if rest.strip(" \t\n") != closing:
            return None
        found: list[Values] = []
        try:
            for record in records:
                found += self._record(start, record.lstrip(" \t\n") + end, closing)
        except NotUsageRecordsError:
            return None
        return found

    def _record(self, start: str, record: str, end: str) -> list[Values]:
        pieces = record.replace(">", "<").split("<")  # texts at even places, tags at odd ones
        found = _IDENTITY.fullmatch(pieces[3]) if len(pieces) > 4 else None
        escaped = "&" in record
        odd = (
            found is None or pieces[0] or pieces[-1] or not pieces[1].strip() or (escaped and _REFERENCE.search(record))
        )
        if found is None or odd or "xmlns" in found.group(2):
            return self._parsed(start + record + end)
        if escaped:
            pieces[::2] = [unescape(text) if "&" in text else text for text in pieces[::2]]
        try:
            return [self._values(self._kind(start, pieces[1], end), pieces, _identity(found))]
        except _UncommonRecordError:
            return self._parsed(start + record + end)

    def _parsed(self, text: str) -> list[Values]:
        return [collected(leaves) for leaves in self._parser(text)]

    def _kind(self, start: str, opening: str, end: str) -> _ChildrenShape:
        kind = self._kinds.get((start, opening))
        if kind is None:
            kind = _ChildrenShape(start, opening, end)
            if len(self._kinds) < _MOST_KINDS and len(start) + len(opening) <= _LONGEST_KEY:
                self._kinds[start, opening] = kind
        return kind

    def _values(self, kind: _ChildrenShape, pieces: list[str], identity: _IdentityTag) -> Values:
        singles: dict[str, str] = {}
        many: list[Leaf] = []
        pieces[3] = identity.blank
        position, last = 3, len(pieces) - 2
        while position < last:
            known = kind.texts.get(pieces[position])
            if known is not None and pieces[position + 2] == known.closing:
                if known.kept is not None:
                    many.append((known.slot, pieces[position + 1], known.kept))
                elif known.slot:
                    singles[known.slot] = text = pieces[position + 1]
                    if not text:
                        many.append((EMPTY, known.slot, ()))
                position += 4
                continue
            after = _closing(pieces, position, last) + 1
            tags, texts = pieces[position:after:2], pieces[position + 1 : after : 2]
            key = "<".join(tags)
            shape = kind.shapes.get(key)
            if shape is None:
                shape = self._learn(kind, key, tags, identity if position == 3 else None)
            if position == 3:
                texts = identity.values + texts
            texts += shape.constants
            for place, slot, kept in shape.places:
                if kept is None:
                    singles[slot] = texts[place]
                    if not texts[place]:
                        many.append((EMPTY, slot, ()))
                else:
                    many.append((slot, texts[place], kept))
            position = after + 1
        return singles, tuple(many)

    def _learn(self, kind: _ChildrenShape, key: str, tags: list[str], identity: _IdentityTag | None) -> _Shape:
        varying = len(identity.values) if identity else 0
        opening = identity.marked if identity else tags[0]
        marked = "".join(f"{_mark(varying + number)}<{tag}>" for number, tag in enumerate(tags[1:]))
        records = list(self._parser(f"{kind.before}<{opening}>{marked}{kind.after}"))
        if len(records) != 1:
            raise _UncommonRecordError
        size = varying + len(tags) - 1
        constants: list[str] = []
        places: list[tuple[int, str, _Attributes | None]] = []
        for slot, text, attributes in records[0]:
            mark = _MARK.fullmatch(text)
            if mark is None:
                constants.append(text)
            place = int(mark.group(1)) if mark else size + len(constants) - 1
            places.append((place, slot, attributes if slot in MANY else None))
        shape = _Shape(tuple(places), tuple(constants))
        if len(kind.shapes) < _MOST_SHAPES and len(key) <= _LONGEST_KEY:
            kind.shapes[key] = shape
            if len(tags) == 2 and identity is None and not constants and len(places) < 2:
                _, slot, kept = places[0] if places else (0, "", None)
                kind.texts[tags[0]] = _TextChild(tags[1], slot, kept)
        return shape


def _closing(pieces: list[str], position: int, last: int) -> int:
    """The position of the tag that closes the one at `position`; the parser refuses one that comes too early."""
    tag = pieces[position]
    if tag.endswith("/"):
        return position
    try:
        return pieces.index("/" + tag.split(maxsplit=1)[0], position + 2, last)
    except (IndexError, ValueError) as error:
        raise _UncommonRecordError from error


def _identity(found: re.Match[str]) -> _IdentityTag:
    attributes = _ATTRIBUTE.findall(found.group(2))
    blank = _tag(found, [(name, "") for name, _ in attributes])
    marked = _tag(found, [(name, _mark(number)) for number, (name, _) in enumerate(attributes)])
    return _IdentityTag(blank, marked, [value for _, value in attributes])


def _tag(identity: re.Match[str], attributes: list[tuple[str, str]]) -> str:
    written = "".join(f' {name}="{value}"' for name, value in attributes)
    return f"{identity.group(1)}{written}{identity.group(3)}"


def _mark(number: int) -> str:
    return f"\ue000{number}\ue001"

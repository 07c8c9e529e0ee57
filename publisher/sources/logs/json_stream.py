"""Elements of a large JSON document, one after the other; memory is bounded by the largest element.

A document is an array of objects, several objects in sequence, or an object with the array under a key. A damaged
element affects only itself if the document is formatted in lines, as the batch systems' commands write it: reading
continues with the next line that begins an element with the same indentation.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from publisher.sources.fields import JSON_BYTES, LineError

MAX_ELEMENT: Final = 16 * 2**20
"""The most characters of an element, and of the text besides the array."""

_BLOCK: Final = 1 << 18
_BLANK: Final = re.compile(r"[ \t\r\n\ufeff]*")
_NEAR_END: Final = 16
_DEEPEST_INDENT: Final = 256


class Damaged(msgspec.Struct, frozen=True):
    """A part of a document that cannot be read: the reason, and its beginning."""

    reason: str
    begin: str


class JsonElements:
    """Reads a document through `read(size)`; `key` is that of the array in a document that is one object."""

    def __init__(self, read: Callable[[int], bytes], key: str = "") -> None:
        self._read = read
        self._key = key
        self._decode = codecs.getincrementaldecoder("utf-8")(errors=JSON_BYTES).decode
        self._scan = json.JSONDecoder(strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._reported = False

    def __iter__(self) -> Iterator[dict[str, Any] | Damaged]:
        """The elements, and damaged ones in their places. A document that ends too early ends with a `Damaged`."""
        try:
            yield from self._document()
        except LineError as error:
            if not self._reported:
                yield Damaged(str(error), self._text[self._at : self._at + 4_096])

    def _document(self) -> Iterator[dict[str, Any] | Damaged]:
        """The values in sequence: documents, as commands append them to a file, or bare objects."""
        while first := self._next():
            if first == "[":
                self._at += 1
                yield from self._array()
            elif first == "{" and self._key:
                self._at += 1
                yield from self._member()
            elif first == ",":
                self._at += 1
            else:
                yield from self._element()

    def _member(self) -> Iterator[dict[str, Any] | Damaged]:
        """The members of the object up to its end, including the array."""
        begin = self._text[self._at - 1 : self._at + 4_095]
        there = False
        while (mark := self._next()) != "}":
            if mark == ",":
                self._at += 1
                continue
            name = self._value()
            if self._next() != ":":
                raise LineError("the document is cut off, or not JSON")
            self._at += 1
            if name == self._key and self._next() == "[":
                self._at += 1
                there = True
                yield from self._array()
            else:
                there = (self._value() is None and name == self._key) or there
        self._at += 1
        if not there:
            yield Damaged(f"the document has no list `{self._key}`", begin)

    def _array(self) -> Iterator[dict[str, Any] | Damaged]:
        while (mark := self._next()) != "]":
            if mark == "":
                raise LineError("the document is cut off: its list has no end")
            if mark == ",":
                self._at += 1
                continue
            yield from self._element()
        self._at += 1

    def _element(self) -> Iterator[dict[str, Any] | Damaged]:
        begin = self._at
        line = self._text.rfind("\n", max(0, begin - _DEEPEST_INDENT), begin) + 1
        indent = self._text[line:begin] if line or begin < _DEEPEST_INDENT else "?"
        in_lines = not indent.strip()
        try:
            value = self._value()
        except LineError as error:
            yield Damaged(str(error), self._text[self._at : self._at + 4_096])
            if not in_lines or not self._skip_to(re.compile(rf"\n{indent}\{{|\n{indent[:-2] if indent else ''}\]")):
                self._text, self._at, self._ended, self._reported = "", 0, True, True
            return
        if isinstance(value, dict):
            yield value
        else:
            yield Damaged("an element is not an object", str(value)[:4_096])

    def _value(self) -> Any:
        """The value that begins here. Raises `LineError`."""
        self._next()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
                if self._text.find("\\u", self._at, end) >= 0:
                    value = _without_surrogates(value)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _NEAR_END
                if not (unfinished and len(self._text) - self._at < MAX_ELEMENT and self._more()):
                    raise LineError(f"the JSON is cut off or damaged: {error.msg}") from None
            except (ValueError, RecursionError):
                raise LineError("the JSON is damaged: a number is too long, or it is nested too deeply") from None
            else:
                if end < len(self._text) or not self._more():
                    self._at = end
                    return value

    def _skip_to(self, pattern: re.Pattern[str]) -> bool:
        """Move to the next match after the present position; False if there is none."""
        at = self._at + 1
        while True:
            match = pattern.search(self._text, at)
            if match:
                self._at = match.start() + 1
                return True
            self._at = max(self._at, len(self._text) - _DEEPEST_INDENT)
            if not self._more():  # this moves the position
                return False
            at = self._at

    def _next(self) -> str:
        """Move to the next character that is not a blank and give it; empty at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read as much again as is kept, so that a large element is not scanned too often."""
        if self._ended:
            return False
        keep = max(0, self._at - _DEEPEST_INDENT)  # the indentation of the present element
        self._text, self._at = self._text[keep:], self._at - keep
        data = self._read(max(_BLOCK, len(self._text)))
        self._ended = not data
        self._text += self._decode(data, not data)
        return True


def _without_surrogates(value: Any) -> Any:
    """The value with each half of a surrogate pair, which JSON can contain and text cannot, as `\\udXXX`."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return value

"""The marks of all files of a log, in little memory: a log may have a file for each day, or job, of years.

A settled mark (`Mark.is_settled`) is kept as its text, which the cursor has too, until something is asked of it. The
others, and those that were asked for, are objects, so that what is noted of one is noted of it wherever it is held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from publisher.sources.logs.mark import Key, Mark


class Marks:
    """The present mark of each file by device and inode. `stored`: see `stored()`. Raises as `Mark.of`."""

    def __init__(self, stored: Iterable[Any] = ()) -> None:
        self._texts: dict[Key, str] = {}
        self._objects: dict[Key, Mark] = {}
        self._by_lead: dict[str, tuple[Key, ...]] | None = None
        """The files that have, or had, marks with a lead, once they were asked for."""
        for value in stored:
            mark = Mark.of(value)
            if mark.is_settled:
                self._texts[mark.key] = value if isinstance(value, str) else mark.text
            else:
                self._objects[mark.key] = mark

    def stored(self) -> list[str]:
        """The texts of all marks."""
        return [*self._texts.values(), *(mark.text for mark in self._objects.values())]

    def keys(self) -> list[Key]:
        """The files, by device and inode."""
        return [*self._texts, *self._objects]

    def read(self) -> Iterator[Mark]:
        """Each mark, to be looked at only: of a text, an object that nobody else has."""
        yield from map(Mark.of, self._texts.values())
        yield from self._objects.values()

    def held(self) -> Collection[Mark]:
        """The marks that are objects: all that are not settled are among them."""
        return self._objects.values()

    def peek(self, key: Key) -> Mark | None:
        """The mark of a file, to be looked at only."""
        text = self._texts.get(key)
        return self._objects.get(key) if text is None else Mark.of(text)

    def hold(self, key: Key) -> Mark | None:
        """The mark of a file, which is the same object from now on."""
        text = self._texts.pop(key, None)
        if text is not None:
            self._objects[key] = Mark.of(text)
        return self._objects.get(key)

    def put(self, mark: Mark) -> None:
        """Replace the mark of a file."""
        self._texts.pop(mark.key, None)
        self._objects[mark.key] = mark
        if self._by_lead is not None:
            self._note_lead(mark)

    def settle(self, mark: Mark) -> None:
        """Keep the text of a mark that nobody else has, if it is settled."""
        if mark.is_settled and self._objects.get(mark.key) is mark:
            del self._objects[mark.key]
            self._texts[mark.key] = mark.text

    def remove(self, mark: Mark) -> bool:
        """Remove a mark that is an object, if it is the present one of its file."""
        is_present = self._objects.get(mark.key) is mark
        if is_present:
            del self._objects[mark.key]
        return is_present

    def beginning_with(self, lead: str) -> list[Mark]:
        """The marks of files with this lead or none, which are held from now on."""
        if self._by_lead is None:
            self._by_lead = {}
            for mark in self.read():
                self._note_lead(mark)
        keys = {*self._by_lead.get("", ()), *self._by_lead.get(lead, ())}
        return [mark for mark in map(self.hold, keys) if mark is not None and mark.lead in {"", lead}]

    def _note_lead(self, mark: Mark) -> None:
        assert self._by_lead is not None
        self._by_lead[mark.lead] = (*self._by_lead.get(mark.lead, ()), mark.key)

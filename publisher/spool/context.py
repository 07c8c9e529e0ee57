"""A spooling context: how and where objects are spooled. The functions are those of the spooling framework.

    startup, maintain, shutdown      prepare the place; tidy it; release it
    write_object, delete_object      an object in its present state; an object that is gone
    read_list, read_object           the contents of the place
    make_place, has_place, count     of a kind: to notice that somebody else removed something
    commit                           sync what was written since the last commit to disk

An object written twice is stored once: a change that may not be on disk is written again after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from publisher.config.schema import SpoolContext
from publisher.spool.base import Kind, Object


class SpoolingContext(Protocol):
    """A spooling context, used by one thread of one process at a time. Its functions raise `SpoolError`."""

    def startup(self) -> None:
        """Prepare the place; created private if it is missing."""
        ...

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Clean up: remove what was replaced later."""
        ...

    def shutdown(self) -> None:
        """Release the place."""
        ...

    def commit(self) -> None:
        """Sync what was written to disk."""
        ...

    def clear(self, kind: Kind) -> None:
        """Remove all objects of a kind, because they are written again."""
        ...

    def make_place(self, kind: Kind) -> None:
        """Create the files or tables of a kind that are missing, without any object."""
        ...

    def has_place(self, kind: Kind) -> bool:
        """Whether the files or tables of a kind exist."""
        ...

    def count(self, kind: Kind) -> int:
        """How many objects of a kind are there."""
        ...

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Write an object unless it exists unchanged; return whether anything was written."""
        ...

    def delete_object(self, kind: Kind, key: str) -> None:
        """Remove an object, if it exists."""
        ...

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """All objects of a kind."""
        ...

    def read_object(self, kind: Kind, key: str) -> Object | None:
        """One object."""
        ...

    def note(self, text: str | None) -> None:
        """Store a text for the whole context; None deletes it."""
        ...

    def noted(self) -> str | None:
        """Return the stored text."""
        ...


def make_context(settings: SpoolContext) -> SpoolingContext:
    """Make the context from its settings, without touching its place."""
    return _MAKERS[settings.format](settings)


def _classic(settings: SpoolContext) -> SpoolingContext:
    from publisher.spool.name_value import Classic  # noqa: PLC0415 - only the format that is used

    return Classic(settings.folder)


def _delimited(settings: SpoolContext) -> SpoolingContext:
    from publisher.spool.delimited import Delimited  # noqa: PLC0415

    return Delimited(settings.folder, settings.delimiter)


def _json_lines(settings: SpoolContext) -> SpoolingContext:
    from publisher.spool.json_lines import JsonLines  # noqa: PLC0415

    return JsonLines(settings.folder)


def _xml(settings: SpoolContext) -> SpoolingContext:
    from publisher.spool.xml import Xml  # noqa: PLC0415

    return Xml(settings.folder)


def _database(settings: SpoolContext) -> SpoolingContext:
    from publisher.spool.database import Database  # noqa: PLC0415

    return Database(settings.url)


_MAKERS: Final[Mapping[str, Callable[[SpoolContext], SpoolingContext]]] = {
    "classic": _classic,
    "delimited": _delimited,
    "json-lines": _json_lines,
    "xml": _xml,
    "database": _database,
}
FILE_FORMATS: Final[Sequence[str]] = ("json-lines", "classic", "delimited", "xml")
"""The formats that `store export` writes; the first is the usual one."""

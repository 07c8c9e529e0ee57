"""A spooling context: how and where objects are spooled. The functions are those of the spooling framework.

    startup, maintain, shutdown      prepare the place; tidy it; release it
    write_object, delete_object      an object in its present state; an object that is gone
    read_list                        the contents of the place
    make_place, has_place, count     of a kind: to notice that somebody else removed something
    commit                           sync what was written since the last commit to disk

An object written twice is stored once: a change that may not be on disk is written again after a kill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from publisher.config.schema import SpoolContext
from publisher.spool.base import Kind, Object
from publisher.spool.classic import Classic
from publisher.spool.database import Database
from publisher.spool.delimited import Delimited
from publisher.spool.json_lines import JsonLines


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

    def note(self, text: str | None) -> None:
        """Store a text for the whole context; None deletes it."""
        ...

    def noted(self) -> str | None:
        """Return the stored text."""
        ...


def make_context(settings: SpoolContext) -> SpoolingContext:
    """Make the context from its settings, without touching its place."""
    match settings.format:
        case "classic":
            return Classic(settings.folder)
        case "delimited":
            return Delimited(settings.folder, settings.delimiter)
        case "json-lines":
            return JsonLines(settings.folder)
        case "xml":
            from publisher.spool.xml import Xml  # noqa: PLC0415 - loads lxml, which the others do not need

            return Xml(settings.folder)
        case "database":
            return Database(settings.url)


FILE_FORMATS: Final[Sequence[str]] = ("json-lines", "classic", "delimited", "xml")
"""The formats that `store export` writes; the first is the usual one."""

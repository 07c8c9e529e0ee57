"""A spooling context: how and where objects are spooled. The functions are those of the spooling framework.

    startup, maintain, shutdown      the place is made ready; tidied up; let go
    write_object, delete_object      an object as it is now; an object that is gone
    read_list, read_object           what the place holds
    commit                           what was written since the last commit is on the disk

What is written twice is there once: a change that was not known to be on the disk is written again after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from publisher.config.schema import SpoolContext
from publisher.spool.base import Kind, Object


class SpoolingContext(Protocol):
    """See the module. A context is used by one thread of one process at a time. Its functions raise `SpoolError`."""

    def startup(self) -> None:
        """Make the place ready; private, made where it is missing."""
        ...

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Tidy up: leave out what was replaced by something later."""
        ...

    def shutdown(self) -> None:
        """Let the place go."""
        ...

    def commit(self) -> None:
        """See that what was written is on the disk."""
        ...

    def clear(self, kind: Kind) -> None:
        """Take all objects of a kind out, because they are written anew."""
        ...

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Write an object, where it is not there as it is; gives whether anything was written."""
        ...

    def delete_object(self, kind: Kind, key: str) -> None:
        """Take an object out, if it is there."""
        ...

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """All objects of a kind."""
        ...

    def read_object(self, kind: Kind, key: str) -> Object | None:
        """One object."""
        ...

    def note(self, text: str | None) -> None:
        """Remember one text for the context as a whole; None forgets it."""
        ...

    def noted(self) -> str | None:
        """The text."""
        ...


def make_context(settings: SpoolContext) -> SpoolingContext:
    """The context of its settings. Nothing is touched yet."""
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

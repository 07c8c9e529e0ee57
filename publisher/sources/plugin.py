"""A source of an add-on: an error in it, or in the pages it gives, is a problem of this source only."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Final

import msgspec

from publisher.config.sources import SourceSettings
from publisher.errors import ConfigError, PublisherError, SourceError
from publisher.finding import Finding
from publisher.plugins import blamed
from publisher.sources.base import FILE_MARKS, NONE_RECOGNISED, Cursor, Page, Source, Window

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Page)


class AddedSource:
    """A source whose methods raise nothing but `SourceError`; `make` is the factory of the add-on.

    If it cannot be made, the reason is raised when it is read, so that other sources are still read.
    """

    def __init__(self, name: str, settings: SourceSettings, make: Callable[[str, SourceSettings], Source]) -> None:
        """Raises `ConfigError` if the add-on does: its settings are wrong."""
        self.name = name
        self.kind = self._added_as = settings.type
        self._made: Source | SourceError
        try:
            with self._explained():
                self._made = make(name, settings)
                self.kind = str(self._made.kind)
        except SourceError as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            self._made = error

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `publisher.sources.base.Source`."""
        with closing(self._checked(cursor, window)) as pages:
            while True:
                with self._explained():
                    page = next(pages, None)
                if page is None:
                    return
                yield page

    def complete_since(self) -> int | None:
        """See `publisher.sources.base.Source`."""
        with self._explained():
            return msgspec.convert(self._source().complete_since(), int | None)

    def check(self) -> list[Finding]:
        """See `publisher.sources.base.Source`."""
        with self._explained():
            return msgspec.convert(list(self._source().check()), list[Finding])

    def _checked(self, cursor: Cursor, window: Window | None) -> Generator[Page, None, None]:
        """The pages of the add-on, as far as they can be decoded again once they are stored."""
        own = {name: value for name, value in cursor.items() if name != FILE_MARKS}
        for page in self._source().pages(own, window):
            _decoder.decode(_encoder.encode(page))
            # These are internal.
            yield msgspec.structs.replace(page, marks=(), recognised=NONE_RECOGNISED, file_marks=())

    def _source(self) -> Source:
        if isinstance(self._made, SourceError):
            raise self._made
        return self._made

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            with blamed("source", self._added_as, SourceError):
                yield
        except SourceError:
            raise
        except PublisherError as error:
            raise SourceError(error.message, hint=error.hint) from error

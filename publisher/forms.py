"""Formats by name: those of `formats.registry`, and those with one record a run that add-ons bring.

An add-on's format is a callable of a `View` that gives a `formats.record.RecordFormat`. A record that it fails at is
held with what went wrong, as one that it says it cannot render; the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from formats.job import Job
from formats.record import CannotRenderError, RecordFormat, Rendered
from formats.registry import FORMAT_NAMES, RECORD_FORMATS
from formats.registry import record_format as built_in
from formats.signed_text import why_not_signable
from formats.view import View
from publisher import add_ons
from publisher.errors import TargetError, UsageError


def require_format(name: str) -> None:
    """Raise `UsageError`, with the names there are, for a format that is not known."""
    known = [*FORMAT_NAMES, *add_ons.names(add_ons.FORMATS)]
    if name not in known:
        raise UsageError(f"there is no format {name!r}; there are {', '.join(known)}")


def record_format(name: str, view: View) -> RecordFormat:
    """The format of that name, bound to a view.

    Raises `formats.registry.UnknownFormatError`, and `ConfigError` for an add-on that cannot be loaded.
    """
    make = None if name in RECORD_FORMATS else add_ons.load(add_ons.FORMATS, name, key="records")
    if make is None:
        return built_in(name, view)
    with add_ons.blamed("format", name, TargetError):
        return AddedFormat(name, make(view), signed=view.signed)


class AddedFormat:
    """A format that raises nothing but errors of ours.

    `signed`: its messages are signed, so that a record with which none could be is held.
    """

    def __init__(self, name: str, made: RecordFormat, *, signed: bool = False) -> None:
        self.name = name
        self.content_type = str(made.content_type)
        self.overhead_bytes = int(made.overhead_bytes)
        self.separator_bytes = int(made.separator_bytes)
        self._made = made
        self._signed = signed

    def record(self, job: Job, created: int) -> Rendered:
        """See `formats.record.RecordFormat`."""
        try:
            rendered = _decode(_encode(self._made.record(job, created)))
        except CannotRenderError:
            raise
        except Exception as error:
            why = f"the add-on failed at this record: {add_ons.what_went_wrong(error)}. {add_ons.ITS_DEFECT}"
            raise CannotRenderError(self.name, why) from error
        why_not = why_not_signable(rendered.body) if self._signed else None
        if why_not is not None:
            raise CannotRenderError(self.name, f"no message with this record can be signed: {why_not}")
        return rendered

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """See `formats.record.RecordFormat`."""
        with add_ons.blamed("format", self.name, TargetError):
            return bytes(memoryview(self._made.message(bodies)))


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Rendered).decode

"""Formats by name: those of `formats.registry`, and those with one record a run that add-ons bring.

An add-on's format is a callable of a `View` that gives a `formats.record.RecordFormat`.
"""

from __future__ import annotations

from formats.record import RecordFormat
from formats.registry import FORMAT_NAMES, RECORD_FORMATS
from formats.registry import record_format as built_in
from formats.view import View
from publisher import add_ons
from publisher.errors import UsageError


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
    form: RecordFormat = make(view)
    return form

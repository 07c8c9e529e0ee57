"""What installed packages add: kinds of source, formats and kinds of target, by entry points.

An add-on cannot replace what this program has under the same name. What it does wrong is its own problem: an exception
that its protocol does not have is reported as its defect, and ends nothing but what it was asked for.

Formats by name: those of `formats.registry`, and those with one record a run that add-ons bring.

An add-on's format is a callable of a `View` that gives a `formats.base.RecordFormat`. A record that it fails at is
held with what went wrong, as one that it says it cannot render; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from formats import registry
from formats.base import Format, RecordFormat, Rendered
from formats.job import Job
from formats.rule_codes import CannotRenderError
from formats.signed_text import why_not_signable
from formats.view import View
from publisher.errors import ConfigError, PublisherError, TargetError, UsageError
from publisher.reason import ReasonCode
from publisher.text import unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


SOURCES: Final = "usage_publisher.sources"
FORMATS: Final = "usage_publisher.formats"
TARGETS: Final = "usage_publisher.targets"


def names(group: str) -> list[str]:
    """The names that installed packages add to a group, in order."""
    return sorted({point.name for point in _points(group)})


def load(group: str, name: str, key: str) -> Any:
    """Load what an add-on provides under a name; None if there is none. `key`: where the configuration names it.

    Raises `ConfigError` for an add-on that cannot be loaded.
    """
    found = next((point for point in _points(group) if point.name == name), None)
    if found is None:
        return None
    try:
        return found.load()
    except Exception as error:
        raise ConfigError(
            f"{name!r} ({found.value}) cannot be loaded: {what_went_wrong(error)}",
            key=key,
            hint="Reinstall the package that brings it",
        ) from error


ITS_DEFECT: Final = "This is a defect of the add-on: report it to its authors, and update it"


def what_went_wrong(error: Exception) -> str:
    """An exception as text for people: its type and message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextmanager
def blamed(kind: str, name: str, raised_as: type[PublisherError]) -> Iterator[None]:
    """What an add-on is asked for: an exception of no error's kind becomes `raised_as`, with its name, type and text.

    `kind` is what it brings (source, format, target) under the name.
    """
    try:
        yield
    except PublisherError:
        raise
    except Exception as error:
        raise raised_as(f"the add-on {name!r} failed as a {kind}: {what_went_wrong(error)}", hint=ITS_DEFECT) from error


def _points(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - loads what reads mail, for what few have

    return entry_points(group=group)


def required_format(name: str) -> Format:
    """The descriptor of that format. Raises `UsageError`, with the known names, for an unknown one."""
    known = [*registry.FORMATS, *names(FORMATS)]
    if name not in known:
        raise UsageError(unknown_name("format", name, known))
    return format_of(name)


def format_of(name: str) -> Format:
    """The descriptor of that format: one of this program, else of an add-on, which is loaded when it is made."""
    return registry.FORMATS.get(name) or Format(name=name, title=name, shape="record", make=partial(_add_on, name))


def record_format(name: str, view: View) -> RecordFormat:
    """The format of that name with one record a run, bound to a view.

    Raises `formats.registry.UnknownFormatError`, and `ConfigError` for an add-on that cannot be loaded.
    """
    return registry.record_format(name, view) if name in registry.FORMATS else _add_on(name, view)


def _add_on(name: str, view: View) -> RecordFormat:
    make = load(FORMATS, name, key="records")
    if make is None:
        raise registry.UnknownFormatError(name, registry.names_of("record"))
    with blamed("format", name, TargetError):
        return AddedFormat(name, make(view), signed=view.signed)


class AddedFormat:
    """A format that raises only errors of ours.

    `signed`: its messages are signed, so a record that cannot be signed is held.
    """

    def __init__(self, name: str, made: RecordFormat, *, signed: bool = False) -> None:
        self.name = name
        self.content_type = str(made.content_type)
        self.overhead_bytes = int(made.overhead_bytes)
        self.separator_bytes = int(made.separator_bytes)
        self._made = made
        self._signed = signed

    def record(self, job: Job, created: int) -> Rendered:
        """See `formats.base.RecordFormat`."""
        try:
            rendered = _decode(_encode(self._made.record(job, created)))
        except CannotRenderError:
            raise
        except Exception as error:
            what = what_went_wrong(error)
            raise CannotRenderError(ReasonCode.ADD_ON_FAILED, self.name, error=what) from error
        problem = why_not_signable(rendered.body) if self._signed else None
        if problem is not None:
            raise CannotRenderError(problem, self.name)
        return rendered

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """See `formats.base.RecordFormat`."""
        with blamed("format", self.name, TargetError):
            return bytes(memoryview(self._made.message(bodies)))


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Rendered).decode

"""What installed packages add: kinds of source, formats and kinds of target, by entry points.

An add-on cannot replace what this program has under the same name. What it does wrong is its own problem: an exception
that its protocol does not have is reported as its defect, and ends nothing but what it was asked for.

Formats by name: those of `formats.registry`, and those that add-ons bring.

An add-on's format is a callable of a `View` that gives a `formats.base.RecordFormat`, or a `formats.base.Format` of
records or totals. A record or run that it fails at is held with what went wrong, as one that it says it cannot render;
the others go on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from formats import registry
from formats.base import MOST_INSPECTED, Format, InspectedText, MessageFormat, RecordFormat, Rendered, TotalsFormat
from formats.job import Job
from formats.rule_codes import CannotRenderError
from formats.signed_text import why_not_signable
from formats.totals import MonthTotal, NamedPersons, Sums, TotalKey, TotalsFold, TotalsKind
from formats.view import View
from publisher.errors import ConfigError, PublisherError, TargetError, UsageError
from publisher.former_names import FORMER, warn
from publisher.reason import ReasonCode
from publisher.text import unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


_Read = TypeVar("_Read")
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
    entry_point = next((point for point in _points(group) if point.name == name), None)
    if entry_point is None:
        return None
    try:
        return entry_point.load()
    except Exception as error:
        raise ConfigError(
            f"{name!r} ({entry_point.value}) cannot be loaded: {what_went_wrong(error)}",
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


def _points(group: str, former: Mapping[str, str] = FORMER.groups) -> Iterable[EntryPoint]:
    path = tuple(sys.path)
    points = list(_installed(group, path))
    for before, now in former.items():
        if now == group and (added := _installed(before, path)):
            warn(f"the entry-point group {before}", now)
            points += added
    return points


@lru_cache(maxsize=16)
def _installed(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """What packages that are installed there add to a group: reading their metadata takes milliseconds each time."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - loads what reads mail, for what few have

    return entry_points(group=group)


def required_format(name: str) -> Format:
    """The descriptor of that format. Raises `UsageError`, with the known names, for an unknown one."""
    format_names = [*registry.FORMATS, *names(FORMATS)]
    if name not in format_names:
        raise UsageError(unknown_name("format", name, format_names))
    return format_of(name)


def format_of(name: str) -> Format:
    """The descriptor of that format: one of this program, else of an add-on.

    Raises `ConfigError` for an add-on that cannot be loaded: if it brings totals, a run that is collected as for
    records would leave its month as it is.
    """
    return registry.FORMATS.get(name) or _added_format(name, tuple(sys.path))


@lru_cache(maxsize=64)
def _added_format(name: str, _path: tuple[str, ...]) -> Format:
    """`_path`: where packages are installed; searching it takes milliseconds, and descriptors are asked for often."""
    made = load(FORMATS, name, key="records")
    if isinstance(made, Format):
        return added_descriptor(name, made)
    make, usual = partial(_add_on, name), registry.USUAL_RECORDS
    return Format(
        name=name,
        title=name,
        shape="record",
        make=make,
        dimensions=usual.dimensions,
        summed_columns=usual.summed_columns,
    )


def format_of_message(own: Format, payload: bytes) -> Format:
    """The format by which a message is read that lies where messages of the format `own` lie. Raises `ValueError`."""
    says_what_it_is = own.name in registry.FORMATS and own.file_of is None
    return registry.format_of_message(payload) if says_what_it_is else own


def totals_by_kind() -> dict[str, TotalsKind]:
    """The totals of all formats by the word under which the ledger keeps them; without add-ons that cannot be
    loaded."""
    forms = list(registry.FORMATS.values())
    for name in names(FORMATS):
        with suppress(ConfigError):
            forms.append(format_of(name))
    return {form.totals.kind: form.totals for form in forms if form.totals is not None}


def formats_that_inspect() -> tuple[Format, ...]:
    """The formats of add-ons that inspect messages, without those that cannot be loaded."""
    formats = []
    for name in names(FORMATS):
        with suppress(ConfigError):
            form = format_of(name)
            if form.inspected is not None:
                formats.append(msgspec.structs.replace(form, inspected=partial(_inspected, name, form.inspected)))
    return tuple(formats)


def _inspected(name: str, inspect: Callable[[str], InspectedText | None], text: str) -> InspectedText | None:
    """As `Format.inspected`. An exception that it does not have says that the text is not of this format."""
    try:
        inspected = inspect(text)
        if inspected is None:
            return None
        records = tuple(islice(inspected.records, MOST_INSPECTED + 1))
        return InspectedText(records, tuple(islice(inspected.violations, MOST_INSPECTED)))
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"the add-on {name!r} failed as a format: {what_went_wrong(error)}") from error


def has_totals(kind: str) -> bool:
    """Whether totals of a format have this word. Packages are searched only where this program has none."""
    own = (form.totals for form in registry.FORMATS.values() if form.totals is not None)
    return any(totals.kind == kind for totals in own) or kind in totals_by_kind()


def totals_format(name: str, view: View) -> TotalsFormat:
    """The format of that name with totals or sync counts, bound to a view.

    Raises `formats.registry.UnknownFormatError`, `ValueError` for a version that it does not have, and `TargetError`
    for the defect of an add-on.
    """
    if name in registry.FORMATS:
        return registry.totals_format(name, view)
    made: TotalsFormat = format_of(name).make(view)
    return made


def record_format(name: str, view: View) -> RecordFormat:
    """The format of that name with one record a run, bound to a view.

    Raises `formats.registry.UnknownFormatError`, and `ConfigError` for an add-on that cannot be loaded.
    """
    if name in registry.FORMATS:
        return registry.record_format(name, view)
    made: RecordFormat = format_of(name).make(view)
    return made


def _add_on(name: str, view: View) -> RecordFormat:
    made = load(FORMATS, name, key="records")
    if made is None:
        raise registry.UnknownFormatError(name, registry.names_of("record"))
    with blamed("format", name, TargetError):
        return AddedFormat(name, made.make(view) if isinstance(made, Format) else made(view), signed=view.signed)


class _AddedMessages:
    """The part of an add-on's format that makes messages. It raises only errors of ours.

    `signed`: its messages are signed, so a record that cannot be signed is held.
    """

    def __init__(self, name: str, made: MessageFormat, *, signed: bool = False) -> None:
        self.name = name
        self.content_type = str(made.content_type)
        self.overhead_bytes = int(made.overhead_bytes)
        self.separator_bytes = int(made.separator_bytes)
        self._messages = made
        self._signed = signed

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """See `formats.base.MessageFormat`."""
        with blamed("format", self.name, TargetError):
            return bytes(memoryview(self._messages.message(bodies)))

    def _rendered(self, render: Callable[[], Rendered]) -> Rendered:
        with _held_if_failing(self.name):
            rendered = _decode(_encode(render()))
        problem = why_not_signable(rendered.body) if self._signed else None
        if problem is not None:
            raise CannotRenderError(problem, self.name)
        return rendered


class AddedFormat(_AddedMessages):
    """A format with records of runs."""

    def __init__(self, name: str, made: RecordFormat, *, signed: bool = False) -> None:
        super().__init__(name, made, signed=signed)
        self._made = made

    def record(self, job: Job, created: int) -> Rendered:
        """See `formats.base.RecordFormat`."""
        return self._rendered(lambda: self._made.record(job, created))


class AddedTotalsFormat(_AddedMessages):
    """A format of totals."""

    def __init__(self, name: str, made: TotalsFormat, *, signed: bool = False) -> None:
        super().__init__(name, made, signed=signed)
        self._made = made

    def record(self, total: MonthTotal, /) -> Rendered:
        """See `formats.base.TotalsFormat`."""
        return self._rendered(lambda: self._made.record(total))


class AddedFold:
    """The fold of an add-on: a run that it fails at is held."""

    def __init__(self, name: str, made: TotalsFold) -> None:
        self._name = name
        self._made = made

    def add(self, job: Job) -> TotalKey:
        """See `formats.totals.TotalsFold`."""
        with _held_if_failing(self._name):
            return self._made.add(job)

    def add_alike(self, facts: Job, sums: Sums, /) -> TotalKey:
        """See `formats.totals.TotalsFold`."""
        with _held_if_failing(self._name):
            return self._made.add_alike(facts, sums)

    def merge_group(self, total: Any, /) -> None:
        """See `formats.totals.TotalsFold`."""
        with blamed("format", self._name, TargetError):
            self._made.merge_group(total)

    def groups(self) -> Iterator[MonthTotal]:
        """See `formats.totals.TotalsFold`."""
        with blamed("format", self._name, TargetError):
            yield from list(self._made.groups())


@contextmanager
def _held_if_failing(name: str) -> Iterator[None]:
    """Make an unexpected exception of an add-on the reason why a run or a total is held."""
    try:
        yield
    except CannotRenderError:
        raise
    except Exception as error:
        raise CannotRenderError(ReasonCode.ADD_ON_FAILED, name, error=what_went_wrong(error)) from error


def added_descriptor(name: str, made: Format) -> Format:
    """The descriptor of an add-on's format, whose functions raise only errors of ours.

    The ledger keeps its totals under a word of its own. Its formats are of the shapes `record` and `totals`; sync
    counts are not.
    """
    form = msgspec.structs.replace(made, name=name, sync="")
    totals = made.totals
    if made.shape == "record" and totals is None:
        columns = None if made.columns is None else _reading(made.columns)
        return msgspec.structs.replace(
            form, make=partial(_add_on, name), columns=columns, is_readable=columns is not None
        )
    if made.shape != "totals" or totals is None:
        return msgspec.structs.replace(form, shape="record", totals=None, make=partial(_not_supported, name))

    def blamed_for(function: Callable[..., Any] | None) -> Any:
        def call(*arguments: Any) -> Any:
            assert function is not None
            with blamed("format", name, TargetError):
                return function(*arguments)

        return None if function is None else call

    def make(view: View) -> TotalsFormat:
        with blamed("format", name, TargetError):
            return AddedTotalsFormat(name, made.make(view), signed=view.signed)

    def fold(view: View) -> TotalsFold:
        with blamed("format", name, TargetError):
            return AddedFold(name, totals.fold(view))

    persons = totals.persons
    if persons is not None:
        persons = NamedPersons(
            spelled=blamed_for(persons.spelled), names=blamed_for(persons.names), renamed=blamed_for(persons.renamed)
        )
    guarded = msgspec.structs.replace(
        totals,
        kind=f"{KIND_OF_ADD_ON}{name}",
        fold=fold,
        from_json=_reading(totals.from_json),
        following=blamed_for(totals.following),
        left_over=blamed_for(totals.left_over),
        is_reported=blamed_for(totals.is_reported),
        sync_count=None,
        persons=persons,
        usage=blamed_for(totals.usage),
        read=None if totals.read is None else _reading(totals.read),
        columns=blamed_for(totals.columns),
    )
    is_readable = totals.read is not None and totals.columns is not None
    return msgspec.structs.replace(form, key="group", make=make, totals=guarded, is_readable=is_readable)


def _reading(read: Callable[[bytes], _Read]) -> Callable[[bytes], _Read]:
    """What an add-on reads: whatever it raises for bytes that it cannot read is a `ValueError`."""

    def call(content: bytes) -> _Read:
        try:
            return read(content)
        except Exception as error:
            raise ValueError(what_went_wrong(error)) from error

    return call


KIND_OF_ADD_ON: Final = "add-on "
"""Before the name of an add-on's format in the word under which the ledger keeps its totals: no word of this program
begins so."""


def _not_supported(name: str, _view: View) -> Any:
    raise TargetError(f"the add-on {name!r} brings a format that is not one of records or totals", hint=ITS_DEFECT)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Rendered).decode

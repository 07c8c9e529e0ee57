"""The common parts of all formats: their descriptor, the result of rendering, and a rule that a message breaks.

Each format describes itself with a `Format`; `formats.registry` lists them. Decisions elsewhere use a field of its
descriptor, never its name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from formats.columns import RecordColumns, Value
from formats.job import Job
from formats.origin import Origins
from formats.rule_codes import RuleCode
from formats.rules import TextRule
from formats.totals import TotalsKind
from formats.view import View

Shape = Literal["record", "totals", "sync", "report"]
"""What a message contains: a record for each run; totals of runs; numbers of runs, sent with either; a whole interval.
"""

Service = Literal["SGAS", "APEL", ""]
"""The service whose rules a message must keep; empty if no particular service reads the format."""

ReceiverKey = Literal["record id", "local id", "group", "period"]
"""What identifies a record at the receiver: its id; site, local id, and end; the key of a group; an interval."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The bytes of a record in a message, with its record id as it is written there."""

    record_id: str
    body: bytes


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptor of a format. `make` binds it to a view: a `RecordFormat` if the shape is `record`, a
    `TotalsFormat` if it is `totals` or `sync`.

    `make` raises `ValueError` for a version that the format does not have.
    """

    name: str
    title: str
    """For people."""
    shape: Shape
    make: Callable[[View], Any]
    service: Service = ""
    key: ReceiverKey = "record id"
    key_settings: frozenset[str] = frozenset()
    """The settings that are part of the receiver's key, as `site.name`, `target.KEY`, and `source.KEY`: a change would
    make what was delivered count twice."""
    content_type: str = ""
    """Content type of its messages, without parameters; of the default version if versions differ."""
    versions: tuple[str, ...] = ()
    """The versions that can be sent; empty if the format itself checks the version."""
    is_xml: bool = False
    grammar: str = ""
    """The file in `formats/schemas` that each record is validated against."""
    grammar_source: str = ""
    """The specification to which the grammar belongs."""
    record_id: TextRule | None = None
    """The rule for the id, if a record contains the run's record id."""
    columns: Callable[[bytes], list[RecordColumns]] | None = None
    """Reads the records of a message as the service stores them, in order; None if there is not one for each run."""
    pieces: Callable[[bytes], list[Piece]] | None = None
    """Cuts a message into its records without parsing it; `RecordFormat.message` of them is the message again, if it is
    one of ours."""
    is_readable: bool = False
    """Whether the records of a message can be read back, to be compared with the ledger."""
    needs_benchmark: bool = False
    """Whether a run without a benchmark is held."""
    sync: str = ""
    """The format of the sync counts that the service expects with its records or totals; empty: it expects none."""
    totals: TotalsKind | None = None
    """How runs are added up, if the shape is `totals` or `sync`."""
    record_key: Callable[[Job, View], Hashable] | None = None
    """The receiver's key of the record of a run (None: the run has no record), if that is not its id: a record replaces
    the earlier one with the same key, or is ignored."""
    key_has_local_id: bool = True
    """Whether `record_key` contains the local id, so that two runs of one source never have one key. If not, runs with
    one end may have one key, also in one source: of two servers, for instance, in one resource."""
    same_key: RuleCode = RuleCode.SAME_KEY
    """Why a run is held if another one has its `record_key`."""
    dimensions: Callable[[Job, View], dict[str, Value]] | None = None
    """The fields, without the benchmark, by which the service adds up runs with these facts. Raises
    `CannotRenderError`. None: sums of the service show nothing about a single run."""
    summed_columns: Callable[[Job, View], dict[str, Value]] | None = None
    """The columns of its records by which a service may add them up, of a run whose record cannot be rendered any more.
    Raises `CannotRenderError`."""
    has_ascii_names: bool = False
    """Whether its names are in ASCII, always or if the view requires it."""
    file_of: Callable[[bytes], str] | None = None
    """For a format of files by day: the name of the file in which a record belongs, without suffix."""
    longest_machine_name: int | None = None
    """The most characters of a machine name that its receiver tells apart; None: all."""
    record_id_of: Callable[[bytes], str] | None = None
    """For the same: the record id in a record as written."""
    inspected: Callable[[str], InspectedText | None] | None = None
    """Inspects the text of a message, whoever wrote it; None if it does not begin as one of this format. Raises
    `ValueError` with the reason if it begins so and cannot be read. The formats of SGAS and APEL have none: their
    messages are known by XML namespace or header."""

    origins: Origins = {}
    """The origin of each field of a record of one run, or of a total with its runs; without any, none is explained."""

    @property
    def is_snapshot(self) -> bool:
        """Whether a message covers many runs, so that a message sent again replaces the earlier one."""
        return self.shape in {"totals", "report"}

    @property
    def required_totals(self) -> TotalsKind:
        """How runs are added up. The shape must be `totals` or `sync`."""
        assert self.totals is not None
        return self.totals

    @property
    def with_sync(self) -> bool:
        """Whether the service expects sync counts with its records or totals."""
        return bool(self.sync)


FILE_SUFFIXES: Final = {
    "text/plain": ".txt",
    "application/xml": ".xml",
    "text/xml": ".xml",
    "application/json": ".json",
    "text/csv": ".csv",
    "text/x-sacct": ".log",
}
"""Suffix of a file that contains a message, by its content type without parameters."""


class Note(msgspec.Struct, frozen=True):
    """An alteration of a value: the field, the rule with its source, the value before and after.

    `after` is None if the value was omitted.
    """

    field: str
    rule: str
    before: str
    after: str | None


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """One record as written in a message, ASCII bytes, with notes on alterations.

    `record_id`: its id at the receiver; empty for formats whose records have none.
    """

    body: bytes
    notes: tuple[Note, ...] = ()
    record_id: str = ""


class MessageFormat(Protocol):
    """A format bound to a view, with no other state: what makes messages of records."""

    name: str
    content_type: str

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records: their bytes, separators between them, and `overhead_bytes`."""
        ...

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a message around its records."""
        ...

    @property
    def separator_bytes(self) -> int:
        """Bytes between two records of a message."""
        ...


class RecordFormat(MessageFormat, Protocol):
    """A format with one record for each run."""

    def record(self, job: Job, created: int) -> Rendered:
        """Render one run. `created`: epoch seconds at which this version of the run was first stored (createTime).

        Raises `CannotRenderError` if a mandatory value is missing or unusable.
        """
        ...


class TotalsFormat(MessageFormat, Protocol):
    """A format of totals: of those that the fold of its `TotalsKind` makes."""

    def record(self, total: Any, /) -> Rendered:
        """Render one total. Raises `CannotRenderError` for sums that the service cannot store."""
        ...


class InspectedRecord(msgspec.Struct, frozen=True):
    """A record of a message, from 1. `job`: of a record about one run; `fields`: those of a text message."""

    number: int
    id: str
    job: Job | None = None
    fields: dict[str, str] = {}


MOST_INSPECTED: Final = 20_000
"""The most records of a message that are inspected; ten times what services accept."""


class InspectedText(msgspec.Struct, frozen=True):
    """The records of a text, and the rules that it breaks. Each is read once, up to a limit: made only as it is read, a
    text with millions of wrong lines takes no memory for them."""

    records: Iterable[InspectedRecord]
    violations: Iterable[Violation]


Level = Literal["error", "warning"]


class Violation(msgspec.Struct, frozen=True):
    """A rule that a message breaks, and the source of the rule.

    For an *error* the service refuses the message; a *warning* is something that it alters or ignores, or that the
    standard forbids and the service accepts. `record` counts from 1 and is 0 for the message as a whole.
    """

    level: Level
    record: int
    field: str
    rule: str
    source: str


CACHED_FRAGMENTS: Final = 8192
"""The most fragments of a kind. A full cache is emptied, which costs less than keeping an order of use."""


class FragmentCache(dict[Hashable, str]):
    """Caches fragments by the facts of a job on which they depend. Fragments with alterations are not cached, because
    their notes are needed each time."""

    def __init__(self, make: Callable[[Job, list[Note]], str]) -> None:
        super().__init__()
        self._make = make

    def of(self, key: Hashable, job: Job, notes: list[Note]) -> str:
        """The fragment of a job, cached or rendered now; `key` as for `render`."""
        kept = self.get(key)
        return self.render(key, job, notes) if kept is None else kept

    def render(self, key: Hashable, job: Job, notes: list[Note]) -> str:
        """Render the fragment of a job that is not cached; `key` contains every fact of the job on which it depends."""
        altered: list[Note] = []
        fragment = self._make(job, altered)
        if altered:
            notes += altered
            return fragment
        if len(self) >= CACHED_FRAGMENTS:
            self.clear()
        self[key] = fragment
        return fragment

"""A target beside the publisher that was there before: record by record, or group by group, with reasons.

What the other sent is read from its messages: a folder of archived usage records, an outgoing queue of SSM, files. What
we would send are the items of `publisher.messages.items`. Nothing is changed; `publisher.publish.decide` does that.

What another publisher sent, record by record, on disk: its messages may be more than memory holds.

A record is found by its record id; where two publishers have ids of their own by the global id, or by local id and end.

Why records of ours differ from those of another publisher: what is known of it, field by field.

The defects are those of the facts on formats, 5.1 (ARC), 5.2 (APEL client) and 5.3 (BaRT). A difference that is not
listed here is one to look into before the move.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from formats.apel.summary import read_group
from formats.apel.text import NotApelTextError, TextRecord, is_null
from formats.apel.text import parse as parse_text
from formats.calendar import month_bounds
from formats.check.fields import Fields, each_fields_of, fields_of
from formats.registry import FORMATS
from formats.rules import type_of
from formats.text import read_date_time, read_duration_ms
from formats.xml.read import FORMAT_OF_NAMESPACE, NotAMessageError, begins_as_xml
from formats.xml.read import parse as parse_xml
from publisher.config.schema import Config
from publisher.errors import StoreFullError
from publisher.inspect import unwrap as inspection_keys
from publisher.inspect.inspect import contents
from publisher.inspect.unwrap import unwrap
from publisher.messages.item import ItemPage
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Scope, Section
from publisher.reason import sentence
from publisher.sources.base import Window
from publisher.sqlite_file import TemporaryDatabase
from publisher.store import deliveries, registry, runs
from publisher.store.database import Store
from publisher.targets.message_files import is_of_queue

_MOST_NOTES: Final = 100
_MONTHS: Final = 12
_fields = msgspec.json.Decoder(dict[str, tuple[str, ...]])


class OldRecord(msgspec.Struct, frozen=True):
    """A record as it was sent: `end` in epoch seconds where it has one, of a group the month's first second."""

    name: str
    end: int | None
    fields: Fields


_OLD_RECORDS: Final = """
CREATE TABLE old (name TEXT PRIMARY KEY, job TEXT, pair TEXT, end INTEGER, fields BLOB, matched INTEGER DEFAULT 0);
CREATE INDEX jobs ON old (job);
CREATE INDEX pairs ON old (pair)
"""


class OldRecords(TemporaryDatabase):
    """The records of one format. Raises `StoreFullError` where there is no room for them.

    `notes`: what could not be read, and messages of other formats. `again`: records that were sent more than once, of
    which the first counts where the service keeps that, else the last.
    """

    def __init__(self, format_name: str, *, keeps_first: bool) -> None:
        super().__init__(_OLD_RECORDS, "the other publisher's records", StoreFullError)
        self._format = format_name
        self._keeps_first = keeps_first
        self.notes: list[str] = []
        self.again = 0

    def read(self, paths: Sequence[Path], now: int) -> None:
        """Take the messages of these files and folders, SSM's queues among them. Raises `UsageError`."""
        for label, content in contents(paths):
            if is_of_queue(label):
                continue
            if isinstance(content, str):
                self._note(f"{label}: {content}")
                continue
            for inner in unwrap(label, content, inspection_keys.DecryptionKeys(), now):
                if inner.payload is None:
                    self._note(f"{inner.label}: {'; '.join(each.rule for each in inner.violations)}")
                else:
                    self._take(inner.label, inner.payload)

    def _take(self, label: str, payload: bytes) -> None:
        try:
            found = _format_of(payload)
            if found != self._format:
                self._note(f"{label}: {found or 'no format that is known'}, and {self._format} is compared")
                return
            for fields in each_fields_of(found, payload):
                self._put(fields)
        except (NotAMessageError, NotApelTextError, UnicodeDecodeError) as error:
            self._note(f"{label}: {error}")

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def _put(self, fields: Fields) -> None:
        keys = keys_of(self._format, fields)
        if self.row("SELECT 1 FROM old WHERE name = ?", keys.name):
            self.again += 1
            if self._keeps_first:
                return
        self.change(
            "INSERT OR REPLACE INTO old (name, job, pair, end, fields) VALUES (?, ?, ?, ?, ?)",
            [(*msgspec.structs.astuple(keys), msgspec.json.encode(fields))],
        )

    # --- what is in it

    @property
    def count(self) -> int:
        """How many there are, each once."""
        ((number,),) = self.rows("SELECT count(*) FROM old")
        return int(number)

    def bounds(self) -> tuple[int, int] | None:
        """First and last end; None where no record has one."""
        ((first, last),) = self.rows("SELECT min(end), max(end) FROM old")
        return None if first is None else (first, last)

    def match(self, fields: Fields) -> OldRecord | None:
        """The record of the same as ours, which is then no longer among the `unmatched`."""
        keys = keys_of(self._format, fields)
        query = "SELECT name, end, fields FROM old WHERE %s LIMIT 1"
        row = self.row(query % "name = ?", keys.name)
        if row is None and keys.job is not None:
            row = self.row(query % "job = ? AND matched = 0", keys.job)
        if row is None and keys.pair is not None:
            row = self.row(query % "pair = ? AND matched = 0", keys.pair)
        if row is None:
            return None
        self.mark_matched(row[0])
        return OldRecord(row[0], row[1], _fields.decode(row[2]))

    def mark_matched(self, name: str) -> None:
        """Take a record out of the `unmatched`."""
        self.change("UPDATE old SET matched = 1 WHERE name = ?", [(name,)])

    def unmatched(self) -> Iterator[OldRecord]:
        """The records that none of ours matched."""
        for name, end, fields in self.each("SELECT name, end, fields FROM old WHERE matched = 0 ORDER BY end"):
            yield OldRecord(name, end, _fields.decode(fields))


class MatchKeys(msgspec.Struct, frozen=True):
    """What a record is found by: its name, the global id of its job, local id and end as one text; and the end."""

    name: str
    job: str | None
    pair: str | None
    end: int | None


def keys_of(format_name: str, fields: Fields) -> MatchKeys:
    """The keys of a record.

    Local ids are compared as APEL does: without case and trailing blanks (facts on receivers, 2).
    """
    if FORMATS[format_name].shape == "summary":
        pairs = tuple((name, values[-1]) for name, values in fields.items())
        key = read_group(TextRecord(1, pairs)).key
        valid = 1 <= key.month <= _MONTHS and key.year
        return MatchKeys(key.text, None, None, month_bounds(key.when)[0] if valid else None)
    local = _first(fields, "JobIdentity/LocalJobId", "LocalJobId")
    end: int | None = None
    with contextlib.suppress(ValueError):
        text = _first(fields, "EndTime")
        end = None if text is None else int(text) if text.isascii() and text.isdigit() else read_date_time(text)
    pair = None if local is None or end is None else f"{local.rstrip().lower()} {end}"
    job = _first(fields, "JobIdentity/GlobalJobId")
    name = _first(fields, "RecordIdentity@recordId") or pair or job
    return MatchKeys(name or str(sorted(fields.items())), job, pair, end)


def _first(fields: Fields, *names: str) -> str | None:
    for name in names:
        if values := fields.get(name):
            return values[0]
    return None


def _format_of(payload: bytes) -> str:
    """Name of a message's format; empty for one that is not known. Raises as the parsers do."""
    if begins_as_xml(payload):
        root = parse_xml(payload)
        return FORMAT_OF_NAMESPACE[str(root.tag).partition("}")[0].lstrip("{")]
    message = parse_text(payload.decode("ascii"))
    found = type_of(message.header, message.kind, message.version)
    return found.name if found is not None else ""


_REASONS: Final = tuple(
    (re.compile(field), reason)
    for field, reason in (
        (r"RecordIdentity@recordId", "each publisher has record ids of its own; only those of ARC are kept here"),
        (r"JobIdentity/GlobalJobId", "not every publisher has one"),
        (
            r"(UserIdentity/)?(VO\b.*|GroupAttribute.*|VOGroup|VORole|FQAN)",
            "spelling of VO groups and roles: `vo_spelling`",
        ),
        (r"SubmitHost.*", "spelling of the computing element: `submit_host`"),
        (r"Memory.*|Swap.*|Network.*|Disk.*", "zero is not known, and `virtual` is not a type of the standard"),
        (r"NodeCount|Processors", "what was granted is read; zero is not known"),
        (r"Host.*", "ARC publishes none, BaRT joins all into one"),
        (r"TimeInstant.*|TimeDuration.*|SubmitTime", "more times are sent here"),
        (r"(Start|End)Time", "which event counts: `start_time` and `end_time` of the source"),
        (r"ServiceLevel.*", "the benchmark: others send HEPSPEC 1.0 or none where it is missing"),
        (r"Infrastructure.*|Middleware.*|LoggerName.*|UsageRecord@.*", "names the publishing program"),
        (
            r"UserTime|KernelTime|ExitCode|ExitStatus|Status.*|Queue.*|ProjectName|RuntimeEnvironment.*|FileTransfers.*",
            "left out by others",
        ),
        (r"(Earliest|Latest)EndTime", "others cut a month elsewhere"),
    )
)


def reason_of(field: str, before: str | None, after: str | None) -> str:
    """Why a field differs, as far as is known; empty where it is not. `before`: the other publisher's value."""
    if before is not None and after is not None and "%" in before and before != after:
        return "ARC writes %27 for an apostrophe and %23 for a number sign, and sends them so"
    for pattern, reason in _REASONS:
        if pattern.fullmatch(field):
            return reason
    return ""


def same_value(one: str, other: str) -> bool:
    """Whether two values mean the same: durations, instants, numbers and nothing may be written in several ways."""
    if one == other or (is_null(one) and is_null(other)):
        return True
    for read in (read_duration_ms, read_date_time, float):
        try:
            return read(one) == read(other)
        except ValueError:
            continue
    return False


_TOTAL: Final = re.compile(r"(?<=\[)total,?|,total(?=[,\]])")

Kind = Literal["same", "differs", "only here", "only there"]


class FieldDifference(msgspec.Struct, frozen=True):
    """A field that differs: their value, ours (None: it is not there), and why, where that is known."""

    field: str
    theirs: str | None
    ours: str | None
    reason: str


class ShadowRecord(msgspec.Struct, frozen=True):
    """A record or group: how it is on both sides. `reason`: why it is on one side alone."""

    record: str
    kind: Kind
    fields: tuple[FieldDifference, ...] = ()
    reason: str = ""
    run_id: int | None = None

    @property
    def is_on_both_sides(self) -> bool:
        """Whether both have it, alike or not."""
        return self.kind in {"same", "differs"}

    @property
    def explained(self) -> bool:
        """Whether every difference of the fields has a reason that is known."""
        return all(field.reason for field in self.fields)


class ShadowComparison:
    """One target beside what another publisher sent, in a window of end times (`until` exclusive)."""

    def __init__(
        self, store: Store, config: Config, target: str, old: OldRecords, window: tuple[int, int], now: int
    ) -> None:
        """`now`: epoch seconds."""
        self._store = store
        self._name = target
        self._settings = config.targets[target]
        self._recipient = Recipient(store, config, target)
        self._now = now
        self._old = old
        self._window = window
        self.counts: Counter[Kind] = Counter()

    def records(self) -> Iterator[ShadowRecord]:
        """Every record of both sides, each once: ours in the order of their ends, then those that are theirs alone."""
        found = self._of_groups() if self._settings.format.shape == "summary" else self._of_runs()
        for each in found:
            self.counts[each.kind] += 1
            yield each
        for old in self._old.unmatched():
            if old.end is None or self._window[0] <= old.end < self._window[1]:
                self.counts["only there"] += 1
                name = old.name if old.name[:1] != "[" else _group_name(old.fields)
                yield ShadowRecord(name, "only there", reason=self._why_not_here(old))

    def _ours(self) -> Iterator[tuple[Section, ItemPage]]:
        """What the target would be sent of the window, also of months that are not known whole."""
        scope = Scope(Window(*self._window), incomplete=True)
        for step in items(self._recipient, scope, now=self._now):
            if isinstance(step, Section) and step.form.name == self._settings.records:
                yield from ((step, page) for page in step.pages)

    def _of_runs(self) -> Iterator[ShadowRecord]:
        for section, page in self._ours():
            for held in page.held:
                reason = f"it would be held: {sentence(held.reason)}"
                yield ShadowRecord(held.key, "only here", reason=reason, run_id=held.members.run_ids[0])
            for item in page.items:
                run_id = item.members.run_ids[0]
                ours = fields_of(self._settings.records, section.form.message([item.body]))
                old = self._old.match(ours)
                if old is None:
                    yield ShadowRecord(item.key, "only here", reason="the other did not send it", run_id=run_id)
                else:
                    yield _compared(item.key, old.fields, ours, run_id)

    def _of_groups(self) -> Iterator[ShadowRecord]:
        for section, page in self._ours():
            for item in page.items:
                (ours,) = each_fields_of(self._settings.records, section.form.message([item.body]))
                old = self._old.match(ours)
                name = _group_name(ours)
                if old is None:
                    yield ShadowRecord(name, "only here", reason=self._other_key(ours))
                else:
                    yield _compared(name, old.fields, ours, None)

    def _other_key(self, ours: Fields) -> str:
        """Why a group has no counterpart: another one has the same jobs under a key that is spelled otherwise."""
        same = ("Year", "Month", "NumberOfJobs", "WallDuration", "CpuDuration")
        for old in self._old.unmatched():
            if all(old.fields.get(name) == ours.get(name) for name in same):
                self._old.mark_matched(old.name)
                spelled = ", ".join(
                    f"{each.field} {each.theirs!r} there, {each.ours!r} here"
                    for each in _differences(old.fields, ours)
                    if each.field not in {"EarliestEndTime", "LatestEndTime"}
                )
                return f"the same jobs under another key, which APEL would count again: {spelled}"
        return "the other did not send it"

    # --- theirs alone

    def _why_not_here(self, old: OldRecord) -> str:
        if self._settings.format.shape == "summary":
            return "no job here makes this group"
        names = [
            values[0]
            for name in ("RecordIdentity@recordId", "JobIdentity/GlobalJobId", "JobIdentity/LocalJobId", "LocalJobId")
            if (values := old.fields.get(name))
        ]
        with self._store.read() as connection:
            row = registry.get_target(connection, self._name)
            for name in names:
                found = [run for run in runs.find(connection, name) if not run.job.slave]
                if not found:
                    continue
                states = deliveries.states_of(connection, row.id, [found[0].run_id]) if row is not None else {}
                if found[0].run_id not in states:
                    status = found[0].job.status
                    return f"it is known ({status}), and not selected here: see vo, statuses, since and local_jobs"
                return "it is known with another end or id; `usage-publisher jobs` shows it"
        return "no source here has it"


def _group_name(fields: Fields) -> str:
    """A group, for people."""
    shown = ("Year", "Month", "VO", "VOGroup", "VORole", "SubmitHost", "GlobalUserName", "Processors", "ServiceLevel")
    return " ".join(_text(fields.get(name)) for name in shown if fields.get(name))


def _usual(fields: Fields) -> Fields:
    """With the attribute that an element has anyway left out of the names: the metric `total`."""
    return {_TOTAL.sub("", name).replace("[]", ""): values for name, values in fields.items()}


def _text(values: tuple[str, ...] | None) -> str:
    return ", ".join(values or ())


def _compared(record: str, theirs: Fields, ours: Fields, run_id: int | None) -> ShadowRecord:
    fields = tuple(_differences(_usual(theirs), _usual(ours)))
    return ShadowRecord(record, "differs" if fields else "same", fields, run_id=run_id)


def _same(theirs: Sequence[str], ours: Sequence[str]) -> bool:
    return len(theirs) == len(ours) and all(map(same_value, theirs, ours))


def _differences(
    theirs: Mapping[str, tuple[str, ...]], ours: Mapping[str, tuple[str, ...]]
) -> Iterator[FieldDifference]:
    for name in dict.fromkeys([*theirs, *ours]):
        there, here = theirs.get(name), ours.get(name)
        if there == here:
            continue
        if there is not None and here is not None and _same(there, here):
            continue
        before = None if there is None else _text(there)
        after = None if here is None else _text(here)
        yield FieldDifference(name, before, after, reason_of(name, before, after))

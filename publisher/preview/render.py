"""render: the very payloads that publish would send, with no network and no change of state.

What waits for a target, or all that a window holds; as one target is to see it, or as a plain view of the site. Records
are made, and held, by `PageRenderer`, summaries by `MonthSummaries`, counts by `owed_by_host`, as when they are sent.

render --validate: no message is shown that its service would refuse or that breaks its format's grammar.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from formats.apel.summary import SummaryFormat
from formats.base import CannotRenderError, Note, RecordFormat
from formats.calendar import Month, month_bounds, month_of
from formats.check.message import INSPECTED_FORMATS, SCHEMA_SOURCES, inspect_message
from formats.registry import summary_format, sync_format
from formats.summary import Fold, SyncCount, SyncFold
from formats.view import View
from formats.xml.text import FIRST_INSTANT
from publisher.collect.enrich import Enrichers
from publisher.collect.wants import RunPreparer, TargetFilter, is_usually_sent, sends_sync
from publisher.config.schema import REPORT_KINDS, SUMMARY_KINDS, Config
from publisher.errors import CredentialError, UsageError
from publisher.messages.completeness import NOT_WHOLE, why_not_whole
from publisher.messages.due import ended_in, held_in, to_release
from publisher.messages.duplicate_guard import DuplicateGuard
from publisher.messages.item import GroupFormat, Item, Limits, cut, uid_of, view_of
from publisher.messages.records import PageRenderer
from publisher.messages.summaries import DueMonth, MonthSummaries, mail_of, months_to_fold
from publisher.messages.sync import owed_by_host, to_send
from publisher.plugins import record_format
from publisher.sources.base import Window
from publisher.store import classes, groups, queries, registry, runs
from publisher.store.database import Store
from publisher.store.deliveries import WHOLE
from publisher.store.queries import PendingDelivery
from publisher.store.runs import StoredRun
from publisher.store.schema import State

PAGE = 1000
DEFAULT_RECORDS = 100
DEFAULT_BYTES = 1_000_000


class HeldPreview(msgspec.Struct, frozen=True):
    """A run that cannot be rendered, and why."""

    record_id: str
    reason: str


class Noted(msgspec.Struct, frozen=True):
    """A value that had to be altered in a record."""

    record_id: str
    note: Note


class RenderedMessage(msgspec.Struct, frozen=True):
    """A message as it would be sent, before it is signed."""

    uid: str
    format: str
    payload: bytes
    records: int
    content_type: str = ""
    """Where a format has several."""


class Rendering:
    """Renders one format for one target, or for a plain view of the site where there is none.

    What was held and noted on the way is in `held` and `notes` when the messages have been taken.
    """

    def __init__(
        self, store: Store, config: Config, format_name: str, target: str | None, window: Window, now: int
    ) -> None:
        """`now`: epoch seconds."""
        self._now = now
        self._store = store
        self._config = config
        self._format_name = format_name
        self._target = target
        self._window = window
        settings = config.targets[target] if target is not None else None
        self._demand = RunPreparer(config, settings)
        self._view = view_of(settings, config) if settings is not None else View(site=config.site.name)
        if settings is not None and settings.records != format_name:
            self._view = msgspec.structs.replace(self._view, version="")
        self._wish = TargetFilter(target, settings, config) if target is not None and settings is not None else None
        self._most_records = settings.batch_records if settings is not None else DEFAULT_RECORDS
        self._settings = settings
        self.records = 0
        self.cut_otherwise: str | None = None
        """Why messages may be cut at other places than `publish` will cut them; None if they will not."""
        self.held: list[HeldPreview] = []
        self.notes: list[Noted] = []

    def messages(self) -> Iterator[RenderedMessage]:
        """The messages, in the order in which they would be sent.

        Raises `UsageError` for a format that is not known or that the target's version does not fit.
        """
        try:
            if self._format_name in SUMMARY_KINDS:
                yield from self._summaries()
            elif self._format_name == "apel-sync":
                yield from self._sync()
            else:
                yield from self._records()
        except (LookupError, ValueError) as error:
            raise UsageError(str(error)) from error

    def _records(self) -> Iterator[RenderedMessage]:
        form = record_format(self._format_name, self._view)
        limits = self._limits(form)
        yield from self._cut((item for items, _ in self._pages(form) for item in items), limits, form)

    def _pages(self, form: RecordFormat) -> Iterator[tuple[Sequence[Item], Sequence[PendingDelivery]]]:
        """Pages of runs, as publishing renders them: what can be sent, and the runs; the others are in `held`."""
        target_id = self._target_id()
        of = -1 if target_id is None else target_id
        renderer = PageRenderer(self._store, of, WHOLE, form, self._demand, self._guard(form), PAGE, self._note)
        for page in self._waiting() if self._waits_only() else self._in_window(self._window):
            rendered = renderer.rendered(page, [False] * len(page))
            self.held += [HeldPreview(each.record_id, each.reason) for each in rendered.held]
            yield rendered.items, page

    def _note(self, record_id: str, notes: Sequence[Note]) -> None:
        self.notes += [Noted(record_id, note) for note in notes]

    def _guard(self, form: RecordFormat) -> DuplicateGuard | None:
        """What holds runs of which another source has one with the same key, where the target is sent this format."""
        if not self._sends():
            return None
        return DuplicateGuard(self._config, form, self._view, self._demand, self._target_id(), self._is_wanted)

    def _is_wanted(self, run: StoredRun) -> bool:
        wish = self._wish
        wanted = wish is None or (wish.selects_end(run.job.end) and wish.why_not(run.source, run.job) is None)
        return run.job.has_record and wanted

    def _summaries(self) -> Iterator[RenderedMessage]:
        form = summary_format(self._format_name, self._view)
        limits = self._limits(form)
        for _, due in self._due_months(form):
            for mail in due.mails:
                self._note("", mail.notes)
            yield from self._cut(_groups(mail.body for mail in due.mails), limits, form)

    def _due_months(self, form: SummaryFormat) -> Iterator[tuple[Month, DueMonth]]:
        """The months to be shown, each with what publishing makes of it; what it holds is in `held`."""
        target_id, settings = self._target_id(), self._settings
        if settings is None or target_id is None:
            yield from self._unplanned_months(form)
            return
        held = to_release(self._store, settings, target_id, lambda one: self._why_not_whole(month_of(one.start)))
        released = {month_of(one.start) for one in held}
        summaries = MonthSummaries(self._store, self._config, settings, target_id, form, self._view)
        for month in sorted(self._months_to_fold(target_id, released)):
            why = self._why_not_whole(month)
            if why is not None:
                self.held += [HeldPreview(run.record_id, why) for run in self._kept_waiting(target_id, month)]
                continue
            whole = not (self._waits_only() and self._sends())
            due = summaries.due(month, self._now, released=month in released, whole=whole)
            with self._store.read() as connection:
                for reason, members in due.held.items():
                    self.held += [HeldPreview(name, reason) for name in runs.record_ids(connection, members.run_ids)]
            yield month, due

    def _months_to_fold(self, target_id: int, released: set[Month]) -> set[Month]:
        if not self._waits_only():
            return self._months_in_window(target_id)
        months, _ = months_to_fold(self._store, target_id)
        with self._store.read() as connection:
            held = queries.months_of(connection, target_id, State.HELD)
        return months | released | {month for month in held if self._why_not_whole(month) is not None}

    def _why_not_whole(self, month: Month) -> str | None:
        if self._settings is None:
            return None  # a plain view shows what there is
        return why_not_whole(self._store, self._config, self._settings, month)

    def _kept_waiting(self, target_id: int, month: Month) -> Iterator[StoredRun]:
        """The runs of a month that publishing will hold, or leave held, because it is not known whole."""
        bounds = month_bounds(month)
        yield from (each.run for state, each in ended_in(self._store, target_id, bounds) if state is State.WAITING)
        yield from (each.run for each in held_in(self._store, target_id, bounds, NOT_WHOLE))

    def _unplanned_months(self, form: SummaryFormat) -> Iterator[tuple[Month, DueMonth]]:
        """The same of a plain view, or of a target that was never planned for: it has got nothing yet."""
        for month, month_runs in groupby(self._month_runs(), key=_month):
            why = self._why_not_whole(month)
            if why is not None:
                self.held += [HeldPreview(run.record_id, why) for run in month_runs]
                continue
            fold = Fold(self._view, normalised=form.normalised)
            for run in month_runs:
                try:
                    fold.add(self._demand.prepare(run))
                except CannotRenderError as error:
                    self.held.append(HeldPreview(run.record_id, str(error)))
            found = list(fold.groups())
            yield month, DueMonth(found, [mail_of(form, month, group) for group in found], [], {}, frozenset())

    def _sync(self) -> Iterator[RenderedMessage]:
        form = sync_format(self._view)
        limits = self._limits(form)
        target_id = self._target_id()
        for month, counts in self._counts():
            owed = counts
            if target_id is not None and self._waits_only() and self._sends():
                owed = to_send(self._store, target_id, month, counts)
            yield from self._cut(_groups(form.record(count).body for count in owed), limits, form)

    def _counts(self) -> Iterator[tuple[Month, list[SyncCount]]]:
        """The months to be shown, each with what the site owes of it."""
        target_id = self._target_id()
        if target_id is not None:
            months = self._months_to_count(target_id) if self._waits_only() else self._months_in_window(target_id)
            for month in sorted(months):
                yield month, owed_by_host(self._store, Enrichers(self._config), self._view, target_id, month)
            return
        settings = self._settings
        with_summaries = settings is not None and settings.records in SUMMARY_KINDS
        for month, month_runs in groupby(self._month_runs(), key=_month):
            if with_summaries and self._why_not_whole(month) is not None:
                continue
            fold = SyncFold(self._view)
            for run in month_runs:
                try:
                    fold.add(self._demand.identified(run))
                except CannotRenderError as error:
                    self.held.append(HeldPreview(run.record_id, str(error)))
            yield month, list(fold.counts())

    def _months_to_count(self, target_id: int) -> set[Month]:
        """The months whose counts are due, or will be when what waits was sent or held."""
        with self._store.read() as connection:
            due = set(groups.marked(connection, target_id, groups.DUE))
            waiting = queries.months_of(connection, target_id, State.WAITING)
        settings = self._settings
        if settings is None or settings.records not in SUMMARY_KINDS:
            return due.union(waiting)
        own = Rendering(self._store, self._config, settings.records, self._target, self._window, self._now)
        return due | own.months_changed()

    def months_changed(self) -> set[Month]:
        """The months whose summaries are to be sent, or of which something is to be held: their counts go with them."""
        form = summary_format(self._format_name, self._view)
        return {month for month, due in self._due_months(form) if due.changes_sync}

    def _cut(self, items: Iterable[Item], limits: Limits, form: GroupFormat) -> Iterator[RenderedMessage]:
        for batch in cut(items, limits):
            self.records += len(batch)
            payload = form.message([item.body for item in batch])
            yield RenderedMessage(uid_of(self._target or "", batch), form.name, payload, len(batch))

    def _limits(self, form: GroupFormat) -> Limits:
        return Limits(self._most_records, self._most_payload_bytes(), form.overhead_bytes, form.separator_bytes)

    def _most_payload_bytes(self) -> int | None:
        if self._target is None:
            return DEFAULT_BYTES
        limit, self.cut_otherwise = payload_limit(self._config, self._target)
        return limit

    def _waits_only(self) -> bool:
        """Whether what waits is to be shown, not a window."""
        return self._window.from_ is None and self._window.until is None and self._target is not None

    def _sends(self) -> bool:
        """Whether the target is sent this format, or sync counts beside its own."""
        settings = self._settings
        if settings is None:
            return False
        return settings.records == self._format_name or (self._format_name == "apel-sync" and sends_sync(settings))

    def _target_id(self) -> int | None:
        """Of the target in the store, if it was ever planned for."""
        if self._target is None:
            return None
        with self._store.read() as connection:
            row = registry.get_target(connection, self._target)
        return row.id if row is not None else None

    # --- which runs

    def _waiting(self) -> Iterator[Sequence[PendingDelivery]]:
        """Pages of what waits."""
        target_id = self._target_id()
        if target_id is None:  # never planned for: all that is wanted waits, but for what counts as delivered before us
            delivered = self._settings.delivered_until if self._settings is not None else None
            yield from self._in_window(Window(None if delivered is None else delivered + 1))
            return
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = queries.waiting(connection, target_id, after, PAGE)
            if page:
                yield page
            if len(page) < PAGE:
                return
            after = (page[-1].end_time, page[-1].run.run_id)

    def _in_window(self, window: Window) -> Iterator[Sequence[PendingDelivery]]:
        """Pages of the runs that are sent, by the target or usually; with the version that the target has."""
        wanted, target_id = self._wanted_classes(), self._target_id()
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = list(queries.runs_in(connection, window.from_, window.until, after, PAGE))
                chosen = [run for run, class_id in page if self._is_sent(run, class_id, wanted)]
                sent: dict[int, bytes] = {}
                if target_id is not None and self._sends():
                    sent = queries.sent_digests(connection, target_id, [run.run_id for run in chosen])
            if chosen:
                yield [PendingDelivery(run.job.end or 0, run, sent=sent.get(run.run_id)) for run in chosen]
            if len(page) < PAGE:
                return
            last = page[-1][0]
            after = (last.job.end or 0, last.run_id)

    def _is_sent(self, run: StoredRun, class_id: int, wanted: set[int] | None) -> bool:
        if self._wish is None or wanted is None:
            return is_usually_sent(run.job)
        return run.job.has_record and class_id in wanted and self._wish.selects_end(run.job.end)

    def _wanted_classes(self) -> set[int] | None:
        if self._wish is None:
            return None
        with self._store.read() as connection:
            return {item.id for item in classes.all_classes(connection) if self._wish.wants_class(item)}

    def _months_in_window(self, target_id: int) -> set[Month]:
        shown = _widened(self._window)
        first = shown.from_ if shown.from_ is not None else FIRST_INSTANT
        with self._store.read() as connection:
            there = queries.periods_from(connection, target_id, "month", first)
        return {month_of(period.start) for period in there if shown.until is None or period.start < shown.until}

    def _month_runs(self) -> Iterator[StoredRun]:
        """All runs of the months that are to be shown: those the window touches, or those in which something waits."""
        if self._window.from_ is not None or self._window.until is not None:
            yield from _runs(self._in_window(_widened(self._window)))
            return
        waiting = self._waiting() if self._target is not None else self._in_window(self._window)
        months = {month_of(run.job.end) for run in _runs(waiting) if run.job.end is not None}
        for month in sorted(months):
            first, behind = month_bounds(month)
            yield from _runs(self._in_window(Window(first, behind)))


def _runs(pages: Iterable[Sequence[PendingDelivery]]) -> Iterator[StoredRun]:
    return (each.run for page in pages for each in page)


def _month(run: StoredRun) -> Month:
    return month_of(run.job.end or 0)


def _groups(bodies: Iterable[bytes]) -> Iterator[Item]:
    return (Item(index, 0, "", body, body) for index, body in enumerate(bodies))


def _widened(window: Window) -> Window:
    """The window with the months at its ends made whole."""
    from_ = month_bounds(month_of(window.from_))[0] if window.from_ is not None else None
    until = month_bounds(month_of(window.until - 1))[1] if window.until is not None else None
    return Window(from_, until)


def payload_limit(config: Config, target: str) -> tuple[int | None, str | None]:
    """The most bytes of a target's payload, as the target itself counts: with signature and encoding.

    It needs its certificate for that; without, the limit is that of the settings, and the second is why.
    """
    from publisher.targets import make_target  # noqa: PLC0415 - loads the network, which a plain view need not
    from publisher.targets.identity import TargetContext  # noqa: PLC0415

    settings = config.targets[target]
    made = make_target(target, settings, TargetContext(config.credentials, time.time))
    try:
        return made.payload_limit_bytes(), None
    except CredentialError as error:
        return settings.batch_bytes, str(error)
    finally:
        made.close()


def message_for(config: Config, target: str, run: StoredRun) -> bytes:
    """The message that a target would get with this one run alone; for summaries what cannot be shown so is said."""
    settings = config.targets[target]
    if settings.records in REPORT_KINDS:
        return b"(a report is of all the jobs of its period)"
    view = view_of(settings, config)
    try:
        job = RunPreparer(config, settings).prepare(run)
        if settings.records in SUMMARY_KINDS:
            summary = summary_format(settings.records, view)
            fold = Fold(view, normalised=summary.normalised)
            fold.add(job)
            return summary.message([summary.record(group).body for group in fold.groups()])
        form = record_format(settings.records, view)
        return form.message([form.record(job, run.stored_at).body])
    except CannotRenderError as error:
        return f"(cannot be rendered: {error})".encode("ascii", "backslashreplace")


class Broken(msgspec.Struct, frozen=True):
    """A rule that a rendered message breaks; `message` counts from 1, `record` is a record's id or empty."""

    message: int
    record: str
    field: str
    rule: str
    source: str


class Validation:
    """Validates the messages of one rendering, in their order; `broken` are the rules that they break.

    `now`: epoch seconds, for rules of a service's clock.
    """

    def __init__(self, now: int) -> None:
        self.broken: list[Broken] = []
        self._now = now
        self._messages = 0

    def passes(self, message: RenderedMessage) -> bool:
        """Whether the message is valid.

        Raises `UsageError` for a format that has no rules to validate against.
        """
        if message.format not in INSPECTED_FORMATS:
            raise UsageError(
                f"there are no rules to validate {message.format} against",
                hint=f"Those of {', '.join(sorted(INSPECTED_FORMATS))} can be validated",
            )
        self._messages += 1
        inspection = inspect_message(message.payload, self._now)
        ids = {record.number: record.id for record in inspection.records}
        self.broken += [
            Broken(self._messages, ids.get(broken.record, ""), broken.field, broken.rule, broken.source)
            for broken in inspection.violations
            if broken.level == "error" or broken.source == SCHEMA_SOURCES.get(inspection.format)
        ]
        return inspection.valid

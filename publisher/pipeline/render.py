"""render: the very payloads that publish would send, with no network and no change of state.

What waits for a target, or all that a window holds; as one target is to see it, or as a plain view of the site.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import msgspec

from formats.month import Month, month_bounds, month_numbered, month_of
from formats.record import CannotRenderError, Note, RecordFormat
from formats.registry import summary_format, sync_format
from formats.summary import Fold
from formats.sync_count import SyncCount, SyncFold
from formats.view import View
from formats.xml_text import FIRST_INSTANT
from publisher.config import REPORT_KINDS, SUMMARY_KINDS, Config
from publisher.enrich import Enrichers
from publisher.errors import CredentialError, UsageError
from publisher.forms import record_format
from publisher.pipeline import recall
from publisher.pipeline.batch import Item, Limits, cut, uid_of
from publisher.pipeline.demand import Demand
from publisher.pipeline.duplicate_guard import DuplicateGuard
from publisher.pipeline.group_sender import GroupFormat
from publisher.pipeline.owed import ended_in
from publisher.pipeline.summarise import owed_groups
from publisher.pipeline.sync import owed_by_host, untold
from publisher.pipeline.viewing import view_of
from publisher.pipeline.wholeness import why_not_whole
from publisher.pipeline.wish import Wish, sends_sync
from publisher.sources.base import Window
from publisher.store import classes, groups, ledger, registry
from publisher.store.database import Store
from publisher.store.groups import GroupRow
from publisher.store.runs import StoredRun
from publisher.store.states import State

PAGE = 1000
DEFAULT_RECORDS = 100
DEFAULT_BYTES = 1_000_000


class Held(msgspec.Struct, frozen=True):
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

    def __init__(self, store: Store, config: Config, format_name: str, target: str | None, window: Window) -> None:
        self._store = store
        self._config = config
        self._format_name = format_name
        self._target = target
        self._window = window
        settings = config.targets[target] if target is not None else None
        self._demand = Demand(config, settings)
        self._view = view_of(settings, config) if settings is not None else View(site=config.site.name)
        if settings is not None and settings.records != format_name:
            self._view = msgspec.structs.replace(self._view, version="")
        self._wish = Wish(target, settings, config) if target is not None and settings is not None else None
        self._most_records = settings.batch_records if settings is not None else DEFAULT_RECORDS
        self._settings = settings
        self.records = 0
        self.cut_otherwise: str | None = None
        """Why messages may be cut at other places than `publish` will cut them; None if they will not."""
        self.held: list[Held] = []
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
        yield from self._cut(self._items(form), limits, form)

    def _items(self, form: RecordFormat) -> Iterator[Item]:
        for run in self._unless_duplicate(form, self._runs()):
            try:
                rendered = form.record(self._demand.meet(run), run.stored_at)
            except CannotRenderError as error:
                self.held.append(Held(run.record_id, str(error)))
                continue
            self.notes += [Noted(run.record_id, note) for note in rendered.notes]
            record_id = rendered.record_id or run.record_id
            yield Item(run.run_id, run.job.end or 0, record_id, run.digest, rendered.body)

    def _unless_duplicate(self, form: RecordFormat, found: Iterator[StoredRun]) -> Iterator[StoredRun]:
        """The runs without those that publishing would hold, because another source has one with the same key."""
        if not self._sends():
            yield from found
            return
        target_id = self._target_id()
        guard = DuplicateGuard(self._config, form, self._view, self._demand, target_id, self._is_wanted)
        while page := list(islice(found, PAGE)):
            with self._store.read() as connection:
                to_hold = guard.held(connection, page)
            self.held += [Held(run.record_id, to_hold[run.run_id]) for run in page if run.run_id in to_hold]
            yield from (run for run in page if run.run_id not in to_hold)

    def _is_wanted(self, run: StoredRun) -> bool:
        wish = self._wish
        wanted = wish is None or (wish.wants_end(run.job.end) and wish.why_not(run.source, run.job) is None)
        return run.job.has_record and wanted

    def _summaries(self) -> Iterator[RenderedMessage]:
        form = summary_format(self._format_name, self._view)
        limits = self._limits(form)
        for month, fold in self._folds(normalised=form.normalised):
            rendered = [form.record(group) for group in owed_groups(fold, self._delivered_of(groups.SUMMARY, month))]
            self.notes += [Noted("", note) for record in rendered for note in record.notes]
            yield from self._cut(_groups(record.body for record in rendered), limits, form)

    def _folds(self, *, normalised: bool) -> Iterator[tuple[Month, Fold]]:
        """The months to be shown, each folded as publishing folds it; those that are not known whole are held."""
        for month, month_runs in self._by_month(groups.REFOLD):
            why = why_not_whole(self._store, self._config, self._settings, month) if self._settings else None
            if why is not None:
                self.held += [Held(run.record_id, why) for run in month_runs]
                continue
            fold = Fold(self._view, normalised=normalised)
            for run in month_runs:
                try:
                    fold.add(self._demand.meet(run))
                except CannotRenderError as error:
                    self.held.append(Held(run.record_id, str(error)))
            yield month, fold

    def _sync(self) -> Iterator[RenderedMessage]:
        form = sync_format(self._view)
        limits = self._limits(form)
        for month, counts in self._counts():
            owed = untold(counts, self._delivered_of(groups.SYNC, month))
            yield from self._cut(_groups(form.record(count).body for count in owed), limits, form)

    def _counts(self) -> Iterator[tuple[Month, list[SyncCount]]]:
        """The months to be shown, each with what the site owes of it."""
        target_id = self._target_id()
        for month, month_runs in self._by_month(groups.DUE):
            if target_id is not None:
                yield month, owed_by_host(self._store, Enrichers(self._config), self._view, target_id, month)
                continue
            fold = SyncFold(self._view)
            for run in month_runs:
                try:
                    fold.add(self._demand.identified(run))
                except CannotRenderError as error:
                    self.held.append(Held(run.record_id, str(error)))
            yield month, list(fold.counts())

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

    def _delivered_of(self, kind: str, month: Month) -> dict[str, GroupRow]:
        """What the service has of a month; nothing where the month is to be shown whole."""
        target_id = self._target_id()
        if not self._waits_only() or target_id is None or not self._sends():
            return {}
        with self._store.read() as connection:
            return groups.of_month(connection, target_id, kind, month.number)

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

    def _runs(self) -> Iterator[StoredRun]:
        if self._waits_only():
            yield from self._waiting()
        else:
            yield from self._in_window(self._window)

    def _waiting(self) -> Iterator[StoredRun]:
        target_id = self._target_id()
        if target_id is None:  # never planned for: all that is wanted waits
            yield from self._in_window(Window())
            return
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = ledger.waiting(connection, target_id, after, PAGE)
            yield from (item.run for item in page)
            if len(page) < PAGE:
                return
            after = (page[-1].end_time, page[-1].run.run_id)

    def _in_window(self, window: Window) -> Iterator[StoredRun]:
        wanted = self._wanted_classes()
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = list(recall.runs_in(connection, window.from_, window.until, after, PAGE))
            for run, class_id in page:
                wanted_class = wanted is None or class_id in wanted
                wanted_end = self._wish is None or self._wish.wants_end(run.job.end)
                if run.job.has_record and wanted_class and wanted_end:
                    yield run
            if len(page) < PAGE:
                return
            last = page[-1][0]
            after = (last.job.end or 0, last.run_id)

    def _wanted_classes(self) -> set[int] | None:
        if self._wish is None:
            return None
        with self._store.read() as connection:
            return {item.id for item in classes.all_classes(connection) if self._wish.wants_class(item)}

    def _by_month(self, mark: str) -> Iterator[tuple[Month, Iterator[StoredRun]]]:
        """The months to be shown, each with the runs that its summaries and counts are made of.

        `mark`: what also makes a month due where what waits is shown.
        """
        target_id = self._target_id()
        if target_id is None:
            yield from groupby(self._month_runs(), key=_month)
            return
        with self._store.read() as connection:
            if self._waits_only():
                months = set(ledger.months_of(connection, target_id, State.WAITING))
                months.update(ledger.months_of(connection, target_id, State.HELD))
                months.update(map(month_numbered, groups.unsettled(connection, target_id, groups.SUMMARY)))
                months.update(groups.marked(connection, target_id, mark))
            else:
                shown = _widened(self._window)
                first = shown.from_ if shown.from_ is not None else FIRST_INSTANT
                there = ledger.periods_from(connection, target_id, "month", first)
                months = {
                    month_of(period.start) for period in there if shown.until is None or period.start < shown.until
                }
        for month in sorted(months):
            owed = ended_in(self._store, target_id, month_bounds(month))
            yield month, (delivery.run for _, delivery in owed)

    def _month_runs(self) -> Iterator[StoredRun]:
        """All runs of the months that are to be shown: those the window touches, or those in which something waits."""
        if self._window.from_ is not None or self._window.until is not None:
            yield from self._in_window(_widened(self._window))
            return
        months: dict[Month, None] = {month_of(run.job.end): None for run in self._runs() if run.job.end is not None}
        for month in sorted(months):
            first, behind = month_bounds(month)
            yield from self._in_window(Window(first, behind))


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
    from publisher.targets.context import TargetContext  # noqa: PLC0415

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
        job = Demand(config, settings).meet(run)
        if settings.records in SUMMARY_KINDS:
            summary = summary_format(settings.records, view)
            fold = Fold(view, normalised=summary.normalised)
            fold.add(job)
            return summary.message([summary.record(group).body for group in fold.groups()])
        form = record_format(settings.records, view)
        return form.message([form.record(job, run.stored_at).body])
    except CannotRenderError as error:
        return f"(cannot be rendered: {error})".encode("ascii", "backslashreplace")

"""render, for a target that is sent reports: those of periods that are due, or that a window touches; and `--diff`."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from formats.calendar import Period, periods_between
from formats.check.fields import changed_fields
from formats.registry import report_format
from formats.utilization.report import UtilizationReport, builtins, read_report
from formats.xml.text import date_time
from publisher.collect.wants import TargetFilter, period_kind
from publisher.config.schema import Config
from publisher.messages.completeness import known_until, why_not_known_from
from publisher.messages.due import EVER, DueRuns, Planned, Unplanned
from publisher.messages.item import view_of
from publisher.messages.reports import ReportFold, ReportPart, owed_parts
from publisher.preview.diff import Change, FieldChange
from publisher.preview.render import HeldPreview, Noted, RenderedMessage, payload_limit
from publisher.sources.base import Window
from publisher.store import groups, queries, registry, runs
from publisher.store.database import Store
from publisher.store.groups import GroupRow
from publisher.store.schema import State

NOT_OVER = "it is not over, or its sources were not read beyond its end: its report is sent when it is complete"


class TargetReports:
    """The reports that a target would be sent; what `publisher.preview.render.Rendering` is for records.

    `held` are periods of which there is no report, and why. `now`: epoch seconds.
    """

    def __init__(self, store: Store, config: Config, target: str, window: Window, now: int) -> None:
        self._store = store
        self._config = config
        self._target = target
        self._settings = config.targets[target]
        self._window = window
        self._now = now
        self._format = report_format(self._settings.records, view_of(self._settings, config))
        self.records = 0
        self.held: list[HeldPreview] = []
        self.notes: list[Noted] = []
        self._limit_bytes, self.cut_otherwise = payload_limit(config, target)

    def messages(self) -> Iterator[RenderedMessage]:
        """The messages, oldest first; records are bins."""
        form = self._format
        for parts, known in self._periods():
            for part in owed_parts(parts, known) if self._waits_only else parts:
                records = len(part.report.bins)
                self.records += records
                uid = f"{self._target}-{part.row.key}"
                yield RenderedMessage(uid, form.name, form.message(part.report), records, form.content_type)

    def changes(self) -> Iterator[Change]:
        """Every report beside the one of the same hours that was sent last."""
        for parts, known in self._periods():
            sent = {key: row for key, row in known.items() if row.state is State.ACCEPTED}
            for part in parts:
                yield _change(part, sent.pop(part.row.key, None))
            yield from (Change(_name(*msgspec.json.decode(key, type=tuple[int, int])), "gone") for key in sent)

    @property
    def _waits_only(self) -> bool:
        """Whether what waits is to be shown, not a window."""
        return self._window.from_ is None and self._window.until is None

    def _periods(self) -> Iterator[tuple[list[ReportPart], dict[str, GroupRow]]]:
        """The parts of each period to be shown, and what the service has of it."""
        with self._store.read() as connection:
            row = registry.get_target(connection, self._target)
        wants: DueRuns = (
            Planned(self._store, row.id)
            if row is not None
            else Unplanned(self._store, TargetFilter(self._target, self._settings, self._config))
        )
        fold = ReportFold(self._store, self._config, self._settings, wants, self._format, self._limit_bytes, self._now)
        asked = self._asked(wants, fold)
        why = {period: self._why_not(period) for period in asked}
        self.held += [HeldPreview(str(period), reason) for period, reason in why.items() if reason is not None]
        for period in fold.touched(asked):
            if (not self._waits_only and period not in why) or why.get(period, self._why_not(period)) is not None:
                continue
            known: dict[str, GroupRow] = {}
            if row is not None:
                with self._store.read() as connection:
                    known = groups.of_month(connection, row.id, groups.UTILIZATION, period.number)
            parts = fold.parts(period)
            if known or any(part.row.jobs for part in parts):
                yield parts, known
        with self._store.read() as connection:
            for reason, members in fold.held.items():
                self.held += [HeldPreview(name, reason) for name in runs.record_ids(connection, members.run_ids)]

    def _asked(self, wants: DueRuns, fold: ReportFold) -> list[Period]:
        kind, window = period_kind(self._settings), self._window
        if self._waits_only:
            held: list[Period] = []
            if wants.target_id is not None:
                with self._store.read() as connection:
                    held = queries.periods_of(connection, wants.target_id, State.HELD, kind)
            return sorted(fold.changed()[0].union(held))
        there = wants.periods_from(kind, EVER)
        if not there:
            return []
        begin = there[0].start if window.from_ is None else max(there[0].start, window.from_)
        return periods_between(kind, begin, self._now + 1 if window.until is None else min(self._now + 1, window.until))

    def _why_not(self, period: Period) -> str | None:
        """Why there is no report of a period."""
        known = known_until(self._store, self._config, self._settings, self._now)
        if known is None or min(known, self._now) < period.stop:
            return NOT_OVER
        return why_not_known_from(self._store, self._config, self._settings, period.start, str(period))


def _change(part: ReportPart, sent: GroupRow | None) -> Change:
    name = _name(part.report.start, part.report.stop)
    if sent is None:
        return Change(name, "new")
    before, after = _fields(read_report(sent.body)), _fields(part.report)
    fields = tuple(FieldChange(*change) for change in changed_fields(before, after))
    return Change(name, "changed" if fields else "unchanged", fields)


def _name(start: int, stop: int) -> str:
    return f"{date_time(start)} to {date_time(stop)}"


def _fields(report: UtilizationReport) -> dict[str, tuple[str, ...]]:
    """Every number of a report by its bin, and what holds for all."""
    told = builtins(report)
    bins = told.pop("bins")
    found: dict[str, tuple[str, ...]] = {name: (str(value),) for name, value in told.items()}
    for one in bins:
        start = one.pop("start")
        found.update((f"{start} {name}", (str(value),)) for name, value in one.items())
    return found

"""Reports of whole periods: which ones are due, which ones a change affects, their contents, and their parts.

A period is complete when it is over, every source was read beyond its end, and every source is complete from its first
second on. Until it is over its runs wait and are not due; if it is incomplete they are held with the reason.

A run counts in every period in which it ran, not only in the one in which it ended. The store remembers how far back
the runs of each period reach, so that a late job costs its own period and those that reach into it, not all later ones.
Periods before the first in which a run ended, and those before the data are complete, are not reported: a job with an
absurd start would make thousands of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import Final

import msgspec

from formats.calendar import LONGEST_S, Month, Period, month_of, period_numbered, period_of, periods_between
from formats.registry import report_format
from formats.rule_codes import CannotRenderError, Reason
from formats.text import LAST_INSTANT
from formats.utilization.measure import Bin, Bins, Ran, Tally
from formats.utilization.report import UtilizationFormat, UtilizationReport, in_json
from publisher.messages.completeness import known_from, known_until, why_not_known_from
from publisher.messages.due import EVER, DueRuns, Planned, Unplanned, held_periods
from publisher.messages.entries import Filters, entries_of, rans_of
from publisher.messages.item import Held, Item, ItemPage, Members
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Finished, NotDue, Release, Scope, Section, Step
from publisher.reason import ReasonCode
from publisher.store import groups
from publisher.store.groups import GroupRow
from publisher.store.queries import PendingDelivery
from publisher.store.schema import State
from publisher.store.stored_json import decoded
from publisher.text import past

DIGEST_BYTES: Final = 16
NOT_OVER: Final = Reason.of(ReasonCode.PERIOD_NOT_OVER)
_SLACK_S: Final = 3600
"""Changes recorded this shortly before a look may have been committed after it; they are looked at again."""


class Reach(msgspec.Struct, frozen=True):
    """The first second (epoch) that the runs which ended in a period used, and when that was computed."""

    first: int
    at: int


class ReportPart(msgspec.Struct, frozen=True):
    """A report as it is sent: a whole period, or as many of its bins as fit into a message; and what settles with it.

    `row`: its row in the ledger while it waits; its key says what it reports, its jobs are those of the period.
    """

    report: UtilizationReport
    row: GroupRow
    members: Members


class ReportMessages:
    """Messages of reports: each report is its own message."""

    overhead_bytes = separator_bytes = 0

    def __init__(self, form: UtilizationFormat) -> None:
        self.name = form.name
        self.content_type = form.content_type

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The one report."""
        (body,) = bodies
        return body


class Reports:
    """The reports of one target. Made for one run."""

    def __init__(self, recipient: Recipient, scope: Scope, now: int, limit_bytes: int | None) -> None:
        """`limit_bytes`: the maximum size of an unsigned message. Raises `UsageError` without a target."""
        self._recipient = recipient
        self._settings = recipient.required_settings()
        self._scope = scope
        self._now = now
        self._format = report_format(recipient.format_name, recipient.view)
        self._messages = ReportMessages(self._format)
        target_id = recipient.target_id
        self._due_runs: DueRuns = Unplanned(recipient)
        if target_id is not None:
            self._due_runs = Planned(recipient.store, target_id, scope)
        self._fold = ReportFold(recipient, self._due_runs, self._format, limit_bytes, now)
        known = known_until(recipient.store, recipient.config, self._settings, now)
        # A period that is over, and was not read to its end, would be reported without its last jobs.
        self._over = min(now, known) if known is not None else None
        """Periods up to here are over and were read to their end."""

    def steps(self) -> Iterator[Step]:
        """Period by period, oldest first."""
        yield from self._due() if self._scope.is_due else self._of_window()

    def _due(self) -> Iterator[Step]:
        changed, marked = self._fold.changed()
        if self._due_runs.target_id is not None:
            store, target_id = self._recipient.store, self._due_runs.target_id
            held = held_periods(store, self._settings, target_id, self._why_not_whole)
            yield Release(held.released)
            self._fold.release(held.released)
            changed.update(held.released, held.incomplete)
        kept = dict(marked)
        for period in sorted(changed):
            why = self._why_held(period)
            if why is not None:
                yield self._section(period, ItemPage((), [Held(why, Members([], []), bounds=_bounds(period))]))
                self._fold.hold(period)
                kept.pop(month_of(period.start), None)
                changed.discard(period)
            elif not self._is_over(period):
                yield NotDue(period, NOT_OVER)
                if not self._fold.reaches_back(period, anew=month_of(period.start) in marked):
                    changed.discard(period)
        touched = self._fold.touched(changed)
        if self._fold.held:
            yield self._section(None, ItemPage((), [Held(why, runs) for why, runs in self._fold.held.items()]))
        for period in touched:
            if self._is_over(period) and self._why_not_whole(period) is None:
                yield from self._period(period)
        yield Finished(groups.DueFor.FOLD, kept, self._fold.reaches())

    def _of_window(self) -> Iterator[Step]:
        kind, window = self._settings.period_kind, self._scope.window
        there = self._due_runs.periods_from(kind, EVER)
        if not there:
            return
        begin = there[0].start if window.from_ is None else max(there[0].start, window.from_)
        until = self._now + 1 if window.until is None else min(self._now + 1, window.until)
        asked = periods_between(kind, begin, until)
        shown = set[Period]()
        for period in asked:
            why = self._why_held(period)
            if why is not None:
                yield self._section(period, ItemPage((), [Held(why, Members([], []), bounds=_bounds(period))]))
            elif not self._is_over(period):
                yield NotDue(period, NOT_OVER)
            else:
                shown.add(period)
        for period in self._fold.touched(asked):
            if period in shown:
                yield from self._period(period)
        if self._fold.held:
            yield self._section(None, ItemPage((), [Held(why, runs) for why, runs in self._fold.held.items()]))

    def _is_sent_again(self, period: Period) -> bool:
        return self._scope.resends_groups and self._scope.touches(period.start, period.stop)

    def _is_over(self, period: Period) -> bool:
        return self._over is not None and period.stop <= self._over

    def _why_held(self, period: Period) -> Reason | None:
        """Why the runs of a period must be held."""
        if period.stop > LAST_INSTANT:
            return Reason.of(ReasonCode.AFTER_YEAR_9999)
        return self._why_not_whole(period)

    def _why_not_whole(self, period: Period) -> Reason | None:
        recipient = self._recipient
        return why_not_known_from(recipient.store, recipient.config, self._settings, period.start, str(period))

    def _period(self, period: Period) -> Iterator[Section]:
        """The parts of a period; unchanged ones only if all are requested."""
        parts = self._fold.parts(period)
        known: dict[str, GroupRow] = {}
        if self._due_runs.target_id is not None:
            with self._recipient.store.read() as connection:
                known = groups.of_month(connection, self._due_runs.target_id, groups.UTILIZATION, period.number)
        keys = {part.row.key for part in parts}
        chosen = parts
        if not known and not any(part.row.jobs for part in parts):
            chosen = []  # a period without jobs is reported only if the service has another report of it
        elif self._scope.is_due and not self._scope.unchanged_too and not self._is_sent_again(period):
            chosen = [part for part in parts if not _has(known, part)]
        sent = {part.row.key for part in chosen}
        unchanged = [part.members for part in parts if part.row.key not in sent]
        page = ItemPage([self._item(part, known) for part in chosen], (), None, unchanged)
        outdated = [key for key in known if key not in keys]  # cut by another message size
        resends = [State.REJECTED] if any(row.state is State.REJECTED for row in known.values()) else []
        yield self._section(period, page, outdated, resends)

    def _section(
        self, period: Period | None, page: ItemPage, outdated: Sequence[str] = (), resends: Sequence[State] = ()
    ) -> Section:
        return Section(
            self._messages,
            iter([page]),
            groups.UTILIZATION,
            period,
            outdated,
            most=1,
            resends=resends,
        )

    def _item(self, part: ReportPart, known: Mapping[str, GroupRow]) -> Item:
        latest = part.report.stop - 1 if len(part.members) else None
        body = self._format.message(part.report)
        row, is_first = part.row, part.row.key not in known
        return Item(row.key, part.members, body, row.digest, latest, group=row, is_first=is_first)


def _bounds(period: Period) -> tuple[int, int]:
    return period.start, period.stop


def _has(known: Mapping[str, GroupRow], part: ReportPart) -> bool:
    row = known.get(part.row.key)
    return row is not None and row.state is State.ACCEPTED and row.digest == part.row.digest


class ReportFold:
    """Makes the reports of one target. Made for one run; it looks at each period once.

    `held`: waiting runs that cannot be counted, by the reason.
    """

    def __init__(
        self, recipient: Recipient, due_runs: DueRuns, form: UtilizationFormat, limit_bytes: int | None, now: int
    ) -> None:
        """`limit_bytes`: the maximum size of an unsigned message."""
        self._store = store = recipient.store
        self._config = config = recipient.config
        reporting = recipient.required_settings().reporting
        assert reporting is not None  # only these targets are sent reports
        self._settings = reporting
        self._due_runs = due_runs
        self._site = config.site.name
        self._bin_s = int(reporting.bin)
        self._now = now
        self._preparer = recipient.preparer
        self._released: set[Period] = set()
        self._held_now: set[Period] = set()
        patterns = reporting.select.patterns
        self._filters = Filters(patterns) if patterns else None
        self._tallies: dict[Period, Tally] = {}
        self._members: dict[Period, dict[int, Members]] = {}
        self._looked: dict[Period, Reach] = {}
        self.held: dict[Reason, Members] = {}
        self._known: dict[int, Reach] = {}
        if due_runs.target_id is not None:
            with store.read() as connection:
                reaches = groups.reaches(connection, due_runs.target_id)
            self._known = {number: decoded(body, Reach, "how far a report reaches") for number, body in reaches.items()}
        whole = Bins(0, LONGEST_S[reporting.period], self._bin_s)
        self._bins_of_a_part = _bins_of_a_part(self._report(0, whole.stop, ()), form, limit_bytes, whole.count)

    def release(self, periods: Iterable[Period]) -> None:
        """Count runs of these periods that are held as incomplete as waiting."""
        self._released.update(periods)

    def hold(self, period: Period) -> None:
        """Count the waiting runs of a period as held."""
        self._held_now.add(period)

    def changed(self) -> tuple[set[Period], dict[Month, int]]:
        """The periods with waiting runs, or that may have lost a run; with the months marked for that."""
        kind, target_id = self._settings.period, self._due_runs.target_id
        periods = set(self._due_runs.waiting(kind))
        if target_id is None:
            return periods, {}
        with self._store.read() as connection:
            numbers = groups.unsettled(connection, target_id, groups.UTILIZATION)
            marked = groups.months_due(connection, target_id, groups.DueFor.FOLD)
        periods.update(period_numbered(kind, number) for number in numbers)
        if marked:
            periods.update(self._reported_no_longer(target_id))
        for month in marked:
            first = period_of("month", period_numbered("month", month.number).start)
            periods.update(periods_between(kind, first.start, first.stop))
        return periods, marked

    def reaches_back(self, period: Period, *, anew: bool) -> bool:
        """Whether runs of an unfinished period, recorded since the last look, ran in earlier ones.

        `anew`: whether any of its runs did.
        """
        known = None if anew else self._known.get(period.number)
        since = known.at - _SLACK_S if known is not None and past(known.at, self._now) is not None else None
        first = period.stop
        for state, delivery in self._ended_in(period, changed_since=since):
            if state is not State.HELD:
                with suppress(CannotRenderError):  # it will be held, and recorded again when it is released
                    first = _first_second(self._rans(delivery)[0], first)
        earlier = known.first if known is not None else period.stop
        self._looked[period] = Reach(min(first, earlier), self._now)
        return first < period.start

    def touched(self, changed: Iterable[Period]) -> list[Period]:
        """The periods whose reports may have changed, oldest first; after this it is known what ran in them."""
        changed = set(changed)
        touched = changed | self._reported_now(changed)
        folded: set[Period] = set()
        todo = set(changed)
        while todo:
            for period in sorted(todo):
                used = self._fold(period)
                if period in changed:
                    before = self._known.get(period.number)
                    first = min(used, before.first if before is not None else period.start)
                    touched.update(self._past_periods(max(first, self._first), period.stop))
            folded |= todo
            todo = (touched | self._reaching_into(touched)) - folded
        return sorted(touched)

    def parts(self, period: Period) -> list[ReportPart]:
        """The report of a touched period, in as many parts as the message size requires."""
        tally = self._tally_of(period)
        bins = tally.measured()
        return [self._part(period, place, bins, tally) for place in range(0, len(bins), self._bins_of_a_part)]

    def reaches(self) -> dict[int, bytes]:
        """How far back the runs of the periods reach that were looked at, by the number of the period."""
        return {period.number: msgspec.json.encode(reach) for period, reach in self._looked.items()}

    # --- private

    @cached_property
    def _first(self) -> int:
        """The start of the first period that is reported."""
        kind = self._settings.period
        there = self._due_runs.periods_from(kind, EVER)
        since = known_from(self._store, self._config, self._settings)
        return max(there[0].start if there else 0, period_of(kind, since).start if since is not None else EVER)

    def _reported_now(self, changed: set[Period]) -> set[Period]:
        """The periods that are reported now because a run with a still earlier end turned up: as far back as the
        runs of unchanged periods may reach, which were counted from their own period on only."""
        there = self._due_runs.periods_from(self._settings.period, EVER)
        new = list(takewhile(changed.__contains__, there))
        if not new or len(new) == len(there):
            return set()
        reaches = map(self._reach, there[len(new) :])
        reach = min(EVER if one is None else one.first for one in reaches)
        return set(self._past_periods(max(reach, self._first), there[len(new)].start))

    def _reported_no_longer(self, target_id: int) -> Iterator[Period]:
        """The periods with jobs at the service before the first one in which a run ended: that run may have changed.
        Those before the data are complete stay as they are."""
        kind = self._settings.period
        there = self._due_runs.periods_from(kind, EVER)
        since = known_from(self._store, self._config, self._settings)
        first = there[0] if there else period_of(kind, self._now)
        with self._store.read() as connection:
            numbers = groups.with_jobs_before(connection, target_id, groups.UTILIZATION, first.number)
        for period in (period_numbered(kind, number) for number in numbers):
            if since is None or period.start >= since:
                yield period

    def _past_periods(self, first: int, stop: int) -> list[Period]:
        """The periods that the instants from `first` until `stop` (exclusive) touch and that have begun: others
        cannot be over, and an absurd end would make thousands of them."""
        return periods_between(self._settings.period, first, min(stop, self._now + 1))

    def _reaching_into(self, touched: set[Period]) -> set[Period]:
        """The periods that end later than some of these and whose runs ran in them, as far as known."""
        if not touched:
            return set()
        later = self._due_runs.periods_from(self._settings.period, min(period.stop for period in touched))
        periods = set()
        for period in later:
            reach = self._reach(period)
            latest = max((one.stop for one in touched if one < period), default=None)
            if latest is not None and (reach is None or reach.first < latest):
                periods.add(period)
        return periods

    def _reach(self, period: Period) -> Reach | None:
        return self._looked.get(period) or self._known.get(period.number)

    def _fold(self, period: Period) -> int:
        """Count the runs that ended in a period, in every period in which they ran; return the first second that
        they used."""
        first = period.start
        for state, delivery in self._ended_in(period):
            if state is State.HELD:
                continue
            try:
                rans, selected = self._rans(delivery)
            except CannotRenderError as error:
                if state is State.WAITING:
                    run = delivery.run
                    reason = error.reason_of(run.source)
                    self.held.setdefault(reason, Members.packed()).add(run.run_id, delivery.revision)
                continue
            first = _first_second(rans, first)
            for ran in selected:
                self._tally(ran, period)
            # A rejected report is made again with its runs: without them, nothing would settle them when it is
            # accepted.
            if state in {State.WAITING, State.REJECTED}:
                place = self._part_of(period, delivery.end_time)
                members = self._members.setdefault(period, {}).setdefault(place, Members.packed())
                members.add(delivery.run.run_id, delivery.revision)
        self._looked[period] = Reach(first, self._now)
        return first

    def _ended_in(self, period: Period, *, changed_since: int | None = None) -> Iterator[tuple[State, PendingDelivery]]:
        """The runs that ended in a period, in the states that they have once they are released or held."""
        bounds = (period.start, period.stop)
        for state, delivery in self._due_runs.ended_in(bounds, changed_since=changed_since):
            waits = state is State.WAITING and period in self._held_now
            yield (State.HELD if waits else state), delivery
        if period in self._released:
            for delivery in self._due_runs.incomplete_in(bounds):
                yield State.WAITING, delivery

    def _rans(self, delivery: PendingDelivery) -> tuple[Sequence[Ran], Sequence[Ran]]:
        """When a run ran, by its entries: all of them, and the selected ones."""
        job = self._preparer.prepare(delivery.run)
        if self._filters is None:
            rans = rans_of(job)
            return rans, rans
        entries = entries_of(job)
        return [entry.ran for entry in entries], [
            entry.ran for entry in entries if self._filters.match(entry.facts, entry.ids)
        ]

    def _tally(self, ran: Ran, ended: Period) -> None:
        """Count in every period from the first one reported to the one in which the run ended."""
        if ran.start >= ended.start:
            self._tally_of(ended).add(ran)
            return
        begin, end = max(ran.start, self._first), min(ran.stop, ended.stop)
        for period in self._past_periods(begin, end):
            self._tally_of(period).add(ran)

    def _tally_of(self, period: Period) -> Tally:
        tally = self._tallies.get(period)
        if tally is None:
            tally = self._tallies[period] = Tally(self._bins(period))
        return tally

    def _bins(self, period: Period) -> Bins:
        return Bins(period.start, period.stop, self._bin_s)

    def _report(self, start: int, stop: int, bins: tuple[Bin, ...]) -> UtilizationReport:
        return UtilizationReport(
            site=self._site, start=start, stop=stop, bin_s=self._bin_s, measure=self._settings.measure, bins=bins
        )

    def _part_of(self, period: Period, end: int) -> int:
        return (end - period.start) // self._bin_s // self._bins_of_a_part

    def _part(self, period: Period, place: int, bins: tuple[Bin, ...], tally: Tally) -> ReportPart:
        """The part of a period that begins with bin number `place`."""
        begin = period.start + place * self._bin_s
        cut = bins[place : place + self._bins_of_a_part]
        stop = min(begin + len(cut) * self._bin_s, period.stop)
        members = self._members.get(period, {}).get(place // self._bins_of_a_part, Members([], []))
        report = self._report(begin, stop, cut)
        body = in_json(report)
        digest = hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
        key = msgspec.json.encode((begin, stop)).decode()
        return ReportPart(report, GroupRow(period.number, key, State.WAITING, digest, tally.jobs, body), members)


def _first_second(rans: Iterable[Ran], first: int) -> int:
    return min([first, *(ran.start for ran in rans if ran.start <= ran.stop)])


def _bins_of_a_part(report: UtilizationReport, form: UtilizationFormat, limit_bytes: int | None, count: int) -> int:
    """The maximum number of bins in a message, chosen so that the parts have about equal sizes. It does not depend
    on the figures in them: a late job could move the cuts, and two reports would cover the same hours."""
    if limit_bytes is None:
        return count
    around, each = form.bounds(report)
    most = max(1, (limit_bytes - around) // each)
    return -(-count // -(-count // most))

"""The runs that items are made of: those due to a target in an interval, or those of a window."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from sqlalchemy import ColumnElement

from formats.calendar import Month, Period, PeriodKind, month_bounds, month_of, period_of
from formats.rule_codes import Reason
from formats.text import FIRST_INSTANT
from publisher.config.schema import Target
from publisher.config.schema import Target as TargetSettings
from publisher.messages.steps import Scope
from publisher.reason import TRIED_AGAIN
from publisher.sources.base import Window
from publisher.store import deliveries, paging, queries
from publisher.store.database import Store
from publisher.store.queries import PendingDelivery, SentVersion
from publisher.store.registry import TargetRow
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun
from publisher.text import past

if TYPE_CHECKING:
    from publisher.messages.recipient import Recipient

# No message will have them: counted all the same, reports would contain what a person decided not to deliver.
NOT_DUE: Final = frozenset({State.WAIVED, State.SUPERSEDED})
EVER: Final = -(2**62)
"""Before every end."""
_PAGE: Final = 5000


def ended_in(
    store: Store,
    target_id: int,
    bounds: tuple[int, int],
    *,
    changed_since: int | None = None,
    as_waiting: ColumnElement[bool] | None = None,
) -> Iterator[tuple[State, PendingDelivery]]:
    """Yield the deliveries of runs that ended within bounds (the second exclusive), by end time, without waived and
    superseded ones.

    `changed_since`: only those enqueued or changed then or later; `as_waiting`: deliveries that count as waiting.
    Memory does not grow with their number.
    """
    for page in store.pages(
        lambda connection, after: queries.ended_in(
            connection, target_id, bounds, after, _PAGE, changed_since=changed_since, as_waiting=as_waiting
        )
    ):
        yield from (item for item in page if item[0] not in NOT_DUE)


def waiting_in(
    store: Store, target_id: int, window: Window, as_waiting: ColumnElement[bool], size: int
) -> Iterator[Sequence[PendingDelivery]]:
    """Yield pages of the deliveries of runs that ended in a window and wait, or count as waiting, by end time."""
    bounds = (EVER if window.from_ is None else window.from_, -EVER if window.until is None else window.until)
    for page in store.pages(
        lambda connection, after: queries.ended_in(connection, target_id, bounds, after, size, as_waiting=as_waiting)
    ):
        if waiting := [delivery for state, delivery in page if state is State.WAITING]:
            yield waiting


def held_in(
    store: Store,
    target_id: int,
    bounds: tuple[int, int],
    codes: Collection[str],
    as_waiting: ColumnElement[bool] | None = None,
) -> Iterator[PendingDelivery]:
    """Yield the deliveries of runs that ended within bounds (the second exclusive) and are held for one of these
    reasons, without those that count as waiting."""
    for page in store.pages(
        lambda connection, after: queries.held_for(connection, target_id, codes, bounds, after, _PAGE, as_waiting)
    ):
        yield from page


class DueRuns(Protocol):
    """What is due to a target, by the ends of its runs."""

    target_id: int | None

    def ended_in(
        self, bounds: tuple[int, int], *, changed_since: int | None = None
    ) -> Iterator[tuple[State, PendingDelivery]]:
        """See the function."""
        ...

    def incomplete_in(self, bounds: tuple[int, int]) -> Iterator[PendingDelivery]:
        """The runs that ended within bounds (the second exclusive) and are held because their period was
        incomplete."""
        ...

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """The periods in which runs ended, from the one in which the first run ended at `first` or later."""
        ...

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """The periods in which runs wait."""
        ...


class Planned:
    """The due runs of a target with planned deliveries; those of a scope may count as waiting."""

    def __init__(self, store: Store, target_id: int, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self.target_id: int | None = target_id
        self._id = target_id

    def ended_in(
        self, bounds: tuple[int, int], *, changed_since: int | None = None
    ) -> Iterator[tuple[State, PendingDelivery]]:
        """See `DueRuns`."""
        return ended_in(self._store, self._id, bounds, changed_since=changed_since, as_waiting=self._scope.as_waiting)

    def incomplete_in(self, bounds: tuple[int, int]) -> Iterator[PendingDelivery]:
        """See `DueRuns`."""
        return held_in(self._store, self._id, bounds, TRIED_AGAIN, self._scope.as_waiting)

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """See `DueRuns`."""
        with self._store.read() as connection:
            return queries.periods_from(connection, self._id, kind, first)

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """See `DueRuns`."""
        with self._store.read() as connection:
            periods = queries.periods_of(connection, self._id, State.WAITING, kind)
            if self._scope.as_waiting is None:
                return periods
            there = queries.periods_from(connection, self._id, kind, EVER)
        return periods + [each for each in there if self._scope.touches(each.start, each.stop)]


class Unplanned:
    """The due runs of a target that has no deliveries yet: all runs that it selects wait."""

    target_id: int | None = None

    def __init__(self, recipient: Recipient) -> None:
        self._recipient = recipient
        self._selected = recipient.selected_classes()

    def ended_in(
        self, bounds: tuple[int, int], *, changed_since: int | None = None
    ) -> Iterator[tuple[State, PendingDelivery]]:
        """See `DueRuns`."""
        del changed_since  # nothing was read before
        for page in paging.chunks(self._selected_in(bounds), _PAGE):
            for run in _counted(self._recipient, page):
                yield State.WAITING, PendingDelivery(run.job.end or 0, run)

    def _selected_in(self, bounds: tuple[int, int]) -> Iterator[StoredRun]:
        chosen = self._recipient.filter
        for run, class_id in runs_ended_in(self._recipient.store, Window(*bounds)):
            end = run.job.end
            selected = self._selected is None or class_id in self._selected
            if run.job.finished and end is not None and selected and (chosen is None or chosen.selects_end(end)):
                yield run

    def incomplete_in(self, bounds: tuple[int, int]) -> Iterator[PendingDelivery]:
        """See `DueRuns`."""
        del bounds  # without deliveries nothing is held
        yield from ()

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """See `DueRuns`; some of them may hold nothing that is selected."""
        periods: list[Period] = []
        while True:
            with self._recipient.store.read() as connection:
                earliest, _ = queries.runs_in(connection, first, None, None, 1)
            if not earliest or (end := earliest[0][0].job.end) is None:
                return periods
            periods.append(period_of(kind, end))
            first = periods[-1].stop

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """See `DueRuns`."""
        return self.periods_from(kind, EVER)


def runs_ended_in(store: Store, window: Window) -> Iterator[tuple[StoredRun, int]]:
    """Yield all runs that ended in a window, each with its class, by end time. Memory does not grow with their
    number."""
    for page in store.pages(
        lambda connection, after: queries.runs_in(connection, window.from_, window.until, after, _PAGE)
    ):
        yield from page


def sent_in(recipient: Recipient, window: Window, size: int) -> Iterator[Sequence[PendingDelivery]]:
    """Yield pages of the runs that ended in a window and are sent, by the target or by default, as if they waited;
    with the version that the target has, or may have."""
    selected = recipient.selected_classes()
    selected_runs = (run for run, of in runs_ended_in(recipient.store, window) if recipient.selects(run, of, selected))
    for some in paging.chunks(selected_runs, size):
        page = _counted(recipient, some)
        sent: dict[int, SentVersion] = {}
        if recipient.target_id is not None and recipient.is_sent:
            with recipient.store.read() as connection:
                sent = queries.sent_versions(connection, recipient.target_id, [run.run_id for run in page])
        yield [PendingDelivery(run.job.end or 0, run, sent=sent.get(run.run_id)) for run in page]


def _counted(recipient: Recipient, page: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs of a page that count at a recipient: of a job in two sources, one."""
    from publisher.collect import counted_once  # noqa: PLC0415 - loads the rules, which `status` need not

    settings = recipient.settings
    until = None if settings is None or settings.format.is_snapshot else settings.delivered_until
    with recipient.store.read() as connection:
        ids = [run.run_id for run in page]
        target_id = recipient.target_id
        others = counted_once.not_counted(connection, target_id, ids, recipient.selects_now, until)
    return [run for run in page if run.run_id not in others]


def first_waiting(recipient: Recipient) -> Window:
    """Return the window of what will wait for a target that has no deliveries yet: all that ended after
    `delivered_until`."""
    delivered = recipient.settings.delivered_until if recipient.settings is not None else None
    return Window(None if delivered is None else delivered + 1)


def months_touched(store: Store, target_id: int, window: Window) -> set[Month]:
    """The months that a window touches and in which runs of the target's deliveries ended."""
    shown = _widened(window)
    first = shown.from_ if shown.from_ is not None else FIRST_INSTANT
    with store.read() as connection:
        there = queries.periods_from(connection, target_id, "month", first)
    return {month_of(period.start) for period in there if shown.until is None or period.start < shown.until}


def months_waiting_as(store: Store, target_id: int, window: Window, as_waiting: ColumnElement[bool]) -> set[Month]:
    """The months that a window touches and in which deliveries end that count as waiting by this condition."""
    touched = months_touched(store, target_id, window)
    with store.read() as connection:
        return {
            month
            for month in touched
            if deliveries.is_any_waiting_as(connection, target_id, month_bounds(month), as_waiting)
        }


def month_runs(recipient: Recipient, window: Window) -> Iterator[StoredRun]:
    """For a recipient without deliveries: all runs of the months that a window touches or, without a window, in
    which runs will wait."""
    if window == Window():
        waiting = first_waiting(recipient)
        months = {month_of_run(each.run) for page in sent_in(recipient, waiting, _PAGE) for each in page}
        windows = [Window(*month_bounds(month)) for month in sorted(months)]
    else:
        windows = [_widened(window)]
    for one in windows:
        yield from (each.run for page in sent_in(recipient, one, _PAGE) for each in page)


def month_of_run(run: StoredRun) -> Month:
    """The month in which a run ended."""
    return month_of(run.job.end or 0)


def _widened(window: Window) -> Window:
    """Extend the window so that its first and last months are whole."""
    from_ = month_bounds(month_of(window.from_))[0] if window.from_ is not None else None
    until = month_bounds(month_of(window.until - 1))[1] if window.until is not None else None
    return Window(from_, until)


def due_at(settings: Target, row: TargetRow | None, now: int) -> int | None:
    """Return when a run next serves the target, in epoch seconds; None: the next run does.

    Counted from the last success, so that the next run tries again what failed; for a shadow, which has no success,
    from the last rehearsal.
    """
    last = past(None if row is None else row.last_attempt if settings.shadow else row.last_success, now)
    due = None if settings.every is None or last is None else math.ceil(last + settings.every)
    return due if due is not None and due > now else None


class HeldPeriods(msgspec.Struct, frozen=True):
    """Periods in which runs are held: those that are complete now, of which some are held to be
    tried again, and those
    that are incomplete."""

    released: list[Period]
    incomplete: list[Period]


def held_periods(
    store: Store, settings: TargetSettings, target_id: int, why_not_whole: Callable[[Period], Reason | None]
) -> HeldPeriods:
    """Return the periods in which runs of a target are held."""
    held = HeldPeriods([], [])
    with store.read() as connection:
        periods = queries.periods_of(connection, target_id, State.HELD, settings.period_kind)
    for period in periods:
        if why_not_whole(period) is not None:
            held.incomplete.append(period)
            continue
        with store.read() as connection:
            bounds = (period.start, period.stop)
            waits, _ = queries.held_for(connection, target_id, TRIED_AGAIN, bounds, None, 1)
        if waits:
            held.released.append(period)
    return held

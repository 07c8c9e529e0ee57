"""`items`: the only place where a run, a month, a sync count, or a report becomes an item, or is held with a reason.

    for step in items(Recipient(store, config, "main"), Scope(), now=now): ...

**Contract.** The steps come in sending order: the records, summaries, or reports of the recipient, oldest first, and
then its sync counts. Making them does not change the store. `publish` carries them out in this order and sends exactly
these items. `render`, its `--diff` and `--explain`, `shadow`, the rehearsal, and `reconcile` read the same steps
without carrying them out. All get the same: what a step holds or releases does not depend on whether an earlier step
was recorded. So with nothing in flight, the same clock, and the same configuration, the bodies, ids, and held runs of a
dry run are those of the next `publish` to a service that accepts everything (`tests/properties/test_dry_run.py`).

**Memory** does not grow with the number of jobs. Records come page by page, for a long backlog from a worker process;
for a month, the sums of each group and ten bytes for each waiting run are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from formats.base import MessageFormat, RecordFormat
from formats.calendar import Month, month_bounds, period_of
from formats.rule_codes import CannotRenderError, Reason
from publisher.messages.background import BackgroundRenderer, RenderOrder
from publisher.messages.completeness import known_until
from publisher.messages.due import EVER, first_waiting, months_waiting_as, sent_in, waiting_in
from publisher.messages.item import Item, ItemPage
from publisher.messages.recipient import Recipient
from publisher.messages.records import PAGE, PageRenderer
from publisher.messages.reports import NOT_OVER, Reports
from publisher.messages.steps import NotDue, Scope, Section, Step
from publisher.messages.sync import SyncCounts
from publisher.messages.totals import MonthlyTotals, group_of_run
from publisher.plugins import record_format, totals_format
from publisher.reason import ReasonCode
from publisher.sources.base import Window
from publisher.store import batches, deliveries, groups, queries
from publisher.store.deliveries import WHOLE
from publisher.store.queries import PendingDelivery
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun

_PAGE_SENT: Final = 250
"""How many runs are read and rendered at a time: more would no longer fit the processor's caches."""


def items(recipient: Recipient, scope: Scope, *, now: int, limit_bytes: int | None = None) -> Iterator[Step]:
    """Yield what is due to a recipient, or what it would be sent of a window or of certain runs; see the contract
    above.

    `now`: epoch seconds; `limit_bytes`: the maximum size of an unsigned message, by which reports are cut. Raises
    `UsageError` for a format that the recipient cannot be sent, `LookupError` and `ValueError` for a format or version
    that does not exist, and `StoreError`.
    """
    if recipient.format.shape != "sync":
        is_whole = scope.part == WHOLE and scope.runs is None
        has_sync = recipient.is_own_format and recipient.sends_sync and is_whole
        sync = SyncCounts(recipient, scope) if has_sync else None
        yield from _with_sync(recipient, scope, now, limit_bytes, sync)
    elif recipient.target_id is None or not scope.is_due:
        yield from SyncCounts(recipient, scope).steps(())
    else:  # those that go with what is due to the target
        own = Recipient(recipient.store, recipient.config, recipient.name)
        for step in _with_sync(own, Scope(), now, limit_bytes, SyncCounts(recipient, scope)):
            if isinstance(step, Section) and step.kind == groups.SYNC:
                yield step


def _with_sync(
    recipient: Recipient, scope: Scope, now: int, limit_bytes: int | None, sync: SyncCounts | None
) -> Iterator[Step]:
    """Yield the records, summaries, or reports of a recipient, and then the sync counts of the months with some."""
    changed: set[Month] = set()
    match recipient.format.shape:
        case "totals":
            totals = MonthlyTotals(recipient, scope, now)
            yield from totals.steps()
            changed = totals.changed
        case "report":
            yield from Reports(recipient, scope, now, limit_bytes).steps()
        case _:
            if sync is not None:
                changed = _months_waiting(recipient, scope)
            due, later = _of_whole_days(recipient, scope, now)
            yield from later
            yield _records(recipient, due)
    if sync is not None:
        yield from sync.steps(changed)


def records_of(recipient: Recipient, runs: Sequence[PendingDelivery], *, guarded: bool = True) -> ItemPage:
    """Return the records of certain runs, in any state of their deliveries, and the runs that are held. Raises as
    `items`; the format must have one record for each run."""
    step = _records(recipient, Scope(runs=runs, guarded=guarded))
    pages = list(step.pages)
    return ItemPage(
        [item for page in pages for item in page.items], [held_item for page in pages for held_item in page.held]
    )


class FoundTotal(msgspec.Struct, frozen=True):
    """The total that contains a run, as it would be sent; `reason`: why there is none."""

    form: MessageFormat
    item: Item | None = None
    reason: Reason | None = None


def total_of(recipient: Recipient, run: StoredRun, now: int) -> FoundTotal:
    """Return the total of the month and group of a run, even if the month is incomplete."""
    form = totals_format(recipient.format_name, recipient.view)
    try:
        key = group_of_run(recipient, run).key
    except CannotRenderError as error:
        return FoundTotal(form, reason=error.reason_of(run.source))
    for step in items(recipient, Scope(Window(*month_bounds(key.when)), incomplete=True), now=now):
        if isinstance(step, Section) and step.form.name == form.name:
            for item in (item for page in step.pages for item in page.items):
                if item.key == key.text:
                    return FoundTotal(step.form, item)
    return FoundTotal(form, reason=Reason.of(ReasonCode.NOT_DUE, field="NumberOfJobs"))


def _of_whole_days(recipient: Recipient, scope: Scope, now: int) -> tuple[Scope, list[NotDue]]:
    """The part of what is due that ended on days that are over and were read to their end by every source, if records
    are sent by day; and the later days, which wait: a file of a day is written once."""
    settings = recipient.settings
    if settings is None or not settings.by_day or not recipient.is_own_format or not scope.is_due:
        return scope, []
    known = known_until(recipient.store, recipient.config, settings, now)
    over = EVER if known is None else period_of("day", min(now, known)).start
    until = over if scope.window.until is None else min(over, scope.window.until)
    later: list[NotDue] = []
    if recipient.target_id is not None:
        with recipient.store.read() as connection:
            days = queries.periods_of(connection, recipient.target_id, State.WAITING, "day")
        later = [NotDue(day, NOT_OVER) for day in days if day.start >= over]
    return msgspec.structs.replace(scope, window=Window(scope.window.from_, until), only_due=True), later


def _months_waiting(recipient: Recipient, scope: Scope) -> set[Month]:
    if recipient.target_id is None:
        return set()
    with recipient.store.read() as connection:
        months = set(queries.months_of(connection, recipient.target_id, State.WAITING))
    if scope.as_waiting is not None:
        months |= months_waiting_as(recipient.store, recipient.target_id, scope.window, scope.as_waiting)
    return months


def _records(recipient: Recipient, scope: Scope) -> Section:
    form = record_format(recipient.format_name, recipient.view)
    return Section(form, _record_pages(recipient, scope, form))


def _record_pages(recipient: Recipient, scope: Scope, form: RecordFormat) -> Iterator[ItemPage]:
    if scope.runs is not None:
        if scope.runs:
            yield PageRenderer(recipient, form).rendered(scope.runs, guarded=scope.guarded)
    elif not scope.is_due or recipient.target_id is None:
        renderer = PageRenderer(recipient, form)
        window = scope.window
        if scope.is_due:
            window = Window(first_waiting(recipient).from_, scope.window.until)
        for page in sent_in(recipient, window, PAGE):
            yield renderer.rendered(page)
    elif scope.as_waiting is not None:
        renderer = PageRenderer(recipient, form, scope)
        for page in waiting_in(recipient.store, recipient.target_id, scope.window, scope.as_waiting, PAGE):
            yield renderer.rendered(page)
    else:
        yield from _waiting_pages(recipient, scope, form, recipient.target_id)


def _waiting_pages(recipient: Recipient, scope: Scope, form: RecordFormat, target_id: int) -> Iterator[ItemPage]:
    """What waits for a target: where its own format is made of many runs, most of them in a worker process."""
    assert recipient.name is not None
    with recipient.store.read() as connection:
        # A service that replaces must store what is sent again; one that keeps the first, or refuses it, does not.
        replaces = recipient.required_settings().second_version.replaces
        as_new = replaces and batches.is_resending(connection, target_id)
        waiting = deliveries.of_target(connection, target_id)[State.WAITING] // scope.part.of
    renderer = PageRenderer(recipient, form, scope, _PAGE_SENT)
    order = RenderOrder(recipient.config, recipient.name, scope, _PAGE_SENT)
    waiting = waiting if recipient.is_own_format else 0
    yield from BackgroundRenderer(renderer, order, waiting, scope.backlog).pages(as_new)

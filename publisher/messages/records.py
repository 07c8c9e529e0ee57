"""Render runs as records, page by page: each as it appears in a message, or held with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final

from sqlalchemy import Connection

from formats.base import RecordFormat
from formats.rule_codes import CannotRenderError, Reason
from publisher.messages.duplicate_guard import KEY_CHANGED, DuplicateGuard, is_key_changed
from publisher.messages.item import Held, Item, ItemPage, Members
from publisher.messages.recipient import Recipient
from publisher.messages.steps import DUE, Scope
from publisher.store import queries
from publisher.store.paging import Place
from publisher.store.queries import PendingDelivery

PAGE: Final = 1000
"""How many runs are rendered at a time when nothing is sent."""
LAST_RUN: Final = 2**63 - 1
"""Greater than any run id."""


class PageRenderer:
    """Reads and renders the waiting deliveries of one target, or a part of them."""

    def __init__(self, recipient: Recipient, form: RecordFormat, scope: Scope = DUE, size: int = PAGE) -> None:
        """`size`: runs in a page."""
        self._store = recipient.store
        self._scope = scope
        self._window = scope.window
        self._recipient = recipient
        self._format = form
        self._size = size
        # Where a changed run is not sent, none counts under two keys.
        self._sends_changed = recipient.settings is None or recipient.settings.second_version.sends_changed
        self._guard = (
            DuplicateGuard(
                recipient.config,
                form,
                recipient.view,
                recipient.preparer,
                recipient.target_id,
                recipient.selects_now,
                scope.as_waiting,
            )
            if recipient.is_sent
            else None
        )

    def place_of(self, number: int) -> Place | None:
        """End time and id of the n-th waiting delivery; None if fewer wait."""
        with self._store.read() as connection:
            place = queries.place_of(connection, self._target_id, number, self._begin, self._scope.part)
        return place if place is not None and self._is_before_end(place[0]) else None

    def page(self, after: Place | None, *, as_new: bool) -> ItemPage | None:
        """Return the next page; None at the end.

        `as_new`: records that the service has count as new to it, since they were requested again and are stored again.
        """
        with self._store.read() as connection:
            waiting = queries.waiting(connection, self._target_id, after or self._begin, self._size, self._scope.part)
            if self._window.until is not None:
                waiting = takewhile(lambda each: self._is_before_end(each.end_time), waiting)
            page = self._page(waiting, connection, as_new=as_new)
        return page if page.place is not None else None

    def _is_before_end(self, end: int) -> bool:
        return self._window.until is None or end < self._window.until

    @property
    def _begin(self) -> Place | None:
        """The place before all runs that ended in the window."""
        return None if self._window.from_ is None else (self._window.from_ - 1, LAST_RUN)

    def rendered(self, page: Sequence[PendingDelivery], *, guarded: bool = True) -> ItemPage:
        """Render these deliveries. `guarded`: those that would count twice, or replace another job, are held."""
        if not guarded:
            return self._page(page, None, as_new=False)
        with self._store.read() as connection:
            return self._page(page, connection, as_new=False)

    def _page(self, page: Iterable[PendingDelivery], connection: Connection | None, *, as_new: bool) -> ItemPage:
        """Render each delivery when it is decoded: the processor's caches hold one run, but not a page of them.

        `connection`: of the read transaction in which duplicates are searched for; None: none are.
        """
        items = []
        held = []
        place: Place | None = None
        to_hold: Mapping[int, Reason] = {}
        if connection is not None and self._guard is not None and self._guard.applies(connection):
            page = list(page)  # all of a page are looked up at once
            to_hold = self._guard.held(connection, [each.run for each in page if each.run.damage is None])
        for delivery in page:
            run = delivery.run
            place = delivery.end_time, run.run_id
            members = Members([run.run_id], [delivery.revision])
            reason = to_hold.get(run.run_id)
            sent = delivery.sent
            if (
                sent is not None
                and connection is not None
                and run.damage is None
                and self._sends_changed
                and is_key_changed(connection, self._format.name, run, sent)
            ):
                reason = KEY_CHANGED
            if reason is None:
                try:
                    made = self._format.record(self._recipient.preparer.prepare(run), run.stored_at)
                except CannotRenderError as error:
                    reason = error.reason_of(run.source)
                else:
                    items.append(
                        Item(
                            made.record_id or run.record_id,
                            members,
                            made.body,
                            run.digest,
                            delivery.end_time,
                            made.notes,
                            None,
                            sent,
                            sent is not None and not as_new,
                        )
                    )
                    continue
            held.append(Held(reason, members, run.record_id, delivery.end_time))
        return ItemPage(items, held, place)

    @property
    def _target_id(self) -> int:
        assert self._recipient.target_id is not None  # only a target that has deliveries has some that wait
        return self._recipient.target_id

"""render: the payloads that publish would send. It uses no network and changes nothing.

Renders what is due to a target, or all jobs of a window; for one target, or as a plain view of the site. The items are
those of `publisher.messages.items`, as when they are sent.

render --validate omits messages that their service would refuse or that break the grammar of their format.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from formats.base import MessageFormat, Note
from formats.check.message import inspect_message
from formats.registry import FORMATS, report_format
from formats.rule_codes import Reason
from formats.text import FIRST_INSTANT, LAST_INSTANT
from formats.utilization.measure import Bins, Tally
from formats.utilization.report import UtilizationReport
from formats.view import View
from publisher.config.schema import Config
from publisher.errors import CredentialError, UsageError
from publisher.messages.due import Unplanned, ended_in, held_in, runs_ended_in
from publisher.messages.entries import rans_of
from publisher.messages.item import Held, ItemPage, Limits, cut, uid_of
from publisher.messages.items import items, records_of, total_of
from publisher.messages.recipient import Recipient
from publisher.messages.steps import NotDue, Scope, Section
from publisher.plugins import record_format
from publisher.reason import TRIED_AGAIN, sentence
from publisher.sources.base import Window
from publisher.status.jobs import count_in
from publisher.store import deliveries, runs
from publisher.store.database import Store
from publisher.store.queries import PendingDelivery
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun

DEFAULT_RECORDS = 100
DEFAULT_BYTES = 1_000_000
REPORT_S: Final = 30 * 86_400
"""How long the interval of a report is that has no start."""
REPORT_BIN_S: Final = 3600


class HeldPreview(msgspec.Struct, frozen=True):
    """A run that cannot be rendered, and why."""

    record_id: str
    reason: Reason


class Noted(msgspec.Struct, frozen=True):
    """A value that was changed in a record."""

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
    """Renders one format for one target, or without a target as a plain view of the site.

    `records`, `held`, and `notes` are complete when the messages have been read.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        format_name: str,
        target: str | None,
        window: Window,
        now: int,
        *,
        with_sync: bool = False,
    ) -> None:
        """`now`: epoch seconds. `with_sync`: also the sync messages that go with the target's own format; `records`
        does not count them."""
        self._store = store
        self._config = config
        self._recipient = Recipient(store, config, target, format_name)
        self._scope = Scope(window)
        self._now = now
        self._with_sync = with_sync
        self.records = 0
        self._limit_bytes: int | None = DEFAULT_BYTES
        self.cut_otherwise: str | None = None
        """Why messages may be cut at other places than `publish` will cut them; None if they will not."""
        if target is not None:
            self._limit_bytes, self.cut_otherwise = payload_limit(config, target)
        self.held: list[HeldPreview] = []
        self.notes: list[Noted] = []

    def messages(self) -> Iterator[RenderedMessage]:
        """Yield the messages, in the order in which they would be sent.

        Raises `UsageError` for a format or version that does not exist.
        """
        settings = self._recipient.settings
        most = settings.batch_records if settings is not None else DEFAULT_RECORDS
        for section in self._sections(self._scope):
            form = section.form
            limits = Limits(
                section.most or most,
                self._limit_bytes,
                form.overhead_bytes,
                form.separator_bytes,
                by_day=settings is not None and settings.by_day,
            )
            for batch in cut((item for page in self._looked_at(section) for item in page.items), limits):
                self.records += len(batch) if self._is_asked(section) else 0
                payload = form.message([item.body for item in batch])
                uid = uid_of(self._recipient.name or "", batch, payload)
                yield RenderedMessage(uid, form.name, payload, len(batch), form.content_type)

    def expected(self) -> int | None:
        """Return how many records the messages will have; None if that is not known before they are made."""
        recipient, window = self._recipient, self._scope.window
        if recipient.format.shape != "record":
            return None
        with self._store.read() as connection:
            if window != Window():
                return count_in(connection, window.from_, window.until)
            if recipient.target_id is not None:
                return deliveries.of_target(connection, recipient.target_id)[State.WAITING]
        return None

    def _is_asked(self, section: Section) -> bool:
        """Whether it is of the format that is rendered, not a sync count that goes with it."""
        return section.form.name == self._recipient.format_name

    def _sections(self, scope: Scope) -> Iterator[Section]:
        """Yield the sections that are rendered; add periods that are not over to `held`."""
        try:
            for step in items(self._recipient, scope, now=self._now, limit_bytes=self._limit_bytes):
                if isinstance(step, Section) and (self._with_sync or self._is_asked(step)):
                    yield step
                elif isinstance(step, NotDue):
                    self.held.append(HeldPreview(str(step.period), step.reason))
        except (LookupError, ValueError) as error:
            raise UsageError(str(error)) from error

    def _looked_at(self, section: Section) -> Iterator[ItemPage]:
        """Yield the pages of a section; add what they hold and alter to `held` and `notes`.

        What a sync count leaves out was held before.
        """
        for page in section.pages:
            for item in page.items:
                record_id = item.key if item.group is None else ""
                self.notes += [Noted(record_id, note) for note in item.notes]
            for held in page.held if self._is_asked(section) else ():
                self.held += [HeldPreview(name, held.reason) for name in self._names_of(held)]
            yield page

    def _names_of(self, held: Held) -> Iterator[str]:
        """Yield the record ids of runs that are held."""
        if held.key:
            yield held.key
            return
        with self._store.read() as connection:
            yield from list(runs.record_ids(connection, held.members.run_ids))
        if held.bounds is not None and self._recipient.target_id is None:
            yield from (each.run.record_id for _, each in Unplanned(self._recipient).ended_in(held.bounds))
        elif held.bounds is not None and self._recipient.target_id is not None:
            there = ended_in(self._store, self._recipient.target_id, held.bounds)
            yield from (each.run.record_id for state, each in there if state is State.WAITING)
            kept = held_in(self._store, self._recipient.target_id, held.bounds, TRIED_AGAIN)
            yield from (each.run.record_id for each in kept)


class ReportRendering:
    """Renders a utilization report of any window: what `Rendering` is for records."""

    def __init__(self, store: Store, config: Config, format_name: str, window: Window, now: int) -> None:
        """A `window` without a start begins 30 days before its end; one without an end ends at `now`.

        Raises `UsageError` for a window that is empty, has too many hours, or lies outside the years 100 to 9999.
        """
        stop = now if window.until is None else window.until
        start = stop - REPORT_S if window.from_ is None else window.from_
        if start < FIRST_INSTANT or stop > LAST_INSTANT:
            raise UsageError("the interval must lie in the years 100 to 9999")
        try:
            self._bins = Bins(start, stop, REPORT_BIN_S)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._store = store
        self._site = config.site.name
        self._format_name = format_name
        self.records = 0
        self.cut_otherwise: str | None = None
        """A report is one message, however many bins it has."""
        self.held: list[HeldPreview] = []
        self.notes: list[Noted] = []

    def expected(self) -> int | None:
        """Return None: the number of bins is known when the report is made."""
        return None

    def messages(self) -> Iterator[RenderedMessage]:
        """Yield the one message; its records are its bins."""
        tally = Tally(self._bins)
        for run, _ in runs_ended_in(self._store, Window(self._bins.start, None)):
            for ran in rans_of(run.job):
                tally.add(ran)
        form = report_format(self._format_name, View(site=self._site))
        report = UtilizationReport(
            site=self._site,
            start=self._bins.start,
            stop=self._bins.stop,
            bin_s=self._bins.size_s,
            measure="queue",
            bins=tally.measured(),
        )
        self.records = len(report.bins)
        yield RenderedMessage(self._format_name, form.name, form.message(report), self.records)


def payload_limit(config: Config, target: str) -> tuple[int | None, str | None]:
    """Return the maximum size of a target's payload in bytes, so that the signed and encoded message is not too large.

    The target needs its certificate for that. If it cannot be read, the limit is that of the settings, and the second
    value says why.
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


def signing(config: Config, target: str | None) -> Callable[[bytes], bytes]:
    """Return the function that signs a message with the credentials of a target, or with the common ones, and encrypts
    it if the target's messages are. Raises `CredentialError`."""
    from publisher.targets.identity import Identity, TargetContext  # noqa: PLC0415 - loads OpenSSL

    settings = config.targets[target] if target is not None else None
    own, receiver = (settings.credentials, settings.receiver_certificate) if settings is not None else (None, None)
    return Identity(own, TargetContext(config.credentials, time.time)).signer(receiver).sign


def message_for(store: Store, config: Config, target: str, run: StoredRun, now: int) -> bytes:
    """Return the message that a target would get with the record of this run alone, or with the summary that contains
    it; or the reason why there is none, in parentheses."""
    recipient = Recipient(store, config, target)
    if recipient.format.shape == "report":
        return b"(a report has no records of single jobs)"
    form: MessageFormat
    if recipient.format.shape == "totals":
        total = total_of(recipient, run, now)
        item, form, reason = total.item, total.form, total.reason
    else:
        form = record_format(recipient.format_name, recipient.view)
        page = records_of(recipient, [PendingDelivery(run.job.end or 0, run)], guarded=False)
        item = page.items[0] if page.items else None
        reason = page.held[0].reason if page.held else None
    if item is None:
        return f"(cannot be rendered: {sentence(reason)})".encode("ascii", "backslashreplace")
    return form.message([item.body])


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
        if message.format not in FORMATS:
            raise UsageError(
                f"{message.format} cannot be validated: it has no rules",
                hint=f"--validate works with {', '.join(sorted(FORMATS))}",
            )
        self._messages += 1
        inspection = inspect_message(message.payload, self._now)
        ids = {record.number: record.id for record in inspection.records}
        self.broken += [
            Broken(self._messages, ids.get(broken.record, ""), broken.field, broken.rule, broken.source)
            for broken in inspection.violations
            if broken.level == "error" or inspection.is_of_grammar(broken)
        ]
        return inspection.valid

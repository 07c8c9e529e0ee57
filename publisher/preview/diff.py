"""render --diff: what would be sent compared with what was last delivered, by record and field.

The store keeps the facts of a run that were delivered, not the bytes. They are rendered with the present configuration,
so only changed facts are shown. For a summary, a sync count, and a report it keeps what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from formats.base import MessageFormat
from formats.check.fields import changed_fields, fields_of
from formats.text import date_time
from formats.utilization.report import UtilizationReport, builtins, read_report
from publisher.messages.item import Item, ItemPage
from publisher.messages.items import records_of
from publisher.messages.steps import Section
from publisher.plugins import totals_format
from publisher.preview.render import Rendering
from publisher.store import groups, queries, runs
from publisher.store.groups import GroupRow
from publisher.store.queries import PendingDelivery
from publisher.store.schema import State
from publisher.store.stored_json import decoded
from publisher.store.stored_run import StoredRun

Kind = Literal["new", "changed", "unchanged", "gone", "unknown"]
"""`gone`: a group that the service has and that has no runs any more; `unknown`: the version that was delivered is
not kept (it was imported, or is purged)."""


class FieldChange(msgspec.Struct, frozen=True):
    """A field that differs; None if it is missing on that side."""

    field: str
    before: str | None
    after: str | None


class Change(msgspec.Struct, frozen=True):
    """A record that would be sent, compared with what was delivered. `record`: its id, or the key of the group."""

    record: str
    kind: Kind
    fields: tuple[FieldChange, ...] = ()


Values = dict[str, tuple[str, ...]]


class DiffRendering(Rendering):
    """A rendering for one target that yields changes instead of messages."""

    def changes(self) -> Iterator[Change]:
        """Yield each record of the rendering, in its order. Raises as `messages`."""
        scope = msgspec.structs.replace(self._scope, unchanged_too=True)
        for section in self._sections(scope):
            for page in self._looked_at(section):
                if section.kind is None:
                    yield from self._of_records(section.form, page)
                else:
                    yield from self._of_groups(section, page, section.kind)

    def _of_records(self, form: MessageFormat, page: ItemPage) -> Iterator[Change]:
        target_id = self._recipient.target_id if self._recipient.target_id is not None else -1
        by_run = {item.members.run_ids[0]: item for item in page.items}
        with self._store.read() as connection:
            sent = queries.sent_versions(connection, target_id, list(by_run))
            changed = [run_id for run_id, one in sent.items() if not one.is_known_as(by_run[run_id].digest)]
            now = {run.run_id: run for run in runs.by_ids(connection, changed)}
            before = {
                run_id: None
                if sent[run_id].may_be_one_of_several
                else runs.version_of(connection, run_id, sent[run_id].digest)
                for run_id in changed
            }
        for run_id, item in by_run.items():
            earlier = before.get(run_id)
            if run_id not in sent:
                yield Change(item.key, "new")
            elif run_id not in before:
                yield Change(item.key, "unchanged")
            elif earlier is None:
                yield Change(item.key, "unknown")
            else:
                yield self._changed(form, msgspec.structs.replace(now[run_id], job=earlier), item)

    def _changed(self, form: MessageFormat, earlier: StoredRun, item: Item) -> Change:
        made = records_of(self._recipient, [PendingDelivery(earlier.job.end or 0, earlier)], guarded=False)
        if not made.items:
            return Change(item.key, "unknown")
        before, after = (self._fields(form, each.body) for each in (made.items[0], item))
        return _compared(item.key, before, after)

    def _of_groups(self, section: Section, page: ItemPage, kind: str) -> Iterator[Change]:
        is_held = any(held.bounds is not None for held in page.held)
        known: dict[str, GroupRow] = {}
        if self._recipient.target_id is not None and section.period is not None and not is_held:
            with self._store.read() as connection:
                rows = groups.of_month(connection, self._recipient.target_id, kind, section.period.number)
            known = {key: row for key, row in rows.items() if row.state is State.ACCEPTED and key not in section.kept}
        has_jobs = {key for key, row in known.items() if row.jobs or kind == groups.UTILIZATION}
        for item in page.items:
            name, row = _name(kind, item.key), known.pop(item.key, None)
            if row is None or item.key not in has_jobs:
                yield Change(name, "new")
            else:
                yield _compared(name, self._group_fields(section, row), self._item_fields(section, item))
        yield from (Change(_name(kind, key), "gone") for key in known if key in has_jobs)

    def _item_fields(self, section: Section, item: Item) -> Values:
        if section.kind == groups.UTILIZATION and item.group is not None:
            return _report_fields(read_report(item.group.body))
        return self._fields(section.form, item.body)

    def _group_fields(self, section: Section, row: GroupRow) -> Values:
        """Return the fields of a group as it was sent."""
        if section.kind == groups.UTILIZATION:
            return _report_fields(read_report(row.body))
        form = self._recipient.sync_format if section.kind == groups.SYNC else self._recipient.format
        made = totals_format(form.name, self._recipient.view).record(row.total(form.required_totals))
        return self._fields(section.form, made.body)

    def _fields(self, form: MessageFormat, body: bytes) -> Values:
        return fields_of(self._recipient.format_name, form.message([body]))


def _compared(record: str, before: Values, after: Values) -> Change:
    fields = tuple(FieldChange(*change) for change in changed_fields(before, after))
    return Change(record, "changed" if fields else "unchanged", fields)


def _name(kind: str, key: str) -> str:
    """Return the name of a group for people: its key, or the interval of a report."""
    if kind != groups.UTILIZATION:
        return key
    start, stop = decoded(key, tuple[int, int], "the interval of a report")
    return f"{date_time(start)} to {date_time(stop)}"


def _report_fields(report: UtilizationReport) -> Values:
    """Return each number of a report by its bin, and the values of the whole report."""
    values = builtins(report)
    bins = values.pop("bins")
    fields: Values = {name: (str(value),) for name, value in values.items()}
    for one in bins:
        start = one.pop("start")
        fields.update((f"{start} {name}", (str(value),)) for name, value in one.items())
    return fields

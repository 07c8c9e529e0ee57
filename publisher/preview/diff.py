"""render --diff: what would be sent beside what was last delivered, record by record and field by field.

Of a run, the store keeps the facts that were delivered, not the bytes: they are rendered as the configuration has it
today, so what is shown is what changed in the facts. Of a summary and a sync count it keeps what was sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from formats.base import CannotRenderError, RecordFormat, Rendered
from formats.calendar import Month
from formats.check.fields import changed_fields, fields_of
from formats.registry import summary_format, sync_format
from formats.summary import Group, SyncCount
from publisher.config.schema import SUMMARY_KINDS
from publisher.messages.item import GroupFormat
from publisher.plugins import record_format
from publisher.preview.render import Rendering
from publisher.store import groups, queries, registry, runs
from publisher.store.runs import StoredRun
from publisher.store.schema import State

Kind = Literal["new", "changed", "unchanged", "gone", "unknown"]
"""`gone`: a group that the service has, and that has no runs any more; `unknown`: delivered, but the version that was
is not kept (a state that was imported, or purged)."""


class FieldChange(msgspec.Struct, frozen=True):
    """A field that differs; None where it was, or is, not there."""

    field: str
    before: str | None
    after: str | None


class Change(msgspec.Struct, frozen=True):
    """A record that would be sent, beside what was delivered. `record`: its id, or the group's key."""

    record: str
    kind: Kind
    fields: tuple[FieldChange, ...] = ()


class DiffRendering(Rendering):
    """A rendering for one target that tells changes instead of giving messages. Runs that are held are in `held`."""

    def changes(self) -> Iterator[Change]:
        """Every record of the rendering, in its order. Raises what `messages` raises."""
        assert self._target is not None
        with self._store.read() as connection:
            row = registry.get_target(connection, self._target)
        target_id = row.id if row is not None else -1
        if self._format_name in SUMMARY_KINDS:
            yield from self._of_summaries(target_id)
        elif self._format_name == "apel-sync":
            yield from self._of_sync(target_id)
        else:
            yield from self._of_records(target_id)

    def _of_records(self, target_id: int) -> Iterator[Change]:
        form = record_format(self._format_name, self._view)
        for items, page in self._pages(form):
            bodies = {item.run_id: item.body for item in items}
            found = [each.run for each in page if each.run.run_id in bodies]
            with self._store.read() as connection:
                sent = queries.sent_digests(connection, target_id, [run.run_id for run in found])
                before = {
                    run.run_id: runs.version_of(connection, run.run_id, sent[run.run_id])
                    for run in found
                    if run.run_id in sent and sent[run.run_id] != run.digest
                }
            for run in found:
                earlier = before.get(run.run_id)
                if run.run_id not in sent:
                    yield Change(run.record_id, "new")
                elif sent[run.run_id] == run.digest:
                    yield Change(run.record_id, "unchanged")
                elif earlier is None:
                    yield Change(run.record_id, "unknown")
                else:
                    earlier_run = msgspec.structs.replace(run, job=earlier)
                    yield self._changed(form, run, earlier_run, bodies[run.run_id])

    def _changed(self, form: RecordFormat, run: StoredRun, earlier: StoredRun, body: bytes) -> Change:
        try:
            before = form.record(self._demand.prepare(earlier), run.stored_at).body
        except CannotRenderError:
            return Change(run.record_id, "unknown")
        fields = (fields_of(self._format_name, form.message([one])) for one in (before, body))
        return _compared(run.record_id, *fields)

    def _of_summaries(self, target_id: int) -> Iterator[Change]:
        form = summary_format(self._format_name, self._view)
        months = dict(self._due_months(form))
        before = self._delivered(target_id, groups.SUMMARY, months)
        fixed = {key for due in months.values() for key in due.fixed}
        yield from self._of_groups(
            form,
            {group.key.text: form.record(group) for due in months.values() for group in due.groups},
            {key: form.record(Group.from_json(body)) for key, body in before.items() if key not in fixed},
        )

    def _of_sync(self, target_id: int) -> Iterator[Change]:
        form = sync_format(self._view)
        counted = list(self._counts())
        before = self._delivered(target_id, groups.SYNC, (month for month, _ in counted))
        yield from self._of_groups(
            form,
            {count.key.text: form.record(count) for _, counts in counted for count in counts},
            {key: form.record(SyncCount.from_json(body)) for key, body in before.items()},
        )

    def _delivered(self, target_id: int, kind: str, months: Iterable[Month]) -> dict[str, bytes]:
        """The groups of these months that the service took, by key, as they were sent; those without runs left out."""
        found: dict[str, bytes] = {}
        with self._store.read() as connection:
            for month in sorted(months):
                rows = groups.of_month(connection, target_id, kind, month.number)
                found.update((key, row.body) for key, row in rows.items() if row.state is State.ACCEPTED and row.jobs)
        return found

    def _of_groups(
        self, form: GroupFormat, after: dict[str, Rendered], before: dict[str, Rendered]
    ) -> Iterator[Change]:
        def fields(rendered: Rendered) -> dict[str, tuple[str, ...]]:
            return fields_of(self._format_name, form.message([rendered.body]))

        for key, rendered in after.items():
            if key in before:
                yield _compared(key, fields(before[key]), fields(rendered))
            else:
                yield Change(key, "new")
        yield from (Change(key, "gone") for key in before if key not in after)


def _compared(record: str, before: dict[str, tuple[str, ...]], after: dict[str, tuple[str, ...]]) -> Change:
    fields = tuple(FieldChange(*change) for change in changed_fields(before, after))
    return Change(record, "changed" if fields else "unchanged", fields)

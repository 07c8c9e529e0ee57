"""render --explain: why each value stands in the record of one run, or in the summary that it is part of.

From the facts read to the bytes sent.

render --explain of summaries: the group that a run is part of, the other runs in it, and what each brings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from formats.base import CannotRenderError, Note
from formats.calendar import Month, month_bounds
from formats.check.fields import GROUP_RULES, RULES, Explained, Fields, explain, fields_of
from formats.registry import record_format, summary_format
from formats.summary import Fold, GroupKey
from formats.view import View
from publisher.collect.enrich import Enrichers
from publisher.collect.wants import RunPreparer, is_usually_sent, why_unwanted
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.messages.due import ended_in
from publisher.messages.item import view_of
from publisher.status import jobs
from publisher.store import queries, registry
from publisher.store.database import Store
from publisher.store.runs import StoredRun
from publisher.store.schema import State

MOST_LISTED: Final = 1000
_PAGE: Final = 1000


class GroupShare(msgspec.Struct, frozen=True):
    """What a run brings to its group: durations in ms; `end` in epoch seconds."""

    record_id: str
    end: int
    wall_ms: int
    cpu_ms: int


class ExplainedGroup(msgspec.Struct, frozen=True):
    """A group: its key at the receiver, how many runs are in it, and the first of them by end.

    `earliest` and `latest` are the record ids of the runs that ended first and last; `spelled_by` that of a run with
    the spelling that is sent; `sources` and `rules` count its runs by source, and by rule of the configuration.
    """

    key: str
    jobs: int
    earliest: str
    latest: str
    spelled_by: str
    sources: dict[str, int]
    rules: dict[str, int]
    parts: tuple[GroupShare, ...]


class FoundGroup(msgspec.Struct, frozen=True):
    """The group as it would be sent, field by field, and what there is to tell of it."""

    fields: Fields
    notes: tuple[Note, ...]
    told: ExplainedGroup


class GroupFinder:
    """Finds groups as a target, or a plain view of the site, has them. `target_id`: of a target that is planned for."""

    def __init__(
        self,
        store: Store,
        demand: RunPreparer,
        enrichers: Enrichers,
        view: View,
        format_name: str,
        target_id: int | None,
    ) -> None:
        self._store = store
        self._demand = demand
        self._enrichers = enrichers
        self._view = view
        self._format_name = format_name
        self._target_id = target_id

    def of(self, run: StoredRun) -> FoundGroup:
        """The group of a run. Raises `CannotRenderError` for one that is in none, or whose sums cannot be sent."""
        form = summary_format(self._format_name, self._view)
        key, _ = self._key_and_spelling(run)
        fold = Fold(self._view, normalised=form.normalised)
        parts: list[GroupShare] = []
        sources: Counter[str] = Counter()
        rules: Counter[str] = Counter()
        last = ""
        least: tuple[GroupKey, str] | None = None
        for one in self._runs(key.when):
            try:
                its_key, spelling = self._key_and_spelling(one)
            except CannotRenderError:
                continue  # held: in no group
            if its_key != key:
                continue
            job = self._demand.prepare(one)
            fold.add(job)
            if len(parts) < MOST_LISTED:
                parts.append(GroupShare(one.record_id, job.end or 0, job.wall_ms or 0, job.cpu_ms or 0))
            least = min(least or (spelling, one.record_id), (spelling, one.record_id))
            sources[one.source] += 1
            rules.update(self._enrichers.used_by(one.source, one.job))
            last = one.record_id
        if least is None:
            raise CannotRenderError("NumberOfJobs", "the target is not owed this run: waived, superseded or not wanted")
        (group,) = fold.groups()
        rendered = form.record(group)
        told = ExplainedGroup(
            key.text, group.jobs, parts[0].record_id, last, least[1], dict(sources), dict(rules), tuple(parts)
        )
        return FoundGroup(fields_of(self._format_name, form.message([rendered.body])), rendered.notes, told)

    def _key_and_spelling(self, run: StoredRun) -> tuple[GroupKey, GroupKey]:
        fold = Fold(self._view, normalised=self._format_name == "apel-normalised-summary")
        key = fold.add(self._demand.prepare(run))
        (group,) = fold.groups()
        return key, group.spelling

    def _runs(self, month: Month) -> Iterator[StoredRun]:
        """The runs of a month, by end: those that the target is owed, or all that are usually sent."""
        bounds = month_bounds(month)
        if self._target_id is not None:
            for state, delivery in ended_in(self._store, self._target_id, bounds):
                if state is not State.HELD:
                    yield delivery.run
            return
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = [run for run, _ in queries.runs_in(connection, *bounds, after, _PAGE)]
            yield from (run for run in page if is_usually_sent(run.job))
            if len(page) < _PAGE:
                return
            after = (page[-1].job.end or 0, page[-1].run_id)


class Explanation(msgspec.Struct, frozen=True):
    """A record of a run: its values, what was altered in it (`notes`), or why it is `held`.

    `added` are the facts that the configuration gave and the source did not; `rules` the mapping and benchmark rules
    that gave something. `group`: of a summary, what else is in it. `unwanted`: why the target does not want the run.
    """

    record_id: str
    source: str
    values: tuple[Explained, ...]
    added: tuple[str, ...]
    rules: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    held: str | None = None
    group: ExplainedGroup | None = None
    unwanted: str | None = None


def explanations(store: Store, config: Config, format_name: str, target: str | None, name: str) -> list[Explanation]:
    """Of the runs with this record id, local id or global id, as the target, or a plain view, has them.

    Of a summary, the group that each of them is part of. Raises `UsageError` for a format whose records are not made of
    jobs that one can name, and for an id that is not known.
    """
    if format_name not in RULES and format_name not in GROUP_RULES:
        raise UsageError(
            f"{format_name} has no record that one job is in",
            hint=f"Those of {', '.join(sorted({*RULES, *GROUP_RULES}))} can be explained",
        )
    settings = config.targets[target] if target is not None else None
    view = view_of(settings, config) if settings is not None else View(site=config.site.name)
    if settings is not None and settings.records != format_name:
        view = msgspec.structs.replace(view, version="")
    demand = RunPreparer(config, settings)
    enrichers = Enrichers(config)
    with store.read() as connection:
        found = [run for run in jobs.found(connection, name, config.local_id_prefixes) if not run.job.slave]
        row = registry.get_target(connection, target) if target is not None else None
        unwanted = why_unwanted(connection, config, [target] if target is not None else [], found)
    if not found:
        raise UsageError(f"no job {name} is known", hint="An id is a record id, a local id or a global id")
    groups = GroupFinder(store, demand, enrichers, view, format_name, row.id if row is not None else None)
    explained = []
    for run in found:
        met = enrichers.apply(run.source, run.job)
        added = tuple(fact for fact in run.job.__struct_fields__ if getattr(run.job, fact) != getattr(met, fact))
        why = unwanted[run.run_id].get(target) if target is not None else None
        rules = enrichers.used_by(run.source, run.job)
        told = Explanation(run.record_id, run.source, (), added, rules, unwanted=why)
        try:
            if format_name in GROUP_RULES:
                group = groups.of(run)
                fields, notes = group.fields, group.notes
                told = msgspec.structs.replace(told, group=group.told)
            else:
                form = record_format(format_name, view)
                rendered = form.record(demand.prepare(run), run.stored_at)
                fields, notes = fields_of(format_name, form.message([rendered.body])), rendered.notes
        except CannotRenderError as error:
            explained.append(msgspec.structs.replace(told, held=str(error)))
            continue
        values = tuple(explain(format_name, fields, met))
        explained.append(msgspec.structs.replace(told, values=values, notes=notes))
    return explained

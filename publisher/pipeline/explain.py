"""render --explain: why each value stands in the record of one run, or in the summary that it is part of.

From the facts read to the bytes sent.
"""

from __future__ import annotations

import msgspec

from formats.explain import GROUP_RULES, RULES, Explained, explain
from formats.record import CannotRenderError, Note
from formats.record_fields import fields_of
from formats.registry import record_format
from formats.view import View
from publisher.config import Config
from publisher.enrich import Enrichers
from publisher.errors import UsageError
from publisher.pipeline import recall
from publisher.pipeline.demand import Demand
from publisher.pipeline.explain_group import ExplainedGroup, GroupFinder
from publisher.pipeline.unwanted import why_unwanted
from publisher.pipeline.viewing import view_of
from publisher.store import registry
from publisher.store.database import Store


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
    demand = Demand(config, settings)
    enrichers = Enrichers(config)
    with store.read() as connection:
        found = [run for run in recall.found(connection, name, config.local_id_prefixes) if not run.job.slave]
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
                rendered = form.record(demand.meet(run), run.stored_at)
                fields, notes = fields_of(format_name, form.message([rendered.body])), rendered.notes
        except CannotRenderError as error:
            explained.append(msgspec.structs.replace(told, held=str(error)))
            continue
        values = tuple(explain(format_name, fields, met))
        explained.append(msgspec.structs.replace(told, values=values, notes=notes))
    return explained

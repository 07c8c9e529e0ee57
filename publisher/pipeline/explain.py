"""render --explain: why each value stands in the record of one run, from the facts read to the bytes sent."""

from __future__ import annotations

import msgspec

from formats.explain import RULES, Explained, explain
from formats.record import CannotRenderError, Note
from formats.record_fields import fields_of
from formats.registry import record_format
from formats.view import View
from publisher.config import Config
from publisher.enrich import Enrichers
from publisher.errors import UsageError
from publisher.pipeline.demand import Demand
from publisher.pipeline.viewing import view_of
from publisher.store import runs
from publisher.store.database import Store


class Explanation(msgspec.Struct, frozen=True):
    """A record of a run: its values, what was altered in it (`notes`), or why it is `held`.

    `added` are the facts that the configuration gave and the source did not; `rules` the mapping and benchmark rules
    that gave something.
    """

    record_id: str
    source: str
    values: tuple[Explained, ...]
    added: tuple[str, ...]
    rules: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    held: str | None = None


def explanations(store: Store, config: Config, format_name: str, target: str | None, name: str) -> list[Explanation]:
    """Of the runs with this record id, local id or global id, as the target, or a plain view, has them.

    Raises `UsageError` for a format without a record a run, and for an id that is not known.
    """
    if format_name not in RULES:
        raise UsageError(
            f"{format_name} has no record for each run",
            hint=f"Those of {', '.join(sorted(RULES))} can be explained; `render --diff` shows groups",
        )
    settings = config.targets[target] if target is not None else None
    view = view_of(settings, config) if settings is not None else View(site=config.site.name)
    if settings is not None and settings.records != format_name:
        view = msgspec.structs.replace(view, version="")
    form = record_format(format_name, view)
    demand = Demand(config, settings)
    enrichers = Enrichers(config)
    with store.read() as connection:
        found = runs.find(connection, name)
    if not found:
        raise UsageError(f"no job {name} is known", hint="An id is a record id, a local id or a global id")
    explained = []
    for run in found:
        met = enrichers.apply(run.source, run.job)
        enricher = enrichers.by_name.get(run.source)
        used = tuple(sorted(set(enricher.used_by(run.job, [run.job.end])))) if enricher is not None else ()
        added = tuple(fact for fact in run.job.__struct_fields__ if getattr(run.job, fact) != getattr(met, fact))
        try:
            rendered = form.record(demand.meet(run), run.stored_at)
        except CannotRenderError as error:
            explained.append(Explanation(run.record_id, run.source, (), added, used, held=str(error)))
            continue
        values = tuple(explain(format_name, fields_of(format_name, form.message([rendered.body])), met))
        explained.append(Explanation(run.record_id, run.source, values, added, used, rendered.notes))
    return explained

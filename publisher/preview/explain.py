"""render --explain: the facts and the rule of each value in the record of a run, or in its summary.

For a summary also the other runs of the group, and the contribution of each.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from sqlalchemy import Connection

from formats.base import MessageFormat, Note
from formats.check.fields import Explained, explain, fields_of
from formats.registry import FORMATS
from formats.rule_codes import Reason
from formats.totals import TotalKey
from publisher.collect.enrich import Enrichers
from publisher.collect.target_filter import why_not_selected
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.messages.item import Item
from publisher.messages.items import records_of, total_of
from publisher.messages.recipient import Recipient
from publisher.messages.totals import group_of_run, grouped_runs
from publisher.plugins import format_of, record_format
from publisher.reason import sentence
from publisher.status import jobs
from publisher.store import queries
from publisher.store.database import Store
from publisher.store.queries import PendingDelivery, SentVersion
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun

MOST_LISTED: Final = 1000


class GroupShare(msgspec.Struct, frozen=True):
    """The contribution of a run to its group: durations in ms; `end` in epoch seconds."""

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


def _group_of(recipient: Recipient, enrichers: Enrichers, run: StoredRun, jobs: int) -> ExplainedGroup:
    """Return the group of a run; `jobs`: the number of its jobs."""
    mine = group_of_run(recipient, run)
    parts: list[GroupShare] = []
    sources: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    last = run.record_id
    least: tuple[TotalKey, str] | None = None
    for one in grouped_runs(recipient, mine.key.when):
        if one.key != mine.key:
            continue
        job, name = one.job, one.run.record_id
        if len(parts) < MOST_LISTED:
            parts.append(GroupShare(name, job.end or 0, job.wall_ms or 0, job.cpu_ms or 0))
        least = min(least or (one.spelling, name), (one.spelling, name))
        sources[one.run.source] += 1
        rules.update(enrichers.used_by(one.run.source, one.run.job))
        last = name
    first = parts[0].record_id if parts else run.record_id
    spelled_by = least[1] if least is not None else run.record_id
    return ExplainedGroup(mine.key.text, jobs, first, last, spelled_by, dict(sources), dict(rules), tuple(parts))


class Explanation(msgspec.Struct, frozen=True):
    """The record of a run: its values, what was altered in it (`notes`), and why it is `held`. Without values, it
    cannot be made.

    `added`: the facts that come from the configuration, not from the source; `rules`: the mapping and benchmark rules
    that added something. `group`: the summary that contains the run. `not_selected`: why the target does not select it.
    `fqan`: how the groups of the token gave a VOMS attribute, or none.
    """

    record_id: str
    source: str
    values: tuple[Explained, ...]
    added: tuple[str, ...]
    rules: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    held: str | None = None
    group: ExplainedGroup | None = None
    not_selected: str | None = None
    fqan: str | None = None


def explanations(
    store: Store, config: Config, format_name: str, target: str | None, name: str, now: int
) -> list[Explanation]:
    """Explain the records of the runs with this id (`publisher.status.jobs.found`) for the target, or in a plain view;
    in a format of summaries, the groups that contain them.

    `now`: epoch seconds. Raises `UsageError` for a format without records of jobs, and for an unknown id.
    """
    described = format_of(format_name)
    if not described.origins:
        explained_formats = sorted(name for name, form in FORMATS.items() if form.origins)
        raise UsageError(
            f"{format_name} has no records of single jobs", hint=f"--explain works with {', '.join(explained_formats)}"
        )
    recipient = Recipient(store, config, target, format_name)
    enrichers = Enrichers(config)
    with store.read() as connection:
        masters = [run for run in jobs.found(connection, name, config.local_id_prefixes) if not run.job.slave]
        not_selected = why_not_selected(connection, config, [target] if target is not None else [], masters)
        held_for = {run.run_id: _why_held(connection, run.run_id, target) for run in masters}
    if not masters:
        raise UsageError(f"no job has the id {name}", hint="An id is a record id, a local id or a global id")
    explained = []
    for run in masters:
        met = enrichers.apply(run.source, run.job)
        added = tuple(fact for fact in run.job.__struct_fields__ if getattr(run.job, fact) != getattr(met, fact))
        why = not_selected[run.run_id].get(target) if target is not None else None
        rules = enrichers.used_by(run.source, run.job)
        held = held_for[run.run_id]
        fqan = enrichers.fqan_from_groups(run.source, run.job)
        one = Explanation(run.record_id, run.source, (), added, rules, held=held, not_selected=why, fqan=fqan)
        group: ExplainedGroup | None = None
        if recipient.format.shape == "totals":
            total = total_of(recipient, run, now)
            form, item, reason = total.form, total.item, total.reason
            if item is not None and item.group is not None:
                group = _group_of(recipient, enrichers, run, item.group.jobs)
        else:
            form, item, reason = _record_of(recipient, run)
        if item is None:
            explained.append(msgspec.structs.replace(one, held=held or sentence(reason)))
            continue
        values = tuple(explain(described, fields_of(format_name, form.message([item.body])), met))
        explained.append(msgspec.structs.replace(one, values=values, notes=item.notes, group=group))
    return explained


def _why_held(connection: Connection, run_id: int, target: str | None) -> str | None:
    """Return why the delivery of a run to a target is held, as `jobs` shows it."""
    for place in jobs.whereabouts(connection, run_id):
        if place.target == target and place.state is State.HELD:
            return sentence(place.reason)
    return None


def _record_of(recipient: Recipient, run: StoredRun) -> tuple[MessageFormat, Item | None, Reason | None]:
    """Return the format and the record of a run, or why it is held."""
    sent: dict[int, SentVersion] = {}
    if recipient.target_id is not None and recipient.is_sent:
        with recipient.store.read() as connection:
            sent = queries.sent_versions(connection, recipient.target_id, [run.run_id])
    page = records_of(recipient, [PendingDelivery(run.job.end or 0, run, sent=sent.get(run.run_id))])
    form = record_format(recipient.format_name, recipient.view)
    return form, page.items[0] if page.items else None, page.held[0].reason if page.held else None

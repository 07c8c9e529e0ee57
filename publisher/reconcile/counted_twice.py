"""What a service counts twice, or for this site from elsewhere: notes of a reconciliation, for people.

Submit hosts of this site that no source here has; months that one service was sent as two kinds of record; and jobs
that two sources give. None of these is a difference between ledger and service, so comparing them does not show it.
Docs: reference/counted-once.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from formats.calendar import Month, month_bounds
from formats.columns import MISSING, Value, comparable
from formats.hosts import submit_host_of
from formats.view import View
from publisher.collect.enrich import Enrichers
from publisher.config.schema import Config
from publisher.plugins import format_of, totals_by_kind
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceGroup
from publisher.reconcile.result import Found
from publisher.status.check_overlap import shared_text
from publisher.status.same_jobs import shared_jobs
from publisher.store import batches, groups, registry
from publisher.store.classes import all_classes
from publisher.store.database import Store
from publisher.store.schema import BatchState
from publisher.text import counted

_MOST_HOSTS: Final = 10
_NO_HOST: Final = frozenset({MISSING, comparable("None")})
"""The words for the submit host of local jobs."""
_JOB_RECORDS: Final = "job records"


def notes_on_hosts(
    store: Store, config: Config, view: View, found: Iterable[EvidenceGroup], database: EvidenceDatabase, target: str
) -> Iterator[str]:
    """A note on the submit hosts in the evidence that no source here has, with their jobs and months."""
    jobs: defaultdict[Value, defaultdict[Month, int]] = defaultdict(lambda: defaultdict(int))
    for group in found:
        if group.jobs and "submit_host" in group.fields:
            jobs[group.fields["submit_host"]][group.month] += group.jobs
    for host, month, number in database.submit_hosts(target):
        jobs[host][month] += number
    if not jobs.keys() - _NO_HOST:
        return
    others = sorted(jobs.keys() - _NO_HOST - _own_hosts(store, config, view), key=str)
    if others:
        listed = "; ".join(
            f"{host}: {counted(sum(jobs[host].values()), 'job')} in {_months(jobs[host])}"
            for host in others[:_MOST_HOSTS]
        )
        more = f"; and {len(others) - _MOST_HOSTS} others" if len(others) > _MOST_HOSTS else ""
        yield (
            f"the service has submit hosts of this site that no source here has: {listed}{more}. Another publisher "
            "sends for this site, or a computing element had another name: its jobs may count twice "
            "(docs/reference/counted-once.md)"
        )


def _own_hosts(store: Store, config: Config, view: View) -> set[Value]:
    enrichers = Enrichers(config)
    with store.read() as connection:
        return {
            comparable(submit_host_of(enrichers.apply(job_class.source, job_class.facts), view))
            for job_class in all_classes(connection)
        }


def _months(months: Iterable[Month]) -> str:
    return ", ".join(map(str, sorted(months)))


def notes_on_months(store: Store, config: Config, target: str, months: Sequence[Month]) -> Iterator[str]:
    """A note for each month that the target's service was sent as two kinds of record, which it adds up, by this target
    and by others of the same service."""
    service = config.targets[target].destination
    names = [
        name for name, each in config.targets.items() if name == target or (service and each.destination == service)
    ]
    totals = totals_by_kind().keys() - {groups.SYNC}
    with store.read() as connection:
        rows = {name: row.id for name in names if (row := registry.get_target(connection, name)) is not None}
        for month in months:
            begin, until = month_bounds(month)
            sent = batches.formats_of(connection, [*rows.values()], BatchState.ACCEPTED, begin, until)
            # A message may have summaries of several months, and counts above for the last of them only.
            sent |= {
                config.targets[name].records
                for name, target_id in rows.items()
                if any(
                    row.jobs
                    for kind in totals
                    for row in groups.of_month(connection, target_id, kind, month.number).values()
                )
            }
            kinds = sorted({kind for name in sent if (kind := _kind_of(name)) is not None})
            if len(kinds) > 1:
                yield (
                    f"{month} was sent as {' and as '.join(kinds)}. The service may count its jobs once for each: "
                    "compare what its portal shows, and have one of them removed (docs/reference/counted-once.md)"
                )


def _kind_of(format_name: str) -> str | None:
    """What the service keeps apart, and adds up; None: messages of the format are no usage by themselves."""
    form = format_of(format_name)
    if not form.with_sync:
        return None
    return form.name if form.is_snapshot else _JOB_RECORDS


def add_sources(store: Store, config: Config, found: Found, months: Sequence[Month]) -> None:
    """Add to what was found a sentence for each month and pair of sources that gave the same jobs to the target; a note
    only, where chance may explain it."""
    with store.read() as connection:
        for month in months:
            seen: set[frozenset[str]] = set()
            for shared in shared_jobs(connection, config, [found.target], *month_bounds(month)):
                pair = frozenset({shared.source, shared.other})
                if pair not in seen:
                    seen.add(pair)
                    # Only what is certain ends with an exit code: ids that are alike by chance would be an alarm that
                    # nobody can end.
                    sentences = found.counted_twice if shared.is_certain else found.notes
                    sentences.append(f"{month}: {shared_text(shared)}. See docs/reference/counted-once.md")

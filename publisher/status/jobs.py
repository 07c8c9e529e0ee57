"""jobs: runs and their deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, func, select

from formats.ending import ending_of, reason_decides
from formats.job import Job
from formats.rule_codes import Reason
from publisher.config.schema import Config
from publisher.encoded_run import class_fields
from publisher.job_ids import JobIds, JobPattern
from publisher.messages.entries import reservations, word_test
from publisher.reason import ReasonCode
from publisher.sources.base import Window
from publisher.store import batches, class_users, newest_runs, queries, runs
from publisher.store.batches import BatchRow
from publisher.store.class_users import LocalUser
from publisher.store.classes import JobClass, all_classes
from publisher.store.database import Store
from publisher.store.newest_runs import Newest
from publisher.store.paging import Place, ended_between
from publisher.store.registry import target_ids
from publisher.store.schema import State, deliveries, targets
from publisher.store.schema import runs as runs_table
from publisher.store.stored_json import stored_reason
from publisher.store.stored_run import StoredRun, stored_run
from publisher.store.stored_values import state_of
from publisher.text import iso

_PAGE: Final = 1000


class Whereabouts(msgspec.Struct, frozen=True):
    """The delivery of a run to one target."""

    target: str
    state: State
    changed_at: int
    confirmed_at: int | None
    reason: Reason | None
    sent_digest: bytes | None
    batch: BatchRow | None

    @property
    def assumed(self) -> bool:
        """Whether an earlier publisher delivered it, according to its state."""
        return self.reason is not None and self.reason.code == ReasonCode.ASSUMED


class KnownRun(msgspec.Struct, frozen=True):
    """A run as stored, and its deliveries. `not_selected`: by target, why it does not select the run."""

    run: StoredRun
    whereabouts: list[Whereabouts]
    not_selected: Mapping[str, str] = {}


_INSTANTS: Final = frozenset({"submit", "eligible", "lrms_submit", "start", "end", "execution_start", "execution_end"})


class JobFact(NamedTuple):
    """A fact of a run for people; of one with several parts, such as its hosts, a line for each."""

    name: str
    lines: tuple[str, ...]


def fact_rows(job: Job) -> Iterator[JobFact]:
    """The facts of a run as every view of it shows them, without its record id; each event is one of them."""
    for name, value in facts(job).items():
        if name == "events":
            yield from (JobFact(f"event {event['event']}", (str(event["at"]),)) for event in value)
        elif name != "record_id":
            yield JobFact(name, tuple(map(phrase, value)) if isinstance(value, list | tuple) else (phrase(value),))


def phrase(value: Any) -> str:
    """A value as a text, and a part of several facts as the known ones of them."""
    if not isinstance(value, dict):
        return str(value)
    return " ".join(f"{name}={part}" for name, part in value.items() if part is not None and part is not False)


def facts(job: Job) -> dict[str, Any]:
    """Every fact of a run that is known, as `--json` has it; instants in ISO 8601."""
    read: dict[str, Any] = {}
    values: dict[str, Any] = msgspec.to_builtins(job.known())
    events = job.events
    for name, value in values.items():
        if name == "extras":
            read.update({f"extras.{key}": item for key, item in sorted(value.items())})
        elif events is not None and name == "events":
            read[name] = [{"at": iso(at), "event": kind} for at, kind in events.pairs()]
        elif name == "transfers":
            read[name] = [_timed(transfer) for transfer in value]
        else:
            read[name] = iso(value) if name in _INSTANTS else value
    return read


def _timed(part: dict[str, Any]) -> dict[str, Any]:
    return {name: iso(value) if name in _INSTANTS else value for name, value in part.items()}


class _Compared(msgspec.Struct, frozen=True):
    """What a pattern is compared with: these facts, by these values."""

    facts: frozenset[str]
    values: Callable[[Job], Iterable[str | None]]


_COMPARED: Final[Mapping[str, _Compared]] = {
    "user": _Compared(frozenset({"local_user", "user_dn"}), lambda job: (job.local_user, job.user_dn)),
    "group": _Compared(frozenset({"local_group"}), lambda job: (job.local_group,)),
    "vo": _Compared(frozenset({"vo"}), lambda job: (job.vo,)),
    "project": _Compared(frozenset({"project"}), lambda job: (job.project,)),
    "queue": _Compared(frozenset({"queue"}), lambda job: (job.queue,)),
    "host": _Compared(frozenset({"hosts"}), lambda job: (host.name for host in job.hosts)),
    "status": _Compared(frozenset({"status"}), lambda job: (job.status,)),
    "task": _Compared(
        frozenset({"array_task"}), lambda job: (None if job.array_task is None else str(job.array_task),)
    ),
    "reservation": _Compared(frozenset({"extras"}), lambda job: reservations(job.extras)),
    "ending": _Compared(
        frozenset({"system", "status", "end_reason"}),
        lambda job: (ending_of(job.system, job.status, job.end_reason),),
    ),
}
_OF_USERS: Final = frozenset(LocalUser.__struct_fields__)


class JobFilter(msgspec.Struct, frozen=True):
    """A filter of runs; None: no condition. `state` is that of a delivery to `target`, or to any.

    `patterns`: by `user` (local user or distinguished name), `group`, `vo`, `project`, `queue`, `host`, `status`,
    `task`, `reservation`, `ending`; with * and ? as for file names; all of them must match.
    """

    patterns: Mapping[str, str] = {}
    source: str | None = None
    target: str | None = None
    state: State | None = None

    def selects(self, run: StoredRun) -> bool:
        """Whether a run is selected, but for its deliveries."""
        return self.source in {None, run.source} and all(self._match(run.job, key) for key in self.patterns)

    def of_class(self, item: JobClass, users: Sequence[LocalUser] = ()) -> bool | None:
        """Whether all runs of a class are selected, or none, but for their deliveries; None: a run itself decides.

        `users`: the local users of its runs, if the class does not have them.
        """
        if self.source not in {None, item.source}:
            return False
        shared, undecided = frozenset(class_fields(item.facts)), False
        for key in self.patterns:
            if self._match(item.facts, key):
                continue
            unknown = _COMPARED[key].facts - shared
            if key == "ending" and not reason_decides(item.facts.system, item.facts.status):
                unknown = frozenset()
            if unknown <= _OF_USERS and users:
                matches = {self._matches(key, [getattr(user, field) for field in unknown]) for user in users}
            else:
                matches = {False, True} if unknown else {False}
            if True not in matches:
                return False
            undecided = undecided or False in matches
        return None if undecided else True

    def _match(self, job: Job, key: str) -> bool:
        return self._matches(key, _COMPARED[key].values(job))

    def _matches(self, key: str, values: Iterable[str | None]) -> bool:
        pattern = self.patterns[key]
        matches = word_test(key, pattern)
        return any(value is not None and (value == pattern or matches(value)) for value in values)


class FoundJobs(msgspec.Struct, frozen=True):
    """How many runs were found, and some of them."""

    total: int
    jobs: list[KnownRun]


def ended_in(store: Store, window: Window, page: int = _PAGE) -> Iterator[KnownRun]:
    """Runs that ended in a window, by end time, with their deliveries; `page` of them are read at a time."""

    def read(connection: Connection, after: Place | None) -> tuple[list[KnownRun], Place | None]:
        entries, place = queries.runs_in(connection, window.from_, window.until, after, page)
        return [known(connection, run) for run, _class_id in entries], place

    for some in store.pages(read):
        yield from some


def newest(store: Store, window: Window, chosen: JobFilter, limit: int | None) -> FoundJobs:
    """The newest runs that ended in a window and are selected, at most `limit`, and how many there are in all.

    What a class decides for its runs is decided once. Only runs of which it decides nothing are read to be counted: by
    `task` and `reservation`, by `ending` if they failed, by projects and hosts where the source knows the grid identity
    and the benchmark, and by local users if the class has some that match and others.
    """
    with store.read() as connection:
        verdicts = _verdicts(connection, chosen)
        query = Newest(window.from_, window.until, None, _targets(connection, chosen), chosen.state)
        whole = None if verdicts is None else [class_id for class_id, verdict in verdicts.items() if verdict]
        undecided = [class_id for class_id, verdict in (verdicts or {}).items() if verdict is None]
        total, shown = _newest(connection, replace(query, classes=whole), limit) if whole != [] else (0, [])
        if undecided:
            more, others = _newest_of(connection, replace(query, classes=undecided), chosen, limit)
            total += more
            shown = sorted([*shown, *others], key=lambda run: (run.job.end or 0, run.run_id), reverse=True)[:limit]
        return FoundJobs(total, [known(connection, run) for run in shown])


def _newest(connection: Connection, query: Newest, limit: int | None) -> tuple[int, list[StoredRun]]:
    """How many runs a query gives, and the newest of them."""
    page = [stored_run(row) for rows in newest_runs.rows(connection, query, limit) for row in rows]
    return len(page) if limit is None or len(page) < limit else newest_runs.count(connection, query), page


def _newest_of(
    connection: Connection, query: Newest, chosen: JobFilter, limit: int | None
) -> tuple[int, list[StoredRun]]:
    """The same of the runs that are selected: all are read."""
    total, shown = 0, list[StoredRun]()
    with closing(newest_runs.rows(connection, query, None)) as pages:
        for row in chain.from_iterable(pages):
            run = stored_run(row)
            if chosen.selects(run):
                total += 1
                if limit is None or len(shown) < limit:
                    shown.append(run)
    return total, shown


def _verdicts(connection: Connection, chosen: JobFilter) -> dict[int, bool | None] | None:
    """`JobFilter.of_class` by class, without classes of which no run is selected; None: nothing asks for it."""
    if chosen.source is None and not chosen.patterns:
        return None
    users = class_users.by_class(connection) if chosen.patterns.keys() & {"user", "group"} else {}
    verdicts = {item.id: chosen.of_class(item, users.get(item.id, ())) for item in all_classes(connection)}
    return {class_id: verdict for class_id, verdict in verdicts.items() if verdict is not False}


def _targets(connection: Connection, chosen: JobFilter) -> list[int] | None:
    """The targets with a delivery to which a run must have; None: none."""
    if chosen.target is None and chosen.state is None:
        return None
    ids = target_ids(connection)
    return [number for name, number in ids.items() if chosen.target in {None, name}]


def named(store: Store, config: Config, name: str, window: Window, chosen: JobFilter, limit: int | None) -> FoundJobs:
    """The first of the runs that `found` gives for a name and that are selected, at most `limit`, with the
    reason of each target that does not select them; and their total number."""
    from publisher.collect.target_filter import why_not_selected  # noqa: PLC0415 - loads the rules, which lists need not

    everywhere = window == Window()
    with store.read() as connection:
        total, shown = 0, list[StoredRun]()
        for run in found(connection, name, config.local_id_prefixes):
            if (
                (everywhere or window.holds(run.job.end))
                and chosen.selects(run)
                and _is_delivered(connection, run, chosen)
            ):
                total += 1
                if limit is None or len(shown) < limit:
                    shown.append(run)
        not_selected = why_not_selected(connection, config, config.targets, shown)
        return FoundJobs(total, [known(connection, run, not_selected[run.run_id]) for run in shown])


def known(connection: Connection, run: StoredRun, not_selected: Mapping[str, str] | None = None) -> KnownRun:
    """A run and its deliveries."""
    return KnownRun(run, whereabouts(connection, run.run_id), not_selected or {})


def found(connection: Connection, name: str, prefixes: Mapping[str, str]) -> Iterator[StoredRun]:
    """The runs with this record id, or that an id asks for, whole or after the prefix of its source (`prefixes`, by
    the source's name): an array's or cluster's id asks for all its tasks. Runs come before slaves."""
    known, slaves = set[int](), list[StoredRun]()
    for prefix in ("", *sorted({prefix for prefix in prefixes.values() if prefix and name.startswith(prefix)})):
        for run in runs.find(connection, name.removeprefix(prefix)):
            if run.run_id in known or (prefix and not _is_of_services(run, name, prefix, prefixes)):
                continue
            known.add(run.run_id)
            if run.job.slave:
                slaves.append(run)
            else:
                yield run
    yield from slaves


def _is_of_services(run: StoredRun, name: str, prefix: str, prefixes: Mapping[str, str]) -> bool:
    """Whether a text with the prefix of the source of a run asks for it by its local id."""
    if prefixes.get(run.source) != prefix or run.job.local_id is None:
        return False
    return JobPattern(name)(JobIds(prefix + run.job.local_id, array_id=run.job.array_id, array_task=run.job.array_task))


def whereabouts(connection: Connection, run_id: int) -> list[Whereabouts]:
    """The deliveries of a run."""
    query = (
        select(targets.c.name, deliveries)
        .join(targets, deliveries.c.target_id == targets.c.id)
        .where(deliveries.c.run_id == run_id)
        .order_by(targets.c.name)
    )
    return [
        Whereabouts(
            target=row["name"],
            state=state_of(row["state"]),
            changed_at=row["changed_at"],
            confirmed_at=row["confirmed_at"],
            reason=stored_reason(row["reason"], row["reason_parameters"]),
            sent_digest=row["sent_digest"],
            batch=batches.get(connection, row["batch_id"]) if row["batch_id"] is not None else None,
        )
        for row in connection.execute(query).mappings().all()
    ]


def count_in(connection: Connection, from_: int | None, until: int | None) -> int:
    """How many jobs ended from `from_` until `until` (exclusive)."""
    query = select(func.count()).select_from(runs_table).where(ended_between(runs_table.c.end_time, from_, until))
    return connection.execute(query).scalar_one()


def _is_delivered(connection: Connection, run: StoredRun, chosen: JobFilter) -> bool:
    """Whether a run has a delivery as it is asked for."""
    return (chosen.target is None and chosen.state is None) or any(
        chosen.target in {None, place.target} and chosen.state in {None, place.state}
        for place in whereabouts(connection, run.run_id)
    )

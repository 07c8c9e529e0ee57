"""forget: a pseudonym in place of a person's name, wherever the store has it; what was counted stays as it is.

Runs and their versions get new digests, and what was delivered of them is said to have the new ones, so nothing counts
as changed and nothing is sent again. Summaries as last sent get the pseudonym in their keys for the same reason. Who
asked for it is recorded, without the name.

Persons who were erased: the pseudonym their jobs are kept under, and how their name is known when it is read again.

A source goes on telling the name of a person who was erased, for every job that is read again. Such a job gets the
pseudonym before anything is made of it, so that it is the same run with the same digest, and is neither stored nor sent
anew. Kept of the name is a hash of it under a random salt, one for each person: enough to recognise it, not to read it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Column, Connection, Integer, Table, delete, func, insert, literal, select, update

from formats.identity import digest, encode, encoded_digest
from formats.job import Job
from formats.names import to_rfc2253, to_slash
from formats.totals import TotalsKind
from formats.view import View
from publisher.encoded_run import EncodedRun, class_needs_local_user, encode_run, encode_whole
from publisher.errors import UsageError
from publisher.grid_identity import GridLogEntry
from publisher.store import changes, class_users, closed_months, groups, paging, registry, row_checks, suspects
from publisher.store.admin import local_users
from publisher.store.classes import JobClass, all_classes, decode
from publisher.store.groups import DueFor
from publisher.store.schema import (
    State,
    batches,
    classes,
    deliveries,
    earlier_settings,
    erased,
    grid_jobs,
    program_runs,
    runs,
    sources,
    targets,
    unreadable,
    versions,
)
from publisher.store.schema import audit as audit_table
from publisher.store.schema import erased as erased_table
from publisher.store.schema import groups as groups_table
from publisher.store.stored_json import read_with
from publisher.text import utf8

_HASH_BYTES: Final = 32
_CACHED: Final = 50_000


class ErasedRow(msgspec.Struct, frozen=True):
    """A person who was erased, with the time in epoch seconds."""

    pseudonym: str
    salt: bytes
    person: bytes
    erased_at: int


def person_hash(name: str, salt: bytes) -> bytes:
    """The hash that is kept of a name: the same for all spellings of a distinguished name."""
    canonical = to_slash(name).casefold().encode("utf-8", "surrogatepass")
    return hashlib.blake2b(canonical, key=salt, digest_size=_HASH_BYTES).digest()


def is_person(name: str | None, other: str) -> bool:
    """Whether two names are spellings of the same person."""
    return bool(name) and to_slash(name or "").casefold() == to_slash(other).casefold()


def rows(connection: Connection) -> list[ErasedRow]:
    """All erased persons."""
    query = select(erased.c.pseudonym, erased.c.salt, erased.c.person, erased.c.erased_at).order_by(erased.c.pseudonym)
    return [ErasedRow(row[0], bytes(row[1]), bytes(row[2]), row[3]) for row in connection.execute(query)]


def pseudonymized(job: Job, names: Iterable[str], pseudonym: str) -> Job:
    """A job with a pseudonym in place of these names, and of the local user if mapping rules do not need it.

    Other local users stay: the VO and the project of a job must not change with the name of its user.
    """
    replacements = {spelling: pseudonym for name in names for spelling in (name, to_slash(name), to_rfc2253(name))}
    if job.local_user and not class_needs_local_user(job):
        job = msgspec.structs.replace(job, local_user=pseudonym)
    changes = {
        field: changed
        for field in job.__struct_fields__
        if field != "record_id" and (changed := _replaced(value := getattr(job, field), replacements)) != value
    }
    return msgspec.structs.replace(job, **changes) if changes else job


def _replaced(value: Any, replacements: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, other in replacements.items():
            value = value.replace(name, other)
        return value
    if isinstance(value, tuple):
        return tuple(_replaced(item, replacements) for item in value)
    if isinstance(value, dict):
        return {_replaced(key, replacements): _replaced(each, replacements) for key, each in value.items()}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(
            value, **{field: _replaced(getattr(value, field), replacements) for field in value.__struct_fields__}
        )
    return value


class PseudonymMap:
    """Replaces the names of erased persons in input from before their erasure."""

    def __init__(self, found: Sequence[ErasedRow]) -> None:
        self._rows = found
        self._known: dict[str, list[ErasedRow]] = {}

    def over(self, found: Sequence[EncodedRun]) -> Sequence[EncodedRun]:
        """The runs as they are stored."""
        return [self.encoded(run) for run in found] if self._rows else found

    def encoded(self, run: EncodedRun) -> EncodedRun:
        """The run as it is stored."""
        if not self._rows:
            return run
        job = run.job()
        as_stored = self(job)
        return run if as_stored is job else encode_run(as_stored)

    def __call__(self, job: Job) -> Job:
        """The job as it is stored."""
        if job.end is None:
            return job
        for name in (job.user_dn, job.token_subject):
            row = self._row_of(name, job.end)
            if row is not None and name is not None:
                job = pseudonymized(job, [name], row.pseudonym)
        return job

    def entry(self, entry: GridLogEntry) -> GridLogEntry:
        """An entry of a grid log as it is stored."""
        if not self._rows:
            return entry
        if row := self._row_of(entry.user_dn, entry.at):
            entry = msgspec.structs.replace(entry, user_dn=row.pseudonym)
        if row := self._row_of(entry.token_subject, entry.at):
            entry = msgspec.structs.replace(entry, token_subject=row.pseudonym)
        return entry

    def _row_of(self, name: str | None, at: int) -> ErasedRow | None:
        """The first erasure of a person after an instant."""
        if not name:
            return None
        if name not in self._known:
            if len(self._known) >= _CACHED:
                self._known.clear()
            mine = [row for row in self._rows if person_hash(name, row.salt) == row.person]
            self._known[name] = sorted(mine, key=lambda row: row.erased_at)
        return next((row for row in self._known[name] if at <= row.erased_at), None)


def pseudonyms(connection: Connection) -> PseudonymMap:
    """The map of everybody who was erased so far."""
    return PseudonymMap(rows(connection))


Same = Callable[[JobClass, Job], str | None]
"""Why the configuration makes something else of a class once it has the pseudonym; None: it does not."""

_SALT_BYTES: Final = 32
_PAGE: Final = 1000
_UNSENT: Final = [int(state) for state in (State.WAITING, State.IN_FLIGHT)]
_TEXTS: Final[tuple[tuple[Table, tuple[Column[Any], ...]], ...]] = (
    (deliveries, (deliveries.c.reason_parameters,)),
    (batches, (batches.c.answer, batches.c.receipt)),
    (unreadable, (unreadable.c.reason,)),
    (sources, (sources.c.last_error,)),
    (targets, (targets.c.last_error,)),
    (earlier_settings, (earlier_settings.c.settings,)),
    (audit_table, (audit_table.c.subject, audit_table.c.detail)),
    (program_runs, (program_runs.c.done,)),
)


class TotalsReceiver(msgspec.Struct, frozen=True):
    """A target that is sent totals: how they are made, and its view of the jobs."""

    totals: TotalsKind
    view: View


class Forgotten(msgspec.Struct, frozen=True):
    """What got the pseudonym, and in how many places."""

    pseudonym: str
    runs: int
    versions: int
    classes: int
    summaries: int
    entries: int


def new_pseudonym() -> str:
    """A name that says that it is a pseudonym, and nothing about the person."""
    return f"/CN=erased {secrets.token_hex(8)}"


def forget(
    connection: Connection, person: str, pseudonym: str, same: Same, receivers: Mapping[int, TotalsReceiver], now: int
) -> Forgotten:
    """Put a pseudonym in place of a person, in one writing transaction under all locks.

    `receivers`: the targets that are sent totals, by their ids. Raises `UsageError`, with nothing changed, where the
    store has nothing of the person, where a rule goes by the name, and where a summary with it is not sent yet.
    """
    classes_of_person = [job_class for job_class in all_classes(connection) if _names(job_class.facts, person)]
    names = {person, to_slash(person), to_rfc2253(person)}
    names.update(name for each in classes_of_person for name in _names(each.facts, person))
    entries = _entries(connection, person)
    charged = closed_months.has_name(connection, lambda name: is_person(name, person))
    if not classes_of_person and not entries and not charged:
        raise UsageError("the store has no jobs of a person of this name", hint="Spell it as `jobs ID` shows it")
    _require_new(connection, pseudonym)
    for each in classes_of_person:
        why = same(each, pseudonymized(each.facts, _names(each.facts, person), pseudonym))
        if why is not None:
            raise UsageError(why, hint="Choose a pseudonym that also matches the rule, with --as; nothing was changed")
    _require_sent(connection, [each.id for each in classes_of_person], receivers)
    users = _own_users(connection, [each.id for each in classes_of_person])
    closed_months.pseudonymize(connection, names.union(entries, users), pseudonym)
    _note_changed(connection, [each.id for each in classes_of_person])
    run_count = _rename_runs(connection, person, pseudonym)  # before the classes, whose facts runs are read with
    version_count = _rename_versions(connection, person, pseudonym)
    class_count = _rename_classes(connection, classes_of_person, person, pseudonym)
    group_count = sum(
        _rename_groups(connection, target_id, receiver, names, pseudonym) for target_id, receiver in receivers.items()
    )
    suspects.rename(connection, lambda job: _without_names(job, person, names, pseudonym))
    for name in entries:
        for column in (grid_jobs.c.user_dn, grid_jobs.c.token_subject):
            connection.execute(update(grid_jobs).where(column == name).values({column: pseudonym}))
    for name in sorted(names.union(entries), key=len, reverse=True):
        _rename_in_texts(connection, name, pseudonym)
    salt = secrets.token_bytes(_SALT_BYTES)
    row = {"pseudonym": pseudonym, "salt": salt, "person": person_hash(person, salt), "erased_at": now}
    connection.execute(insert(erased_table).values(row))
    done = Forgotten(pseudonym, run_count, version_count, class_count, group_count, len(entries))
    registry.record_action(
        connection, "forget", pseudonym, f"a person, in {run_count} jobs and {group_count} summaries", now
    )
    return done


def _without_names(job: Job, person: str, names: Iterable[str], pseudonym: str) -> Job:
    """A suspect run with the pseudonym; one that is not the person's may have the name in a text."""
    if own := _names(job, person):
        return pseudonymized(job, own, pseudonym)
    replacements = dict.fromkeys(sorted(names, key=len, reverse=True), pseudonym)
    changes = {field: _replaced(getattr(job, field), replacements) for field in job.__struct_fields__}
    return msgspec.structs.replace(job, **{**changes, "record_id": job.record_id})


def _names(job: Job, person: str) -> list[str]:
    """The spellings of a person's name in the user fields of a job."""
    return [name for name in (job.user_dn, job.token_subject) if name and is_person(name, person)]


def _own_users(connection: Connection, class_ids: Collection[int]) -> set[str]:
    """The local users that only have jobs of these classes, and get the pseudonym: others keep their name."""
    own: set[str] = set()
    others: set[str] = set()
    query = select(runs.c.id, runs.c.class_id, runs.c.record_id, runs.c.job, classes.c.facts)
    for page in paging.pages_by_id(connection, query.join(classes, runs.c.class_id == classes.c.id), runs.c.id, _PAGE):
        for _, class_id, record_id, blob, facts in page:
            job = decode(blob, facts, record_id)
            if job.local_user:
                replaced = class_id in class_ids and not class_needs_local_user(job)
                (own if replaced else others).add(job.local_user)
    return own - others


def _entries(connection: Connection, person: str) -> list[str]:
    names: dict[str, None] = {}
    for column in (grid_jobs.c.user_dn, grid_jobs.c.token_subject):
        texts = connection.execute(select(column).where(column.is_not(None)).distinct()).scalars()
        names.update(dict.fromkeys(name for name in texts if is_person(name, person)))
    return list(names)


def _require_new(connection: Connection, pseudonym: str) -> None:
    taken = any(row.pseudonym == pseudonym for row in rows(connection))
    if taken or any(_names(job_class.facts, pseudonym) for job_class in all_classes(connection)):
        raise UsageError(f"{pseudonym!r} is already the name of another person", hint="Choose another one")


def _require_sent(connection: Connection, class_ids: Collection[int], receivers: Mapping[int, TotalsReceiver]) -> None:
    """Raise `UsageError` where a summary of the person's would be sent under the pseudonym beside one with the name."""
    for target_id, receiver in receivers.items():
        query = (
            select(func.count())
            .select_from(deliveries.join(runs, deliveries.c.run_id == runs.c.id))
            .where(deliveries.c.target_id == target_id, deliveries.c.state.in_(_UNSENT), runs.c.class_id.in_(class_ids))
        )
        waiting = connection.execute(query).scalar_one()
        unsent = connection.execute(
            select(func.count())
            .select_from(groups_table)
            .where(
                groups_table.c.target_id == target_id,
                groups_table.c.kind == receiver.totals.kind,
                groups_table.c.state != int(State.ACCEPTED),
            )
        ).scalar_one()
        if waiting or unsent or groups.months_due(connection, target_id, DueFor.FOLD):
            name = connection.execute(select(targets.c.name).where(targets.c.id == target_id)).scalar_one()
            raise UsageError(
                f"target {name} lacks its summaries ({waiting} jobs of the person wait): it would count them "
                "under the name and under the pseudonym",
                hint=f"Run `usage-publisher publish {name}` first; nothing was changed",
            )


def _note_changed(connection: Connection, class_ids: Sequence[int]) -> None:
    """Note as changed the runs of classes that will be: they get facts from their class."""
    for ids in paging.chunks(class_ids):
        of_class = select(runs.c.id).where(runs.c.class_id.in_(ids))
        changes.note_runs(connection, connection.execute(of_class).scalars())
    changes.note_classes(connection)
    changes.note_erased(connection)


def _rename_classes(connection: Connection, found: Sequence[JobClass], person: str, pseudonym: str) -> int:
    class_users.replace(connection, [each.id for each in found], ())
    present = set[int]()
    for each in found:
        blob = encode(pseudonymized(each.facts, _names(each.facts, person), pseudonym))
        source_id = connection.execute(select(classes.c.source_id).where(classes.c.id == each.id)).scalar_one()
        digest = encoded_digest(blob)
        alike = connection.execute(
            select(classes.c.id).where(classes.c.source_id == source_id, classes.c.digest == digest)
        ).scalar_one_or_none()
        present.add(each.id if alike is None else alike)
        if alike is None:
            connection.execute(update(classes).where(classes.c.id == each.id).values(facts=blob, digest=digest))
        else:  # two spellings of the name made two classes of one
            values = {"class_id": alike, **row_checks.of_class(literal(alike, Integer))}
            connection.execute(update(runs).where(runs.c.class_id == each.id).values(values))
            connection.execute(delete(classes).where(classes.c.id == each.id))
    local_users.rebuild(connection, present)
    return len(found)


def _rename_runs(connection: Connection, person: str, pseudonym: str) -> int:
    count = 0
    query = select(runs.c.id, runs.c.record_id, runs.c.digest, runs.c.job, classes.c.facts)
    joined = query.join(classes, runs.c.class_id == classes.c.id)
    for page in paging.pages_by_id(connection, joined, runs.c.id, _PAGE):
        for run_id, record_id, mark, blob, facts in page:
            job = decode(blob, facts, record_id)
            if names := _names(job, person):
                job = pseudonymized(job, names, pseudonym)
                fresh = digest(job)
                values = {"job": encode_whole(job), "digest": fresh, "mark": None}  # a mark is of the name too
                connection.execute(update(runs).where(runs.c.id == run_id).values(values))
                changes.note_runs(connection, [run_id])
                _follow(connection, run_id, bytes(mark), fresh)
                count += 1
    return count


def _rename_versions(connection: Connection, person: str, pseudonym: str) -> int:
    keys = connection.execute(select(versions.c.run_id, versions.c.digest)).all()
    count = 0
    for run_id, mark in keys:
        one = (versions.c.run_id == run_id) & (versions.c.digest == mark)
        row = connection.execute(select(versions.c.stored_at, versions.c.job).where(one)).one()
        job = decode(row.job, b"", f"number {run_id}, an earlier version")
        names = _names(job, person)
        if not names:
            continue
        job = pseudonymized(job, names, pseudonym)
        fresh = digest(job)
        connection.execute(delete(versions).where(one))
        there = (versions.c.run_id == run_id) & (versions.c.digest == fresh)
        if connection.execute(select(versions.c.run_id).where(there)).first() is None:
            values = {"run_id": run_id, "digest": fresh, "stored_at": row.stored_at, "job": encode_whole(job)}
            connection.execute(insert(versions).values(values))
        _follow(connection, run_id, bytes(mark), fresh)
        count += 1
    return count


def _follow(connection: Connection, run_id: int, before: bytes, after: bytes) -> None:
    """Record that what was delivered of a run is the same version as before."""
    target_ids = connection.execute(select(targets.c.id)).scalars().all()
    connection.execute(
        update(deliveries)
        .where(
            deliveries.c.target_id.in_(target_ids), deliveries.c.run_id == run_id, deliveries.c.sent_digest == before
        )
        .values(sent_digest=after)
    )


def _rename_groups(
    connection: Connection, target_id: int, receiver: TotalsReceiver, names: Iterable[str], pseudonym: str
) -> int:
    totals, persons = receiver.totals, receiver.totals.persons
    if persons is None:
        return 0
    before = {persons.spelled(receiver.view, name).casefold() for name in names}
    new = persons.spelled(receiver.view, pseudonym)
    if new.casefold() in before:
        return 0  # no names are sent to this service
    mine = (groups_table.c.target_id == target_id) & (groups_table.c.kind == totals.kind)
    count = 0
    for row in connection.execute(select(groups_table).where(mine)).mappings().all():
        total = read_with(totals.from_json, bytes(row["body"]), "a group")
        if before.isdisjoint(name.casefold() for name in persons.names(total)):
            continue
        total = persons.renamed(total, before, new)
        values = {"key": total.key.text, "digest": total.digest, "body": total.to_json()}
        connection.execute(
            update(groups_table)
            .where(mine, groups_table.c.month == row["month"], groups_table.c.key == row["key"])
            .values(values)
        )
        count += 1
    return count


def _spellings(name: str, pseudonym: str) -> list[tuple[str, str]]:
    """A name and its replacement, as text and, if different, inside JSON."""
    pair = (name, pseudonym)
    in_json = tuple(msgspec.json.encode(utf8(each)).decode()[1:-1] for each in pair)
    return [pair] if in_json == pair else [pair, (in_json[0], in_json[1])]


def _rename_in_texts(connection: Connection, name: str, pseudonym: str) -> None:
    for table, columns in _TEXTS:
        for column in columns:
            for written, instead in _spellings(name, pseudonym):
                connection.execute(
                    update(table)
                    .where(column.contains(written, autoescape=True))
                    .values({column.name: func.replace(column, written, instead)})
                )
    for page in paging.pages_by_id(connection, select(unreadable.c.id, unreadable.c.raw), unreadable.c.id, _PAGE):
        for key, stored in page:
            changed = bytes(stored).replace(name.encode("utf-8", "surrogateescape"), pseudonym.encode())
            if changed != bytes(stored):
                connection.execute(update(unreadable).where(unreadable.c.id == key).values(raw=changed))

"""forget: a pseudonym in place of a person's name, wherever the store has it; what was counted stays as it is.

Runs and their versions get new digests, and what was delivered of them is said to have the new ones, so nothing counts
as changed and nothing is sent again. Summaries as last sent get the pseudonym in their keys for the same reason. Who
asked for it is put down, without the name.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import Column, Connection, Table, delete, func, insert, select, update

from formats.dn import to_rfc2253, to_slash
from formats.identity import digest, encode
from formats.job import Job
from formats.summary import Group
from publisher.errors import UsageError
from publisher.store import audit, erased, groups
from publisher.store.classes import JobClass, all_classes, facts_digest
from publisher.store.states import State
from publisher.store.stored import decode
from publisher.store.tables import (
    audit as audit_table,
)
from publisher.store.tables import (
    batches,
    classes,
    deliveries,
    grid_jobs,
    runs,
    sources,
    targets,
    unreadable,
    versions,
)
from publisher.store.tables import erased as erased_table
from publisher.store.tables import groups as groups_table

Same = Callable[[JobClass, Job], str | None]
"""Why the configuration makes something else of a class once it has the pseudonym; None: it does not."""
Shown = Callable[[str], str]
"""A name as a receiver of summaries is shown it."""

_SALT_BYTES: Final = 32
_PAGE: Final = 1000
_UNSENT: Final = [int(state) for state in (State.WAITING, State.IN_FLIGHT)]
_TEXTS: Final[tuple[tuple[Table, tuple[Column[Any], ...]], ...]] = (
    (deliveries, (deliveries.c.reason,)),
    (batches, (batches.c.answer, batches.c.receipt)),
    (unreadable, (unreadable.c.reason,)),
    (sources, (sources.c.last_error,)),
    (targets, (targets.c.last_error,)),
    (audit_table, (audit_table.c.subject, audit_table.c.detail)),
)


class Forgotten(msgspec.Struct, frozen=True):
    """What got the pseudonym, and how much of it."""

    pseudonym: str
    runs: int
    versions: int
    classes: int
    summaries: int
    entries: int


def new_pseudonym() -> str:
    """A name that says what it is, and of whom nothing."""
    return f"/CN=erased {secrets.token_hex(8)}"


def forget(
    connection: Connection, person: str, pseudonym: str, same: Same, shown: Mapping[int, Shown], now: int
) -> Forgotten:
    """Put a pseudonym in place of a person, in one writing transaction under all locks.

    `shown`: by the id of each target that is sent summaries, how a name is spelled there. Raises `UsageError`, with
    nothing changed, where the store has nothing of the person, where a rule goes by the name, and where a summary with
    it is not sent yet.
    """
    found = [each for each in all_classes(connection) if _names(each.facts, person)]
    names = {person, to_slash(person), to_rfc2253(person)}
    names.update(name for each in found for name in _names(each.facts, person))
    entries = _entries(connection, person)
    if not found and not entries:
        raise UsageError("the store has no jobs of a person of this name", hint="Spell it as `jobs ID` shows it")
    _require_new(connection, pseudonym)
    for each in found:
        why = same(each, erased.veiled(each.facts, _names(each.facts, person), pseudonym))
        if why is not None:
            raise UsageError(why, hint="Choose a pseudonym that the rule takes as well, with --as; nothing was changed")
    _require_sent(connection, [each.id for each in found], shown)
    class_count = _rename_classes(connection, found, person, pseudonym)
    run_count = _rename_runs(connection, person, pseudonym)
    version_count = _rename_versions(connection, person, pseudonym)
    group_count = sum(
        _rename_groups(connection, target_id, show, names, pseudonym) for target_id, show in shown.items()
    )
    for name in entries:
        for column in (grid_jobs.c.user_dn, grid_jobs.c.token_subject):
            connection.execute(update(grid_jobs).where(column == name).values({column: pseudonym}))
    for name in sorted(names.union(entries), key=len, reverse=True):
        _rename_in_texts(connection, name, pseudonym)
    salt = secrets.token_bytes(_SALT_BYTES)
    row = {"pseudonym": pseudonym, "salt": salt, "person": erased.person_hash(person, salt), "erased_at": now}
    connection.execute(insert(erased_table).values(row))
    done = Forgotten(pseudonym, run_count, version_count, class_count, group_count, len(entries))
    audit.note(connection, "forget", pseudonym, f"a person, in {run_count} runs and {group_count} summaries", now)
    return done


def _names(job: Job, person: str) -> list[str]:
    """The spellings of a person's name that a job has as its user's."""
    return [name for name in (job.user_dn, job.token_subject) if name and erased.is_person(name, person)]


def _entries(connection: Connection, person: str) -> list[str]:
    names: dict[str, None] = {}
    for column in (grid_jobs.c.user_dn, grid_jobs.c.token_subject):
        found = connection.execute(select(column).where(column.is_not(None)).distinct()).scalars()
        names.update(dict.fromkeys(name for name in found if erased.is_person(name, person)))
    return list(names)


def _require_new(connection: Connection, pseudonym: str) -> None:
    taken = any(row.pseudonym == pseudonym for row in erased.rows(connection))
    if taken or any(_names(each.facts, pseudonym) for each in all_classes(connection)):
        raise UsageError(f"{pseudonym!r} is somebody's name already", hint="Choose another one")


def _require_sent(connection: Connection, class_ids: Collection[int], shown: Mapping[int, Shown]) -> None:
    """Raise `UsageError` where a summary of the person's would be sent under the pseudonym beside one with the name."""
    for target_id in shown:
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
                groups_table.c.kind.in_([groups.SUMMARY, groups.REFOLD]),
                groups_table.c.state != int(State.ACCEPTED),
            )
        ).scalar_one()
        if waiting or unsent:
            name = connection.execute(select(targets.c.name).where(targets.c.id == target_id)).scalar_one()
            raise UsageError(
                f"target {name} has not got its summaries yet ({waiting} jobs of the person wait): it would count them "
                "under the name and under the pseudonym",
                hint=f"Run `usage-publisher publish {name}` first; nothing was changed",
            )


def _rename_classes(connection: Connection, found: Iterable[JobClass], person: str, pseudonym: str) -> int:
    count = 0
    for each in found:
        blob = encode(erased.veiled(each.facts, _names(each.facts, person), pseudonym))
        source_id = connection.execute(select(classes.c.source_id).where(classes.c.id == each.id)).scalar_one()
        digest = facts_digest(blob)
        alike = connection.execute(
            select(classes.c.id).where(classes.c.source_id == source_id, classes.c.digest == digest)
        ).scalar_one_or_none()
        if alike is None:
            connection.execute(update(classes).where(classes.c.id == each.id).values(facts=blob, digest=digest))
        else:  # two spellings of the name made two classes of one
            connection.execute(update(runs).where(runs.c.class_id == each.id).values(class_id=alike))
            connection.execute(delete(classes).where(classes.c.id == each.id))
        count += 1
    return count


def _rename_runs(connection: Connection, person: str, pseudonym: str) -> int:
    count = after = 0
    while True:
        query = select(runs.c.id, runs.c.digest, runs.c.job).where(runs.c.id > after).order_by(runs.c.id).limit(_PAGE)
        page = connection.execute(query).all()
        for run_id, mark, blob in page:
            job = decode(bytes(blob))
            if names := _names(job, person):
                stored = encode(erased.veiled(job, names, pseudonym))
                fresh = digest(stored)
                values = {"job": stored, "digest": fresh, "mark": None}  # a mark is of the name too
                connection.execute(update(runs).where(runs.c.id == run_id).values(values))
                _follow(connection, run_id, bytes(mark), fresh)
                count += 1
        if len(page) < _PAGE:
            return count
        after = page[-1][0]


def _rename_versions(connection: Connection, person: str, pseudonym: str) -> int:
    keys = connection.execute(select(versions.c.run_id, versions.c.digest)).all()
    count = 0
    for run_id, mark in keys:
        one = (versions.c.run_id == run_id) & (versions.c.digest == mark)
        row = connection.execute(select(versions.c.stored_at, versions.c.job).where(one)).one()
        job = decode(bytes(row.job))
        names = _names(job, person)
        if not names:
            continue
        stored = encode(erased.veiled(job, names, pseudonym))
        fresh = digest(stored)
        connection.execute(delete(versions).where(one))
        there = (versions.c.run_id == run_id) & (versions.c.digest == fresh)
        if connection.execute(select(versions.c.run_id).where(there)).first() is None:
            values = {"run_id": run_id, "digest": fresh, "stored_at": row.stored_at, "job": stored}
            connection.execute(insert(versions).values(values))
        _follow(connection, run_id, bytes(mark), fresh)
        count += 1
    return count


def _follow(connection: Connection, run_id: int, before: bytes, after: bytes) -> None:
    """What was delivered of a run is the same version as before."""
    target_ids = connection.execute(select(targets.c.id)).scalars().all()
    connection.execute(
        update(deliveries)
        .where(
            deliveries.c.target_id.in_(target_ids), deliveries.c.run_id == run_id, deliveries.c.sent_digest == before
        )
        .values(sent_digest=after)
    )


def _rename_groups(connection: Connection, target_id: int, show: Shown, names: Iterable[str], pseudonym: str) -> int:
    users = {show(name).casefold() for name in names}
    new = show(pseudonym)
    if new.casefold() in users:
        return 0  # this service is not told names
    mine = (groups_table.c.target_id == target_id) & (groups_table.c.kind == groups.SUMMARY)
    count = 0
    for row in connection.execute(select(groups_table).where(mine)).mappings().all():
        group = Group.from_json(bytes(row["body"]))
        if group.spelling.user.casefold() not in users:
            continue
        spelling = msgspec.structs.replace(group.spelling, user=new)
        group = msgspec.structs.replace(group, spelling=spelling, key=spelling.folded(), notes=())
        values = {"key": group.key.text, "digest": group.digest, "body": group.to_json()}
        connection.execute(
            update(groups_table)
            .where(mine, groups_table.c.month == row["month"], groups_table.c.key == row["key"])
            .values(values)
        )
        count += 1
    return count


def _rename_in_texts(connection: Connection, name: str, pseudonym: str) -> None:
    for table, columns in _TEXTS:
        for column in columns:
            connection.execute(
                update(table)
                .where(column.contains(name, autoescape=True))
                .values({column.name: func.replace(column, name, pseudonym)})
            )
    after = 0
    while True:
        query = (
            select(unreadable.c.id, unreadable.c.raw)
            .where(unreadable.c.id > after)
            .order_by(unreadable.c.id)
            .limit(_PAGE)
        )
        page = connection.execute(query).all()
        for key, stored in page:
            changed = bytes(stored).replace(name.encode("utf-8", "surrogateescape"), pseudonym.encode())
            if changed != bytes(stored):
                connection.execute(update(unreadable).where(unreadable.c.id == key).values(raw=changed))
        if len(page) < _PAGE:
            return
        after = page[-1][0]

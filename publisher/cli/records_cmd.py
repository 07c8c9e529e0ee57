"""records: those that are held, rejected, or superseded; list, show, retry, waive."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from publisher.cli import completion
from publisher.cli.command_group import CommandGroup
from publisher.cli.jobs_cmd import run_json, show_run
from publisher.cli.options import All, limit_of, list_json, say_if_cut
from publisher.cli.output import data, json_object, say
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.errors import UsageError
from publisher.reason import sentence
from publisher.text import counted, iso, safe

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.status.records import ListedRecord
    from publisher.store.schema import State

_Word = Literal["held", "rejected", "superseded"]
_WORDS: Final[tuple[_Word, ...]] = ("held", "rejected", "superseded")
_LISTED: Final = 1000
_NAMED: Final = 3
"""Records that are named for one reason."""

StateOption = Annotated[_Word | None, typer.Option("--state", help="Only those in this state.")]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="Only those of this target.", autocompletion=completion.targets),
]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = CommandGroup(
        help="Show and decide on records that are held (something is missing), rejected (the service refused them), or "
        "superseded (changed after delivery, and the service keeps the first version)."
    )
    group.command("list")(list_records)
    group.command("show")(show)
    group.command("retry")(retry)
    group.command("waive")(waive)
    app.add_typer(group, name="records")


def _states(word: _Word | None) -> dict[_Word, State]:
    from publisher.store.schema import State  # noqa: PLC0415

    return {each: State[each.upper()] for each in (_WORDS if word is None else (word,))}


def list_records(
    state: StateOption = None,
    target: TargetOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="The oldest N of each state and target. Default: 1000."),
    ] = None,
    show_all: All = False,
    each: Annotated[bool, typer.Option("--each", help="Print a line for each record instead of each reason.")] = False,
) -> None:
    """List the records with their reasons, oldest first."""
    most = limit_of(limit, _LISTED, show_all=show_all)
    with session.publisher() as publisher:
        listed = {word: publisher.listed(known, target, most) for word, known in _states(state).items()}
        totals = {word: publisher.count_listed(known, target) for word, known in _states(state).items()}
    if session.json:
        records = [_listed_json(word, item) for word, items in listed.items() for item in items]
        json_object(list_json(records, sum(sum(by_target.values()) for by_target in totals.values())))
        return
    if not any(listed.values()):
        say(publisher.missing or f"no record is {state or 'held, rejected, or superseded'}")
        return
    _show_each(listed) if each else _show_reasons(listed)
    for word, by_target in totals.items():
        shown = Counter(item.target for item in listed[word])
        for name, total in by_target.items():
            say_if_cut(shown[name], total, "oldest", of=f"{name}, {word}")


def _listed_json(word: _Word, item: ListedRecord) -> dict[str, Any]:
    return {
        "target": item.target,
        "state": word,
        "record_id": item.record_id,
        "end_time": iso(item.end_time),
        "reason": sentence(item.reason),
        "reason_code": None if item.reason is None else item.reason.code,
    }


def _show_each(found: dict[_Word, list[ListedRecord]]) -> None:
    rows = [
        [item.target, word, item.record_id, iso(item.end_time), sentence(item.reason)]
        for word, items in found.items()
        for item in items
    ]
    show_table("", ["target", "state", "record", "ended", "reason"], rows)


def _show_reasons(found: dict[_Word, list[ListedRecord]]) -> None:
    """A row for each target, state, and reason: how many records, when they ended, and the first of them."""
    groups: dict[tuple[str, _Word, str], list[ListedRecord]] = {}
    for word, items in found.items():
        for item in items:
            groups.setdefault((item.target, word, sentence(item.reason)), []).append(item)
    rows: list[list[object]] = []
    for (target, word, reason), alike in groups.items():
        ended = str(iso(alike[0].end_time))
        if len(alike) > 1:
            ended += f" to {iso(alike[-1].end_time)}"
        named = [item.record_id for item in alike[:_NAMED]]
        if len(alike) > _NAMED:
            named[1:] = [f"and {len(alike) - 1:,} more (--each)"]
        rows.append([target, word, len(alike), ended, reason, ", ".join(named)])
    show_table("", ["target", "state", "records", "ended", "reason", "which"], rows, right={"records"})


def show(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="Record id.")],
    state: StateOption = None,
    target: TargetOption = None,
) -> None:
    """Show a record in full: the facts read, the record for the target, and the answer of the service."""
    from publisher.preview.render import message_for  # noqa: PLC0415

    states = set(_states(state).values())
    with session.publisher() as publisher:
        known = {}
        now = publisher.tools.clock()
        for item in publisher.job(record):
            places = [place for place in item.whereabouts if place.state in states and target in {None, place.target}]
            if places:
                sent = {
                    place.target: message_for(publisher.store, publisher.config, place.target, item.run, now)
                    for place in places
                }
                known[item.run.run_id] = (item, sent)
        if not known:
            raise _not_listed(publisher, record, state, target)
    if session.json:
        records = [
            run_json(item) | {"messages": {name: _text(message) for name, message in sent.items()}}
            for item, sent in known.values()
        ]
        json_object(list_json(records, len(records)))
        return
    for item, sent in known.values():
        show_run(item)
        for name, message in sent.items():
            data(f"\nThe record for {safe(name)}:")
            data("\n".join(safe(line) for line in _text(message).splitlines()))


def _text(message: bytes) -> str:
    return message.decode("utf-8", "backslashreplace")


def _not_listed(publisher: Publisher, record: str, state: _Word | None, target: str | None) -> UsageError:
    """That a record is not in one of these states, and in which it is."""
    places = [
        f"{place.state.word.replace('_', ' ')} for {place.target}"
        for item in publisher.job(record)
        for place in item.whereabouts
        if target in {None, place.target}
    ]
    where = f" for target {target}" if target is not None else ""
    text = f"record {record} is not {state or 'held, rejected, or superseded'}{where}"
    if not places:
        return UsageError(text, hint="`usage-publisher records list` lists the records")
    return UsageError(
        f"{text}: it is {', '.join(places)}", hint=f"`usage-publisher jobs {shlex.quote(record)}` shows it"
    )


def retry(
    records: Annotated[
        list[str] | None, typer.Argument(metavar="RECORD", help="Record ids. Default: all of --state and --target.")
    ] = None,
    state: StateOption = None,
    target: TargetOption = None,
) -> None:
    """Set records to waiting; the next publish sends them.

    Retry superseded records only after the service's administrator has removed the first version.
    """
    with session.publisher() as publisher:
        if records:
            word, name = _place_of(publisher, records[0], state, target)
            if word == "superseded" and state is None:
                hint = "If the service's administrator removed its first version, add --state superseded"
                raise UsageError(f"{name} has the first version of record {records[0]}", hint=hint)
        elif state is None or target is None:
            raise UsageError("no record is named", hint="Name records, or select all with --state and --target")
        else:
            word, name = state, target
        count = publisher.retry(_states(word)[word], name, records or ())
    if session.json:
        json_object({"target": name, "state": word, "waiting_again": count})
    else:
        say(f"{counted(count, 'record')} of {name} set to waiting; `usage-publisher publish {name}` sends them")


def waive(
    records: Annotated[list[str], typer.Argument(metavar="RECORD", help="Record ids.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why they are not delivered.")] = "",
    state: StateOption = None,
    target: TargetOption = None,
) -> None:
    """Decide that records are not delivered. The audit log keeps the reason."""
    with session.publisher() as publisher:
        word, name = _place_of(publisher, records[0], state, target)
        count = publisher.waive(_states(word)[word], name, records, reason)
    if session.json:
        json_object({"target": name, "state": word, "waived": count})
    else:
        say(f"{counted(count, 'record')} of {name} waived")


def _place_of(publisher: Publisher, record: str, state: _Word | None, target: str | None) -> tuple[_Word, str]:
    """The one state and target in which a record is, so that a decision is one transaction.

    Raises `UsageError` if there is none, or several.
    """
    if state is not None and target is not None:
        return state, target
    words = {known: word for word, known in _states(state).items()}
    places = sorted({
        (words[place.state], place.target)
        for item in publisher.job(record)
        if item.run.record_id == record
        for place in item.whereabouts
        if place.state in words and target in {None, place.target}
    })  # fmt: skip
    if not places:
        raise _not_listed(publisher, record, state, target)
    if len(places) > 1:
        named = ", ".join(f"{word} for {name}" for word, name in places)
        raise UsageError(f"record {record} is {named}", hint="Choose one with --target and --state")
    return places[0]

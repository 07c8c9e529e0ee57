"""held, rejected and superseded: list, show, retry, waive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli.command_group import CommandGroup
from publisher.cli.jobs_cmd import run_json, show_run
from publisher.cli.lists import All, limit_of, list_json, say_if_cut
from publisher.cli.output import data, json_object, make_table, safe, say, show
from publisher.cli.session import session
from publisher.errors import UsageError
from publisher.reason import sentence
from publisher.text import iso

if TYPE_CHECKING:
    from publisher.status.records import ListedRecord
    from publisher.store.schema import State

TargetOption = Annotated[str | None, typer.Option("--target", metavar="NAME", help="Only of this target.")]
OneTarget = Annotated[str, typer.Argument(metavar="TARGET")]


def register(app: typer.Typer) -> None:
    """Add the groups of commands."""
    app.add_typer(_group("rejected", "Records that a service refused."), name="rejected")
    app.add_typer(
        _group("held", "Records that cannot be sent as they are: something is missing or unusable."), name="held"
    )
    app.add_typer(
        _group("superseded", "Records that changed after a service took them and keeps its first version."),
        name="superseded",
    )


def _state(word: str) -> State:
    from publisher.store.schema import State  # noqa: PLC0415

    return State[word.upper()]


def _group(word: str, text: str) -> typer.Typer:
    group = CommandGroup(help=text)
    for make in (_list, _show, _retry, _waive):
        make(group, word)
    return group


def _list(group: typer.Typer, word: str) -> None:
    def command(
        target: TargetOption = None,
        limit: Annotated[
            int | None,
            typer.Option("--limit", min=1, metavar="N", help="The oldest so many of each target. Default: 1000."),
        ] = None,
        show_all: All = False,
        each: Annotated[bool, typer.Option("--each", help="Each record, not each reason.")] = False,
    ) -> None:
        most = limit_of(limit, _LISTED, show_all=show_all)
        with session.publisher() as publisher:
            found = publisher.listed(_state(word), target, most)
            totals = publisher.count_listed(_state(word), target)
        if session.json:
            records = [
                {
                    "target": item.target,
                    "record_id": item.record_id,
                    "end_time": iso(item.end_time),
                    "reason": sentence(item.reason),
                    "reason_code": None if item.reason is None else item.reason.code,
                }
                for item in found
            ]
            json_object(list_json(records, sum(totals.values())))
        elif found:
            _show_each(found) if each else _show_reasons(found)
            shown = Counter(item.target for item in found)
            for name, total in totals.items():
                say_if_cut(shown[name], total, "oldest", of=name)
        else:
            say(publisher.missing or f"nothing is {word}")

    _add(group, "list", command, f"List the records that are {word}, oldest first, with the reasons.")


def _show_each(found: Sequence[ListedRecord]) -> None:
    rows: list[list[object]] = [
        [item.target, item.record_id, iso(item.end_time), sentence(item.reason)] for item in found
    ]
    show(make_table("", ["target", "record", "ended", "reason"], rows))


_LISTED: Final = 1000
_NAMED: Final = 3
"""Records that are named for one reason."""


def _show_reasons(found: Sequence[ListedRecord]) -> None:
    """A row for each target and reason: how many records, from when until when, and which, as far as they are few."""
    groups: dict[tuple[str, str], list[ListedRecord]] = {}
    for item in found:
        groups.setdefault((item.target, sentence(item.reason)), []).append(item)
    rows: list[list[object]] = []
    for (target, reason), items in groups.items():
        ended = str(iso(items[0].end_time))
        if len(items) > 1:
            ended += f" to {iso(items[-1].end_time)}"
        named = [item.record_id for item in items[:_NAMED]]
        if len(items) > _NAMED:
            named[1:] = [f"and {len(items) - 1} more (--each)"]
        rows.append([target, len(items), ended, reason, ", ".join(named)])
    show(make_table("", ["target", "records", "ended", "reason", "which"], rows, right={"records"}))


def _show(group: typer.Typer, word: str) -> None:
    def command(record: Annotated[str, typer.Argument(metavar="RECORD", help="Record id.")]) -> None:
        from publisher.preview.render import message_for  # noqa: PLC0415

        with session.publisher() as publisher:
            known = [
                item for item in publisher.job(record) if any(place.state is _state(word) for place in item.whereabouts)
            ]
            if not known:
                raise UsageError(f"record {record} is not {word}", hint=f"`usage-publisher {word} list` shows those")
            messages = [
                {
                    place.target: message_for(
                        publisher.store, publisher.config, place.target, item.run, publisher.tools.clock()
                    )
                    for place in item.whereabouts
                    if place.state is _state(word)
                }
                for item in known
            ]
        if session.json:
            records = [
                run_json(item) | {"messages": {name: _text(message) for name, message in sent.items()}}
                for item, sent in zip(known, messages, strict=True)
            ]
            json_object(list_json(records, len(records)))
            return
        for item, sent in zip(known, messages, strict=True):
            show_run(item)
            for name, message in sent.items():
                data(f"\nThe record as {safe(name)} would get it:")
                data("\n".join(safe(line) for line in _text(message).splitlines()))

    _add(group, "show", command, f"Show a record that is {word}: what was read, what was sent, what was answered.")


def _text(message: bytes) -> str:
    return message.decode("utf-8", "backslashreplace")


def _retry(group: typer.Typer, word: str) -> None:
    def command(
        target: OneTarget,
        records: Annotated[list[str] | None, typer.Argument(metavar="[RECORD]...", help="Only these.")] = None,
    ) -> None:
        with session.publisher() as publisher:
            count = publisher.retry(_state(word), target, records or ())
        _tell({"waiting_again": count}, f"{count} wait again; `usage-publisher publish {target}` sends them")

    text = f"Let {word} records of a target wait again: those named, or all."
    if word == "superseded":
        text = "Send the present version: only after the service's administrator removed the first one."
    _add(group, "retry", command, text)


def _waive(group: typer.Typer, word: str) -> None:
    def command(
        target: OneTarget,
        records: Annotated[list[str], typer.Argument(metavar="RECORD...")],
        reason: Annotated[str, typer.Option("--reason", help="Why they need not be delivered.")] = "",
    ) -> None:
        with session.publisher() as publisher:
            count = publisher.waive(_state(word), target, records, reason)
        _tell({"waived": count}, f"{count} waived")

    _add(group, "waive", command, f"Decide that {word} records are not to be delivered, and why.")


def _tell(answer: dict[str, Any], message: str) -> None:
    if session.json:
        json_object(answer)
    else:
        say(message)


def _add(group: typer.Typer, name: str, command: Callable[..., None], text: str) -> None:
    group.command(name, help=text)(command)

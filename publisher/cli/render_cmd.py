"""render: the messages that publish would send, their differences from those sent before, and the origin of values."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from publisher.cli import completion, options
from publisher.cli.exit_code import REJECTED
from publisher.cli.output import data, exact, json_object, say
from publisher.cli.session import session
from publisher.cli.table import show_table
from publisher.errors import OutputError, UsageError
from publisher.events import WorkAdvanced
from publisher.reason import sentence
from publisher.text import counted, iso, safe

if TYPE_CHECKING:
    from formats.check.fields import Explained
    from publisher.api import Publisher
    from publisher.preview.diff import Change, DiffRendering
    from publisher.preview.explain import ExplainedGroup, Explanation
    from publisher.preview.render import Broken, HeldPreview, Noted, RenderedMessage, Rendering, ReportRendering
    from publisher.sources.base import Window

_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("render")(render)


def render(
    format_name: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT", help="ogf-ur, emi-car, apel-job, apel-summary, ...", autocompletion=completion.formats
        ),
    ],
    since: options.Since = None,
    until: options.Until = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="Render for this target; without a window, what waits for it.",
            autocompletion=completion.targets,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Write each message to a file in this folder.")
    ] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the messages.")] = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Check every message, and omit those that break a rule.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the differences from what was last sent to the target.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="ID",
            help="Show facts and rule of each value in a job's record or summary.",
        ),
    ] = None,
) -> None:
    """Show exactly the messages that `publish` would send. Nothing is sent or changed."""
    from publisher.preview.render import Validation, signing  # noqa: PLC0415
    from publisher.sources.base import Window  # noqa: PLC0415

    begin, end = options.window_bounds(since, until)
    _alone("--explain", explain is not None, {"--diff": diff, "--sign": sign, "--validate": validate}, output)
    _alone("--diff", diff, {"--sign": sign, "--validate": validate}, output)
    with session.publisher() as publisher:
        target = target or _only_target(publisher, format_name)
        if explain is not None:
            _show_explanations(publisher.explanations(format_name, target, explain))
            return
        if diff:
            if target is None:
                raise UsageError("--diff needs a target", hint="Add --target NAME")
            _show_changes(publisher.comparison(format_name, target, Window(begin, end)))
            return
        rendering = publisher.rendering(format_name, target, Window(begin, end))
        wrap = signing(publisher.config, target) if sign else bytes
        files = size = 0
        validation = Validation(int(time.time())) if validate else None
        if output is not None:
            _make(output)
        expected = rendering.expected() if sys.stderr.isatty() else None
        for message in rendering.messages():
            publisher.tools.observer(WorkAdvanced("render", rendering.records, expected))
            if validation is not None and not validation.passes(message):
                continue
            payload = wrap(message.payload)
            files += 1
            size += len(payload)
            if output is not None:
                _write(output, files, message, payload, signed=sign)
            elif not session.json:
                exact(payload)
    broken = validation.broken if validation is not None else None
    _finish(rendering, files, size, output, broken, target, Window(begin, end))
    if broken:
        raise typer.Exit(REJECTED)


def _alone(option: str, given: bool, others: dict[str, bool], output: Path | None) -> None:
    """Raise `UsageError` if an option that shows no messages is given together with options of messages."""
    excluded = [name for name, is_given in {**others, "--output": output is not None}.items() if is_given]
    if given and excluded:
        raise UsageError(f"{option} shows no messages: omit {', '.join(excluded)}")


def _only_target(publisher: Publisher, format_name: str) -> str | None:
    """The target of this format, if the configuration has exactly one."""
    names = [name for name, target in publisher.config.targets.items() if target.records == format_name]
    return names[0] if len(names) == 1 else None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder} is a file", hint="Name a folder with --output") from None
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be created: {error.strerror}") from error


def _write(folder: Path, number: int, message: RenderedMessage, payload: bytes, *, signed: bool) -> None:
    from formats.base import FILE_SUFFIXES  # noqa: PLC0415
    from publisher.plugins import format_of  # noqa: PLC0415

    content_type = message.content_type.partition(";")[0] or format_of(message.format).content_type
    suffix = ".eml" if signed else FILE_SUFFIXES.get(content_type, ".txt")
    path = folder / f"{number:06d}{suffix}"
    try:
        with path.open("xb") as file:
            file.write(payload)
    except FileExistsError:
        raise UsageError(f"{path} already exists", hint="Name an empty folder with --output") from None
    except OSError as error:
        hint = "Free space there, or name another folder with --output"
        raise OutputError(f"{path} cannot be written: {error.strerror}", hint=hint) from error


def _nothing(target: str | None, window: Window) -> str:
    """Why there are no records, and which option selects some."""
    at = "any target" if target is None else target
    if window.from_ is None and window.until is None:
        return f"nothing waits for {at}; --since TIME renders jobs by their end, also those that were delivered"
    return f"no job that {at} selects ended in this interval; `usage-publisher jobs` lists when jobs ended"


def _finish(
    rendering: Rendering | ReportRendering,
    files: int,
    size: int,
    output: Path | None,
    broken: list[Broken] | None,
    target: str | None,
    window: Window,
) -> None:
    if session.json:
        json_object(
            {
                "records": rendering.records,
                "held": len(rendering.held),
                "rejected": 0,
                "files": files,
                "bytes": size,
                "cut_otherwise": rendering.cut_otherwise,
                "held_records": held_json(rendering.held),
                "notes": [
                    {
                        "record_id": item.record_id,
                        "field": item.note.field,
                        "rule": item.note.rule,
                        "before": item.note.before,
                        "after": item.note.after,
                    }
                    for item in rendering.notes
                ],
                **({} if broken is None else {"broken_rules": broken}),
            }
        )
        return
    if not rendering.records and not rendering.held:
        say(_nothing(target, window))
    if rendering.cut_otherwise is not None:
        say(f"publish may cut messages at other places: {rendering.cut_otherwise}")
    for rule in (broken or [])[:_SHOWN]:
        record = rule.record or "as a whole"
        say(f"not shown: message {rule.message}: {record}: {rule.field} {rule.rule} [{rule.source}]")
    held, notes = list(held_lines(rendering.held)), list(note_lines(rendering.notes))
    say(*held[:_SHOWN], *notes[:_SHOWN])
    more = sum(max(0, len(listed) - _SHOWN) for listed in (broken or [], held, notes))
    if more:
        say(f"(and {more:,} more; --json lists all)")
    place = f" in {output}" if output is not None else ""
    say(
        f"{counted(rendering.records, 'record')} in {counted(files, 'message')}, {counted(size, 'byte')}{place}; "
        f"{len(rendering.held):,} held"
    )


# --- held records and changed values: one line per reason, with the first record; `--json` has every record


def held_json(held: Iterable[HeldPreview]) -> list[dict[str, Any]]:
    """Held records, for `--json`."""
    return [
        {"record_id": item.record_id, "reason": sentence(item.reason), "reason_code": item.reason.code} for item in held
    ]


def held_lines(held: Iterable[HeldPreview]) -> Iterator[str]:
    """A line for each reason, in the order of their first records."""
    alike: dict[str, list[str]] = {}
    for held_item in held:
        alike.setdefault(sentence(held_item.reason), []).append(held_item.record_id)
    for reason, record_ids in alike.items():
        yield f"held: {_whose(record_ids)}: {reason}"


def note_lines(notes: Iterable[Noted]) -> Iterator[str]:
    """A line for each field and rule, with the first value that was changed."""
    alike: dict[tuple[str, str, bool], list[Noted]] = {}
    for noted in notes:
        alike.setdefault((noted.note.field, noted.note.rule, noted.note.after is None), []).append(noted)
    for (field, rule, left_out), same in alike.items():
        first = same[0].note
        after = "left out" if left_out else f"sent as {first.after!r}"
        yield f"note: {_whose([one.record_id for one in same])}: {field} {first.before!r} {after}: {rule}"


def _whose(record_ids: list[str]) -> str:
    """The record, or the number of records and the first. A summary has no id."""
    named = record_ids[0] or "a summary"
    return named if len(record_ids) == 1 else f"{counted(len(record_ids), 'record')}, the first {named}"


# --- render --diff


_COUNTED = ("new", "changed", "unchanged", "gone", "unknown")


def _show_changes(comparison: DiffRendering) -> None:
    """Show them as they come, or all as one object. Raises `UsageError` for a format that is not known."""
    counts: Counter[str] = Counter()
    listed: list[dict[str, Any]] = []
    try:
        for change in comparison.changes():
            counts[change.kind] += 1
            if change.kind == "unchanged":
                continue
            if session.json:
                listed.append({"record": change.record, "kind": change.kind, "fields": list(change.fields)})
            else:
                _show_change(change)
    except (LookupError, ValueError) as error:
        raise UsageError(str(error)) from error
    totals = {kind: counts[kind] for kind in _COUNTED}
    if session.json:
        held = held_json(comparison.held)
        json_object({**totals, "held": len(held), "records": listed, "held_records": held})
        return
    say(*held_lines(comparison.held))
    say(", ".join(f"{count} {kind}" for kind, count in totals.items()) + f", {len(comparison.held)} held")


def _show_change(change: Change) -> None:
    data(safe(f"{change.kind}: {change.record}"))
    for field in change.fields:
        before = "nothing" if field.before is None else repr(field.before)
        after = "nothing" if field.after is None else repr(field.after)
        data(safe(f"  {field.field}: {before} -> {after}"))


# --- render --explain


def _show_explanations(explanations: list[Explanation]) -> None:
    """Show each record's."""
    if session.json:
        json_object({"records": [msgspec.to_builtins(explanation) for explanation in explanations]})
        return
    for explanation in explanations:
        _show_explanation(explanation)


def _show_explanation(explanation: Explanation) -> None:
    data(safe(f"{explanation.record_id}, from source {explanation.source}"))
    if explanation.not_selected is not None:
        data("  " + safe(f"not selected by the target: {explanation.not_selected}; these values are what it would get"))
    if explanation.held is not None:
        data("  " + safe(f"held: {explanation.held}"))
    if explanation.values:
        rows: list[list[object]] = [
            [value.field, value.value, _facts(value, explanation.added), _rule(value)] for value in explanation.values
        ]
        show_table("", ["field", "value", "facts of the job", "rule"], rows)
    if explanation.group is not None:
        _show_group(explanation.group)
    if explanation.fqan is not None:
        data("  " + safe(explanation.fqan))
    if explanation.rules:
        data("  " + safe(f"rules of the configuration that were applied: {', '.join(explanation.rules)}"))
    for note in explanation.notes:
        after = "left out" if note.after is None else f"sent as {note.after!r}"
        data("  " + safe(f"changed: {note.field} {note.before!r} {after}: {note.rule}"))


def _show_group(group: ExplainedGroup) -> None:
    listed = group.parts[:_SHOWN]
    rows: list[list[object]] = [
        [part.record_id, iso(part.end), f"{part.wall_ms / 1000:g}", f"{part.cpu_ms / 1000:g}"] for part in listed
    ]
    columns = ["job of this summary", "end", "wall s", "CPU s"]
    show_table("", columns, rows, right=set(columns[2:]))
    if group.jobs > len(listed):
        data(f"  and {group.jobs - len(listed):,} more; --json lists {len(group.parts):,} of them")
    counted = ", ".join(f"{count} from source {name}" for name, count in sorted(group.sources.items()))
    data("  " + safe(f"{group.jobs} job{'s' * (group.jobs != 1)}: {counted}; key {group.key}"))
    data("  " + safe(f"first ended {group.earliest}, last {group.latest}; names as in {group.spelled_by}"))
    for rule, count in sorted(group.rules.items()):
        data("  " + safe(f"rule of the configuration: {rule} was applied to {count:,} of them"))


def _facts(value: Explained, added: tuple[str, ...]) -> str:
    return ", ".join(f"{fact}{' (configuration)' if fact in added else ''}" for fact in value.facts)


def _rule(value: Explained) -> str:
    return f"{value.rule} ({', '.join(value.settings)})" if value.settings else value.rule

"""render: the dry run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from publisher.cli import when
from publisher.cli.alterations import held_lines, note_lines
from publisher.cli.exit_code import REJECTED
from publisher.cli.output import counted, exact, json_object, say
from publisher.cli.session import session
from publisher.errors import OutputError, UsageError
from publisher.reason import sentence

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.preview.render import Broken, RenderedMessage, Rendering
    from publisher.report.message import ReportRendering

_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("render")(render)


def render(
    format_name: Annotated[str, typer.Argument(metavar="FORMAT", help="ogf-ur, emi-car, apel-job, apel-summary ...")],
    from_: when.From = None,
    until: when.Until = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="As this target is to see it. Without times: what waits."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Write one file a message here, instead of showing.")
    ] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign the messages as they would be sent.")] = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Check every message first; one that breaks a rule is not shown.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what differs from what the target was last sent, instead.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain", metavar="ID", help="Say which rule put each value of a job's record, or summary, there."
        ),
    ] = None,
) -> None:
    """Show the very messages that `publish` would send, without sending and without changing anything."""
    from publisher.cli.changes import show_changes  # noqa: PLC0415
    from publisher.cli.explanations import show_explanations  # noqa: PLC0415
    from publisher.preview.render import Validation  # noqa: PLC0415
    from publisher.sources.base import Window  # noqa: PLC0415

    begin, end = when.window_bounds(from_, until)
    _alone("--explain", explain is not None, {"--diff": diff, "--sign": sign, "--validate": validate}, output)
    _alone("--diff", diff, {"--sign": sign, "--validate": validate}, output)
    with session.publisher() as publisher:
        target = target or _only_target(publisher, format_name)
        if explain is not None:
            show_explanations(publisher.explanations(format_name, target, explain))
            return
        if diff:
            if target is None:
                raise UsageError("--diff compares with what a target was sent", hint="Name it with --target")
            show_changes(publisher.comparison(format_name, target, Window(begin, end)))
            return
        rendering = publisher.rendering(format_name, target, Window(begin, end))
        wrap = _signer(publisher, target) if sign else bytes
        files = size = 0
        validation = Validation(int(time.time())) if validate else None
        if output is not None:
            _make(output)
        for message in rendering.messages():
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
    _finish(rendering, files, size, output, broken)
    if broken:
        raise typer.Exit(REJECTED)


def _alone(option: str, given: bool, others: dict[str, bool], output: Path | None) -> None:
    """Raises `UsageError` where an option that shows something else than messages is given beside one about them."""
    beside = [name for name, is_given in {**others, "--output": output is not None}.items() if is_given]
    if given and beside:
        raise UsageError(f"{option} shows no messages: it does not go with {', '.join(beside)}")


def _only_target(publisher: Publisher, format_name: str) -> str | None:
    """The one target that takes this format, if there is just one; the dry run of a site is then that of its target."""
    names = [name for name, target in publisher.config.targets.items() if target.records == format_name]
    return names[0] if len(names) == 1 else None


def _signer(publisher: Publisher, target: str | None):  # type: ignore[no-untyped-def]
    from publisher.security.credentials import load_credentials  # noqa: PLC0415
    from publisher.security.sign import Signer  # noqa: PLC0415

    config = publisher.config
    settings = config.credentials_of(config.targets[target]) if target is not None else config.credentials
    if settings.certificate is None or settings.key is None:
        raise UsageError("nothing to sign with", hint="Set certificate and key in [credentials]")
    return Signer(load_credentials(settings.certificate, settings.key, now_s=time.time()), clock=time.time).sign


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder} is a file", hint="Name a folder with --output") from None
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be made: {error.strerror}") from error


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
        raise UsageError(f"{path} is there already", hint="Name an empty folder with --output") from None
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _finish(
    rendering: Rendering | ReportRendering,
    files: int,
    size: int,
    output: Path | None,
    broken: list[Broken] | None,
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
                "held_records": [
                    {"record_id": item.record_id, "reason": sentence(item.reason), "reason_code": item.reason.code}
                    for item in rendering.held
                ],
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
    if rendering.cut_otherwise is not None:
        say(f"messages may be cut at other places when they are sent: {rendering.cut_otherwise}")
    for rule in (broken or [])[:_SHOWN]:
        record = rule.record or "as a whole"
        say(f"not shown: message {rule.message}: {record}: {rule.field} {rule.rule} [{rule.source}]")
    held, notes = list(held_lines(rendering.held)), list(note_lines(rendering.notes))
    say(*held[:_SHOWN], *notes[:_SHOWN])
    more = sum(max(0, len(told) - _SHOWN) for told in (broken or [], held, notes))
    if more:
        say(f"(and {more} more; --json lists all)")
    place = f" in {output}" if output is not None else ""
    say(
        f"{counted(rendering.records, 'record')} in {counted(files, 'message')}, {counted(size, 'byte')}{place}; "
        f"{len(rendering.held)} held"
    )

"""init: ask for the essentials, test each answer, and write a configuration.

What only some sources and targets need (the batch system, its time zone, the benchmark, since when the logs are
complete, the certificate) is asked only for them. On a terminal, an answer that cannot be right is asked for again, and
so is one whose test failed, unless it is confirmed; the answers before it are kept. Answers from a pipe or as options
cannot be asked for again: one that cannot be right ends the command. A failed test of them is reported, and the file is
written, since a service may be down today; the exit code is then that of a problem that `check` finds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from publisher.cli import exit_code
from publisher.cli.first_answers import Answers
from publisher.cli.output import json_object, require_free, say, write_configuration
from publisher.cli.questions import UNKNOWN
from publisher.cli.session import session
from publisher.errors import UsageError
from publisher.store.file_owner import as_user
from publisher.text import counted, text_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def _option(name: str, text: str, metavar: str) -> Any:
    return typer.Option(name, metavar=metavar, help=f"{text}.")


def init(
    site: Annotated[str | None, _option("--site", "Name of the site, as in GOCDB", "NAME")] = None,
    source: Annotated[
        str | None, _option("--source", "Source of jobs: a file, a folder, a program, or a URL", "PATH|URL")
    ] = None,
    source_type: Annotated[
        str | None,
        typer.Option("--source-type", metavar="TYPE", help="Its type, if it cannot be detected: pbs, torque ..."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="ZONE", help="Time zone of logs in local time, such as Europe/Oslo."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", metavar="TYPE:VALUE", help="Score of one core, if the source has none."),
    ] = None,
    collector: Annotated[
        str | None, _option("--collector", "What writes the records of the source: kubernetes, tardis ...", "NAME")
    ] = None,
    earlier_publisher: Annotated[
        str | None,
        typer.Option(
            "--earlier-publisher", metavar="MONTH|never", help="Last month that another publisher sent as a whole."
        ),
    ] = None,
    complete_since: Annotated[
        str | None,
        typer.Option("--complete-since", metavar="DATE", help="The source has every job since then."),
    ] = None,
    target: Annotated[
        str | None, _option("--target", "Kind of the target: sgas, ams, waldur ...; none: only reports", "KIND")
    ] = None,
    url: Annotated[str | None, _option("--url", "URL of the service, or the folder to write to", "URL")] = None,
    records: Annotated[str | None, typer.Option("--records", metavar="FORMAT", help="Format of records.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Send only jobs that ended since then.")
    ] = None,
    local_jobs: Annotated[
        str | None, typer.Option("--local-jobs", metavar="send|skip", help="Jobs without a grid identity.")
    ] = None,
    own_keys: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=TEXT", help="A further key of the target; may be repeated."),
    ] = None,
    token_file: Annotated[
        str | None, _option("--token-file", f"File with the token for the service; {UNKNOWN}: none", "FILE")
    ] = None,
    certificate: Annotated[Path | None, _option("--certificate", "Certificate (PEM)", "FILE")] = None,
    key: Annotated[Path | None, _option("--key", "Its key (PEM)", "FILE")] = None,
    ca_directory: Annotated[Path | None, _option("--ca-directory", "Folder of trusted authorities", "DIR")] = None,
    store: Annotated[str | None, _option("--store", "The store: a file or a URL", "FILE|URL")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing configuration.")] = False,
) -> None:
    """Ask for what no option gives, test each answer, and write a configuration."""
    from publisher.config import file as config_file  # noqa: PLC0415

    path = config_file.find(session.config)
    require_free(path, force=force)
    if not session.json:
        say(f"The configuration is written to {path.absolute()} after the last question (--config FILE: elsewhere).")
    answers = Answers(path, asks=None in {site, source, target})
    try:
        answers.site(site)
        answers.source(source, source_type, {"collector": collector})
        answers.target(
            target, url, {"records": records, "since": since, "local_jobs": local_jobs}, _pairs(own_keys or ())
        )
        answers.earlier_publisher(earlier_publisher)
        answers.source_needs(timezone, benchmark, complete_since)
        answers.token(token_file)
        answers.credentials(certificate, key, ca_directory, asks_place=url is None)
        answers.store(store)
    except KeyboardInterrupt:  # between two questions: as at a question
        raise typer.Abort from None
    write_configuration(path, text_of(answers.tables), force=force)
    code = exit_code.WAITING if answers.problems else exit_code.DONE
    if session.json:
        json_object({"file": str(path), "problems": answers.problems})
        raise typer.Exit(code)
    command = f"usage-publisher --config {path}" if session.config is not None else "usage-publisher"
    user = answers.other_user(os.geteuid())
    if user is not None:
        command = f"{as_user(user)} {command}"
    if answers.problems:
        say(
            f"wrote {path}",
            f"{counted(len(answers.problems), 'problem')} above: correct {path}, then run",
            f"  {command} check               tests everything; nothing is sent",
        )
        raise typer.Exit(code)
    say(
        f"wrote {path}",
        "Next:",
        f"  {command} check               tests everything; nothing is sent",
        f"  {command} collect             reads the jobs",
        *([f"  {command} publish --dry-run   shows how much would be sent"] if answers.has_target else []),
        f"  {command} run                 collects and sends; the timer usage-publisher.timer calls it",
    )


def _pairs(given: Iterable[str]) -> dict[str, str]:
    """Keys with their values. Raises `UsageError`."""
    pairs = [text.partition("=") for text in given]
    for key, equals, value in pairs:
        if not (key.strip() and equals and value.strip()):
            raise UsageError(f"--set {key}{equals}{value}: write it as KEY=TEXT")
    return {key.strip(): value.strip() for key, _, value in pairs}

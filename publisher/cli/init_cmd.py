"""init: asks for the essentials, tests each answer, writes a configuration."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from publisher.cli.output import json_object, say
from publisher.cli.session import session
from publisher.errors import PublisherError, UsageError

_ARC = Path("/var/spool/arc/jobstatus/accounting/accounting.db")
_GRID = Path("/etc/grid-security")
_STORE = Path("/var/lib/usage-publisher/store.db")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def _asked(option: str, question: str, metavar: str) -> Any:
    """An answer that is asked for where the option is missing."""
    return typer.Option(option, prompt=question, metavar=metavar, help=f"{question}.")


def init(
    site: Annotated[str, _asked("--site", "Name of the site, as in GOCDB", "NAME")],
    source: Annotated[Path, _asked("--source", "ARC's accounting database", "FILE")] = _ARC,
    target: Annotated[str, _asked("--target", "Send to (sgas, ams, directory)", "KIND")] = "sgas",
    url: Annotated[str, _asked("--url", "URL of the service, or the folder to write to", "URL")] = "",
    certificate: Annotated[Path, _asked("--certificate", "Certificate (PEM)", "FILE")] = _GRID / "hostcert.pem",
    key: Annotated[Path, _asked("--key", "Its key (PEM)", "FILE")] = _GRID / "hostkey.pem",
    ca_directory: Annotated[Path, _asked("--ca-directory", "Folder of trusted authorities", "DIR")] = _GRID
    / "certificates",
    store: Annotated[Path, _asked("--store", "Where to keep the state", "FILE")] = _STORE,
    force: Annotated[bool, typer.Option("--force", help="Replace a configuration that is there.")] = False,
) -> None:
    """Ask for the essentials, test each answer, and write a configuration."""
    from publisher import config_file  # noqa: PLC0415

    path = config_file.find(session.config)
    if path.exists() and not force:
        raise UsageError(f"{path} is there already", hint="Edit it, or replace it with --force")
    source, certificate, key, ca_directory = (answer.absolute() for answer in (source, certificate, key, ca_directory))
    text = _configuration(site, source, target, url, certificate, key, ca_directory, store)
    import tomllib  # noqa: PLC0415

    config_file.parse(tomllib.loads(text), path)
    problems = _problems(source, certificate, key, ca_directory)
    for problem in problems:
        say(f"not well yet: {problem}")
    _write(path, text)
    if session.json:
        json_object({"file": str(path), "problems": problems})
    else:
        say(f"wrote {path}", f"Next: usage-publisher --config {path} check; then collect, render, publish")


def _quoted(text: object) -> str:
    """A TOML basic string."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04X}" for c in escaped) + '"'


def _configuration(
    site: str, source: Path, target: str, url: str, certificate: Path, key: Path, authorities: Path, store: Path
) -> str:
    folder = Path(url).absolute() if url else url
    kinds = {
        "sgas": f'type = "sgas"\nurl = {_quoted(url)}\n',
        "ams": f'type = "ams"\nurl = {_quoted(url)}\nrecords = "apel-summary"\n',
        "directory": f'type = "directory"\npath = {_quoted(folder)}\nrecords = "apel-summary"\n',
    }
    if target not in kinds:
        raise UsageError(f"there is no kind of target {target!r} to ask for; there are {', '.join(kinds)}")
    return (
        f"[site]\nname = {_quoted(site)}\n\n"
        f"[store]\nurl = {_quoted('sqlite:///' + str(store.absolute()))}\n\n"
        f'[sources.ce1]\ntype = "arc"\npath = {_quoted(source)}\n\n'
        f"[targets.{target}]\n{kinds[target]}\n"
        f"[credentials]\ncertificate = {_quoted(certificate)}\nkey = {_quoted(key)}\n"
        f"ca_directory = {_quoted(authorities)}\n"
    )


def _problems(source: Path, certificate: Path, key: Path, authorities: Path) -> list[str]:
    from publisher.config import Source  # noqa: PLC0415
    from publisher.credentials import load_credentials  # noqa: PLC0415
    from publisher.sources import make_source  # noqa: PLC0415

    def sources() -> list[str]:
        findings = make_source("ce1", Source(type="arc", path=source)).check()
        return [f"{item.message}. {item.hint}" for item in findings if item.level == "red"]

    def credentials() -> list[str]:
        load_credentials(certificate, key, now_s=time.time())
        return [] if authorities.is_dir() else [f"{authorities} is no folder of trusted authorities"]

    tests: list[Callable[[], list[str]]] = [sources, credentials]
    problems: list[Any] = []
    for test in tests:
        try:
            problems += test()
        except PublisherError as error:
            problems.append(str(error))
    return problems


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error

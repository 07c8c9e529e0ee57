"""init: ask for the essentials, test each answer, and write a configuration.

What only some sources need (the batch system, the benchmark, since when the logs are complete) is asked only for them.
A test that fails is reported at once, and does not stop the file from being written: a service may be down today.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli.output import json_object, say
from publisher.cli.session import session
from publisher.errors import ConfigError, PublisherError, UsageError
from publisher.sqlite_file import open_read_only

if TYPE_CHECKING:
    from publisher.config.schema import Config
    from publisher.finding import Finding

_GRID: Final = Path("/etc/grid-security")
_STORE: Final = Path("/var/lib/usage-publisher/store.db")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def _option(name: str, text: str, metavar: str) -> Any:
    return typer.Option(name, metavar=metavar, help=f"{text}. Asked if omitted.")


def init(
    site: Annotated[str | None, _option("--site", "Name of the site, as in GOCDB", "NAME")] = None,
    source: Annotated[
        Path | None, _option("--source", "Source of jobs: a file, a folder, or a program", "PATH")
    ] = None,
    source_type: Annotated[
        str | None,
        typer.Option("--source-type", metavar="TYPE", help="Its type, if it cannot be detected: pbs, torque ..."),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", metavar="TYPE:VALUE", help="Score of one core, if the source has none."),
    ] = None,
    complete_since: Annotated[
        str | None,
        typer.Option("--complete-since", metavar="DATE", help="The source has every job since then."),
    ] = None,
    target: Annotated[str | None, _option("--target", "Kind of the target: sgas, ams, directory", "KIND")] = None,
    url: Annotated[str | None, _option("--url", "URL of the service, or the folder to write to", "URL")] = None,
    certificate: Annotated[Path | None, _option("--certificate", "Certificate (PEM)", "FILE")] = None,
    key: Annotated[Path | None, _option("--key", "Its key (PEM)", "FILE")] = None,
    ca_directory: Annotated[Path | None, _option("--ca-directory", "Folder of trusted authorities", "DIR")] = None,
    store: Annotated[str | None, _option("--store", "The store: a file or a URL", "FILE|URL")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing configuration.")] = False,
) -> None:
    """Ask for the essentials, test each answer, and write a configuration."""
    from publisher.cli.output import require_free, write_configuration  # noqa: PLC0415
    from publisher.config import file as config_file  # noqa: PLC0415
    from publisher.text import text_of  # noqa: PLC0415

    path = config_file.find(session.config)
    require_free(path, force=force)
    answers = _Answers(path)
    answers.site(site)
    answers.source(source, source_type)
    answers.target(target, url)
    answers.source_needs(benchmark, complete_since)
    answers.credentials(certificate, key, ca_directory)
    answers.store(store)
    write_configuration(path, text_of(answers.tables), force=force)
    if session.json:
        json_object({"file": str(path), "problems": answers.problems})
    else:
        say(f"wrote {path}", f"Next: usage-publisher --config {path} check; then collect, render, publish")


class _Answers:
    """The configuration answered so far; each part is parsed and tested when it is answered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.tables: dict[str, Any] = {"site": {"name": "?"}, "store": {"url": f"sqlite:///{_STORE}"}}
        self.problems: list[str] = []
        self._asks = False

    def site(self, given: str | None) -> None:
        """The name of the site."""
        self.tables["site"]["name"] = _ask("Name of the site, as in GOCDB", given)
        self._config()

    def source(self, given: Path | None, kind: str | None) -> None:
        """One source, named ce1; its type is usually detected."""
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415
        from publisher.sources import known_kinds, make_source, recognised  # noqa: PLC0415

        self._asks = given is None
        usual = next(each.usual_path for each in SOURCE_KINDS.values() if each.usual_path)
        place = Path(_ask("Source of jobs: a file, a folder, or a program", given, usual)).absolute()
        kind = kind or recognised(place)
        if kind is None:
            if not place.exists():
                self._report(f"{place} does not exist yet")
            kind = _ask(f"Type of the source ({', '.join(SOURCE_KINDS)})", kind)
        if kind not in known_kinds():
            raise UsageError(f"unknown type of source {kind!r}; known: {', '.join(known_kinds())}")
        self.tables["sources"] = {"ce1": {"type": kind, "path": str(place)}}
        self._try(f"{place} ({kind})", lambda: make_source("ce1", self._config().sources["ce1"]).check())

    def source_needs(self, benchmark: str | None, since: str | None) -> None:
        """What the target needs and the source lacks."""
        from formats.registry import FORMATS  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415

        (source,), (target,) = self.tables["sources"].values(), self.tables["targets"].values()
        kind, form = SOURCE_KINDS.get(source["type"]), FORMATS[target["records"]]
        scored = not form.needs_benchmark or (
            kind is not None and kind.has_scores and _has_scores(Path(source["path"]))
        )
        if benchmark is None and not scored:
            benchmark = self._needed("Score of one core, such as HEPscore23:14.2", "--benchmark", "its jobs are held")
        if benchmark is not None:
            source["benchmark"] = _benchmark(benchmark)
        if since is None and kind is not None and not kind.knows_first_day and form.is_snapshot:
            question = "Since when its logs have every job, such as 2026-10-01"
            since = self._needed(question, "--complete-since", "its months are held")
        if since is not None:
            source["complete_since"] = since
        self._config()

    def _needed(self, question: str, option: str, otherwise: str) -> str | None:
        """The answer to a question that the options left open, if the person was asked before; None: unknown."""
        answer = _ask(f"{question} (- if unknown)", None, "-") if self._asks else "-"
        if answer != "-":
            return answer
        self._report(f"{question} ({option}): unknown, and until it is set {otherwise}")
        return None

    def target(self, kind: str | None, place: str | None) -> None:
        """One target, named after its kind."""
        from publisher.config.schema import TARGET_KINDS  # noqa: PLC0415
        from publisher.config.store_url import is_url  # noqa: PLC0415

        offered = [name for name, each in TARGET_KINDS.items() if each.is_offered]
        kind = _ask(f"Kind of the target ({', '.join(offered)})", kind, offered[0])
        if kind not in offered:
            raise UsageError(f"init does not know the kind of target {kind!r}; it knows {', '.join(offered)}")
        settings = TARGET_KINDS[kind].settings.model_fields
        is_folder = "path" in settings
        question = "URL of the service, or the folder to write to"
        asked, place = place is None, _ask(question, place)
        while not is_folder and not place.startswith("https://"):
            if not asked:
                raise UsageError(f"{place!r} is not the URL of a service", hint="It must begin with https://")
            say(f"{place!r} is not a URL that begins with https://")
            place = _ask(question, None)
        if is_folder and is_url(place):
            raise UsageError(f"{place!r} is a URL, and a target of kind {kind} needs a folder")
        where = {"path": str(Path(place).absolute())} if is_folder else {"url": place}
        self.tables["targets"] = {kind: {"type": kind, **where, "records": settings["records"].default}}
        self._config()

    def credentials(self, certificate: Path | None, key: Path | None, authorities: Path | None) -> None:
        """The certificate and the trusted authorities; then the service is tested."""
        given = {
            "certificate": _ask("Certificate (PEM)", certificate, _GRID / "hostcert.pem"),
            "key": _ask("Its key (PEM)", key, _GRID / "hostkey.pem"),
            "ca_directory": _ask("Folder of trusted authorities", authorities, _GRID / "certificates"),
        }
        self.tables["credentials"] = {name: str(Path(path).absolute()) for name, path in given.items()}
        config = self._config()
        if self._try("certificate", lambda: _certificate(config)):
            self._try("service", lambda: _service(config))

    def store(self, given: str | None) -> None:
        """The store."""
        from publisher.config.store_url import is_url, store_url  # noqa: PLC0415

        answer = _ask("The store: a file, or postgresql://USER@HOST/DATABASE", given, _STORE)
        url = store_url(answer, Path.cwd()) if is_url(answer) else f"sqlite:///{Path(answer).absolute()}"
        self.tables["store"]["url"] = url
        self._config()
        if not url.startswith("sqlite:"):
            self._try("store", lambda: _database(url))
            return
        place = Path(url.removeprefix("sqlite:///"))
        folder = next(parent for parent in place.parents if parent.exists())
        if not os.access(folder, os.W_OK):
            self._report(f"{folder} cannot be written by this user")

    def _config(self) -> Config:
        """The answers so far, parsed. Raises `ConfigError`."""
        from publisher.config import file as config_file  # noqa: PLC0415

        return config_file.parse(self.tables, self._path)

    def _try(self, what: str, test: Any) -> bool:
        """Whether a test passed; if not, the problem is reported, and the next question follows."""
        before = len(self.problems)
        try:
            for finding in test():
                if finding.level == "red":
                    self._report(f"{finding.message}. {finding.hint}" if finding.hint else finding.message)
        except ConfigError:
            raise
        except PublisherError as error:
            self._report(str(error))
        if len(self.problems) == before and not session.json and sys.stdin.isatty():
            say(f"  {what}: ok")
        return len(self.problems) == before

    def _report(self, problem: str) -> None:
        self.problems.append(problem)
        if not session.json:
            say(f"problem: {problem}")


def _ask(question: str, given: object, default: object = None) -> str:
    """The value of an option, or the answer to a question. Raises `UsageError` for an empty one."""
    if given is None:
        try:
            given = typer.prompt(question, default=None if default is None else str(default), err=True)
        except typer.Abort:
            if sys.stdin.isatty():
                raise
            say("")  # end the line of the question
            hint = "Answer with an option: usage-publisher init --help"
            raise UsageError(f"{question}: standard input is not a terminal", hint=hint) from None
    if not str(given).strip():
        raise UsageError(f"{question}: the answer is empty")
    return str(given)


def _benchmark(given: str) -> dict[str, Any]:
    kind, _, score = given.partition(":")
    try:
        return {"type": kind.strip(), "value": float(score)}
    except ValueError:
        raise UsageError(f"{given!r} is not a score", hint="Write it as HEPscore23:14.2") from None


def _certificate(config: Config) -> Iterator[Finding]:
    from publisher.finding import Finding  # noqa: PLC0415
    from publisher.security.credentials import load_credentials  # noqa: PLC0415

    given = config.credentials
    assert given.certificate is not None  # answered just now
    assert given.key is not None
    assert given.ca_directory is not None
    load_credentials(given.certificate, given.key, now_s=time.time())
    if not given.ca_directory.is_dir():
        yield Finding("authorities", "red", f"{given.ca_directory} is not a folder of trusted authorities")


def _database(url: str) -> list[Finding]:
    """Connect to the server; the first collect creates the tables."""
    from publisher.config.schema import StoreSettings  # noqa: PLC0415
    from publisher.store.dialect import reach  # noqa: PLC0415

    reach(url, StoreSettings().busy_timeout)
    return []


def _service(config: Config) -> list[Finding]:
    from publisher.targets import make_target  # noqa: PLC0415
    from publisher.targets.identity import TargetContext  # noqa: PLC0415

    ((name, settings),) = config.targets.items()
    target = make_target(name, settings, TargetContext(config.credentials, time.time))
    try:
        return target.check()
    finally:
        target.close()


def _has_scores(database: Path) -> bool:
    """Whether ARC writes benchmarks into its database; also true if it cannot be read, which is reported elsewhere."""
    file = database / "accounting.db" if database.is_dir() else database
    query = "SELECT 1 FROM JobExtraInfo WHERE InfoKey = 'benchmark' LIMIT 1"
    try:
        with contextlib.closing(open_read_only(file)) as connection:
            return connection.execute(query).fetchone() is not None
    except sqlite3.Error:
        return True

"""init: ask for the essentials, test each answer, and write a configuration.

What only some sources and targets need (the batch system, its time zone, the benchmark, since when the logs are
complete, the certificate) is asked only for them. On a terminal, an answer that cannot be right is asked for again, and
so is one whose test failed, unless it is confirmed; the answers before it are kept. Answers from a pipe or as options
cannot be asked for again: one that cannot be right ends the command. A failed test of them is reported, and the file is
written, since a service may be down today.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from publisher.cli.output import json_object, say
from publisher.cli.questions import ask, ask_path, benchmark_of, first_day_after
from publisher.cli.session import session
from publisher.errors import PublisherError, UsageError
from publisher.sqlite_file import open_read_only
from publisher.store.file_owner import SERVICE_USER, as_user, name_of, owner_of
from publisher.text import counted, did_you_mean, unknown_name

if TYPE_CHECKING:
    from publisher.config.schema import Config
    from publisher.finding import Finding

_STORE: Final = Path("/var/lib/usage-publisher/store.db")
_GOCDB_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}").fullmatch
_UNKNOWN: Final = "-"
_NEVER: Final = "never"


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
        str | None, _option("--collector", "What writes the records of AUDITOR: kubernetes, tardis ...", "NAME")
    ] = None,
    earlier_publisher: Annotated[
        str | None,
        typer.Option(
            "--earlier-publisher", metavar="MONTH|never", help="Last month that AUDITOR's APEL plugin sent as a whole."
        ),
    ] = None,
    complete_since: Annotated[
        str | None,
        typer.Option("--complete-since", metavar="DATE", help="The source has every job since then."),
    ] = None,
    target: Annotated[str | None, _option("--target", "Kind of the target: sgas, ams, directory", "KIND")] = None,
    url: Annotated[str | None, _option("--url", "URL of the service, or the folder to write to", "URL")] = None,
    records: Annotated[str | None, typer.Option("--records", metavar="FORMAT", help="Format of records.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="Send only jobs that ended since then.")
    ] = None,
    local_jobs: Annotated[
        str | None, typer.Option("--local-jobs", metavar="send|skip", help="Jobs without a grid identity.")
    ] = None,
    certificate: Annotated[Path | None, _option("--certificate", "Certificate (PEM)", "FILE")] = None,
    key: Annotated[Path | None, _option("--key", "Its key (PEM)", "FILE")] = None,
    ca_directory: Annotated[Path | None, _option("--ca-directory", "Folder of trusted authorities", "DIR")] = None,
    store: Annotated[str | None, _option("--store", "The store: a file or a URL", "FILE|URL")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing configuration.")] = False,
) -> None:
    """Ask for what no option gives, test each answer, and write a configuration."""
    from publisher.cli.output import require_free, write_configuration  # noqa: PLC0415
    from publisher.config import file as config_file  # noqa: PLC0415
    from publisher.text import text_of  # noqa: PLC0415

    path = config_file.find(session.config)
    require_free(path, force=force)
    if not session.json:
        say(f"The configuration is written to {path.absolute()} after the last question (--config FILE: elsewhere).")
    answers = _Answers(path, asks=None in {site, source, target})
    try:
        answers.site(site)
        answers.source(source, source_type, {"collector": collector})
        answers.target(target, url, {"records": records, "since": since, "local_jobs": local_jobs})
        answers.earlier_publisher(earlier_publisher)
        answers.source_needs(timezone, benchmark, complete_since)
        answers.credentials(certificate, key, ca_directory, asks_place=url is None)
        answers.store(store)
    except KeyboardInterrupt:  # between two questions: as at a question
        raise typer.Abort from None
    write_configuration(path, text_of(answers.tables), force=force)
    if session.json:
        json_object({"file": str(path), "problems": answers.problems})
        return
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
        return
    say(
        f"wrote {path}",
        "Next:",
        f"  {command} check               tests everything; nothing is sent",
        f"  {command} collect             reads the jobs",
        f"  {command} publish --dry-run   shows how much would be sent",
        f"  {command} run                 collects and sends; the timer usage-publisher.timer calls it",
    )


class _Answers:
    """The configuration answered so far; each part is parsed and tested when it is answered."""

    def __init__(self, path: Path, *, asks: bool) -> None:
        """`asks`: what may stay unknown is asked for too, not only reported."""
        self._path = path
        self.tables: dict[str, Any] = {"site": {"name": "?"}, "store": {"url": f"sqlite:///{_STORE}"}}
        self.problems: list[str] = []
        self._asks = asks

    def other_user(self, user_id: int) -> str | None:
        """The user as which root has to run the other commands: what root writes beside the store, the service cannot
        open. None: root may run them, or it is not root."""
        from publisher.store.dialect import file_of  # noqa: PLC0415 - loads the database

        file = file_of(self.tables["store"]["url"])
        if user_id != 0 or file is None:
            return None
        place = self._path.absolute().parent / file
        if not place.parent.exists():
            return SERVICE_USER
        owner = owner_of(place)
        return name_of(owner) if owner else None

    def site(self, given: str | None) -> None:
        """The name of the site."""

        def accept(answer: str) -> None:
            if not _GOCDB_NAME(answer):
                hint = "It has letters, digits, and . _ - only, such as EXAMPLE-SITE"
                raise UsageError(f"{answer!r} is not the name of a site in GOCDB", hint=hint)
            self.tables["site"]["name"] = answer

        ask("Name of the site, as in GOCDB", given, accept)

    def source(self, given: str | None, kind: str | None, more: Mapping[str, str | None]) -> None:
        """One source, named ce1; its type is usually detected. `more`: further keys that are given."""
        from publisher.cli import discovery  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415
        from publisher.sources import known_kinds, make_source, recognised  # noqa: PLC0415

        here = discovery.sources(os.environ) if given is None else {}
        if here:
            say("Found on this machine:", *(f"  {place} ({kind})" for place, kind in here.items()))
        urls: list[str] = []
        question = "Source of jobs: a file, a folder, a program, or a URL"
        place = ask_path(question, given, next(iter(here), None), urls)
        if urls:
            possible = tuple(name for name, each in SOURCE_KINDS.items() if each.own_table)
        else:
            possible = (here[place],) if place in here else recognised(place)
        kind = kind or (possible[0] if len(possible) == 1 else None)
        if kind is None and not place.exists():
            self._report(f"{place} does not exist yet")

        def accept(answer: str) -> None:
            if answer not in known_kinds():
                raise UsageError(unknown_name("type of source", answer, known_kinds()))
            own = SOURCE_KINDS[answer].own_table if answer in SOURCE_KINDS else ""
            key, value = (own, {"url": next(iter(urls), str(place))}) if own else ("path", next(iter(urls), str(place)))
            self.tables["sources"] = {"ce1": {"type": answer, key: value}}
            self._config()

        ask(f"Type of the source ({', '.join(possible or SOURCE_KINDS)})", kind, accept)
        settings = self._config().sources["ce1"]
        for key, answered in more.items():
            if key in settings.kind.asked and (answered is not None or self._asks):
                table = self.tables["sources"]["ce1"][settings.kind.own_table]
                ask(settings.kind.asked[key], answered, self._setter(table, key), "other")
        settings = self._config().sources["ce1"]
        self._try(f"{next(iter(urls), place)} ({settings.type})", lambda: make_source("ce1", settings).check())

    def earlier_publisher(self, given: str | None) -> None:
        """The last month of the program that publishes this source's records without us, if it may have; the target
        begins with the next.

        Raises `UsageError` if the target would be sent another kind of record: the service would add up both.
        """
        from formats.registry import FORMATS  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415

        (source,), (target,) = self.tables["sources"].values(), self.tables["targets"].values()
        kind, form = SOURCE_KINDS.get(source["type"]), FORMATS[target["records"]]
        if kind is None or not kind.other_publisher or not form.with_sync:
            return
        program, records = kind.other_publisher
        answers: list[str] = []

        def accept(answer: str) -> None:
            if answer == _NEVER:
                return
            begin = first_day_after(answer)
            if form.name != records:
                raise UsageError(
                    f"{program} sends {records}, and the service counts them in addition to {form.name}",
                    hint=f"Begin again with --records {records}",
                )
            answers.append(begin)

        if given is None and not self._asks:
            self._report(f"whether {program} published for this site is unknown (--earlier-publisher)")
            return
        ask(f"Last month that {program} sent as a whole, such as 2026-10 ({_NEVER}: none)", given, accept, _NEVER)
        if answers:
            self._setter(target, "since")(max(answers[0], str(target.get("since", ""))))

    def source_needs(self, zone: str | None, benchmark: str | None, since: str | None) -> None:
        """What the target needs and the source lacks."""
        from formats.registry import FORMATS  # noqa: PLC0415
        from publisher.cli import discovery  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415

        (source,), (target,) = self.tables["sources"].values(), self.tables["targets"].values()
        kind, form = SOURCE_KINDS.get(source["type"]), FORMATS[target["records"]]
        if zone is not None or (self._asks and kind is not None and kind.writes_local_time):
            question = "Time zone of its logs, such as Europe/Oslo"
            ask(question, zone, self._setter(source, "timezone"), discovery.time_zone(os.environ))
        scored = not form.needs_benchmark or (
            kind is not None and kind.has_scores and ("path" not in source or _has_scores(Path(source["path"])))
        )
        if benchmark is not None or not scored:
            question = "Score of one core, such as HEPscore23:14.2"
            accept = self._setter(source, "benchmark", benchmark_of)
            self._ask_if_known(question, benchmark, accept, "--benchmark", "its jobs are held")
        if since is not None or (kind is not None and not kind.knows_first_day and form.is_snapshot):
            question = "Since when its logs have every job, such as 2026-10-01"
            accept = self._setter(source, "complete_since")
            self._ask_if_known(question, since, accept, "--complete-since", "its months are held")

    def _ask_if_known(
        self, question: str, given: str | None, accept: Callable[[str], None], option: str, otherwise: str
    ) -> None:
        """Ask for what may be unknown, if the person is asked at all; report it if it stays unknown."""
        answers: list[str] = []

        def accept_or_note(answer: str) -> None:
            if answer != _UNKNOWN:
                accept(answer)
            answers.append(answer)

        if given is not None or self._asks:
            ask(f"{question} ({_UNKNOWN} if unknown)", given, accept_or_note, _UNKNOWN)
        if answers in ([], [_UNKNOWN]):
            self._report(f"{question} ({option}): unknown, and until it is set {otherwise}")

    def _setter(self, table: dict[str, Any], key: str, parse: Callable[[str], object] = str) -> Callable[[str], None]:
        """What accepts an answer as the value of a key; a value that is wrong leaves the table as it was."""
        before = dict(table)

        def accept(answer: str) -> None:
            table[key] = parse(answer)
            try:
                self._config()
            except UsageError:
                table.clear()
                table.update(before)
                raise

        return accept

    def target(self, kind: str | None, place: str | None, more: Mapping[str, str | None]) -> None:
        """One target, named after its kind. `more`: further keys that are given."""
        from publisher.config.schema import TARGET_KINDS  # noqa: PLC0415

        offered = [name for name, each in TARGET_KINDS.items() if each.is_offered]
        chosen: list[str] = []

        def accept_kind(answer: str) -> None:
            if answer not in offered:
                near = did_you_mean(answer, offered)
                raise UsageError(f"init does not know the kind of target {answer!r}; known: {', '.join(offered)}{near}")
            chosen.append(answer)

        ask(f"Kind of the target ({', '.join(offered)})", kind, accept_kind, offered[0])
        (name,) = chosen
        records = TARGET_KINDS[name].settings.model_fields["records"].default
        self.tables["targets"] = {name: {"type": name, "records": records}}
        self._place(place)
        table = self.tables["targets"][name]
        for key, given in more.items():
            if given is not None or (place is None and key in TARGET_KINDS[name].asked):
                self._ask_of_target(table, key, given)

    def _place(self, given: str | None) -> None:
        """The URL or the folder of the target."""
        from publisher.config.schema import TARGET_KINDS  # noqa: PLC0415
        from publisher.config.store_url import is_url  # noqa: PLC0415

        ((name, table),) = self.tables["targets"].items()
        is_folder = "path" in TARGET_KINDS[name].settings.model_fields

        def accept(answer: str) -> None:
            if is_folder and is_url(answer):
                raise UsageError(f"{answer!r} is a URL, and a target of kind {name} needs a folder")
            table.update({"path": str(Path(answer).absolute())} if is_folder else {"url": answer})
            self._config()

        ask("Folder to write to" if is_folder else "URL of the service (https://...)", given, accept)

    def _ask_of_target(self, table: dict[str, Any], key: str, given: str | None) -> None:
        """A further key of the target, if it is not left as it is."""
        from formats.registry import names_of  # noqa: PLC0415

        offered = names_of("record", "totals", "report")
        questions: dict[str, tuple[str, str]] = {
            "records": (f"Format of records ({', '.join(offered)})", table["records"]),
            "since": (f"Send only jobs that ended since, such as 2026-10-01 ({_UNKNOWN}: all)", _UNKNOWN),
            "local_jobs": ("Jobs without a grid identity (send, skip)", "skip"),
        }
        question, default = questions[key]
        accept = self._setter(table, key)
        ask(question, given, lambda answer: None if answer == _UNKNOWN else accept(answer), default)

    def credentials(
        self, certificate: Path | None, key: Path | None, authorities: Path | None, *, asks_place: bool
    ) -> None:
        """The certificate and the trusted authorities, if the target needs them; then the service is tested.

        Raises `UsageError` if they were answered from a pipe and cannot be used.
        """
        from publisher.cli.discovery import GRID_SECURITY, readable  # noqa: PLC0415

        config = self._config()
        (target,) = config.targets.values()
        if "url" not in type(target).model_fields and not target.signs and certificate is None:
            return

        def ask() -> None:
            given = {
                "certificate": ask_path("Certificate (PEM)", certificate, readable(GRID_SECURITY / "hostcert.pem")),
                "key": ask_path("Its key (PEM)", key, readable(GRID_SECURITY / "hostkey.pem")),
                "ca_directory": ask_path(
                    "Folder of trusted authorities", authorities, readable(GRID_SECURITY / "certificates")
                ),
            }
            self.tables["credentials"] = {name: str(path) for name, path in given.items()}

        ask()
        asked = None in {certificate, key, authorities}
        passed = self._try_until_confirmed("certificate", lambda: _certificate(self._config()), ask if asked else None)
        if asked and not passed and not sys.stdin.isatty():
            raise UsageError("the certificate cannot be used", hint="Correct the answers; nothing was written")
        if passed:
            again = (lambda: self._place(None)) if asks_place else None
            self._try_until_confirmed("service", lambda: _service(self._config()), again)

    def _try_until_confirmed(self, what: str, test: Any, ask: Callable[[], None] | None) -> bool:
        """Whether a test passed. On a terminal the answers are asked for again until it does, or they are confirmed."""
        before = len(self.problems)
        while not self._try(what, test):
            if ask is None or not sys.stdin.isatty() or typer.confirm("  Use it anyway?", err=True):
                return False
            del self.problems[before:]
            ask()
        return True

    def store(self, given: str | None) -> None:
        """The store."""
        from publisher.config.store_url import is_url, store_url  # noqa: PLC0415
        from publisher.status.check_host import new_store  # noqa: PLC0415

        def accept(answer: str) -> None:
            url = store_url(answer, Path.cwd()) if is_url(answer) else f"sqlite:///{Path(answer).absolute()}"
            self.tables["store"]["url"] = url
            self._config()

        ask("The store: a file, or postgresql://USER@HOST/DATABASE", given, accept, _STORE)
        url = self.tables["store"]["url"]
        self._try("store", lambda: list(new_store(url)) if url.startswith("sqlite:") else _database(url))

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
        except PublisherError as error:
            self._report(str(error))
        if len(self.problems) == before and not session.json and sys.stdin.isatty():
            say(f"  {what}: ok")
        return len(self.problems) == before

    def _report(self, problem: str) -> None:
        self.problems.append(problem)
        if not session.json:
            say(f"problem: {problem}")


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

"""The configuration that `init` writes: each answer is parsed and tested when it is given."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from publisher.cli.output import say
from publisher.cli.questions import UNKNOWN, ask, ask_path, benchmark_of, first_day_after, path_of
from publisher.cli.session import session
from publisher.errors import (
    ConfigError,
    CredentialError,
    KeyMismatchError,
    PublisherError,
    StoreMissingError,
    UsageError,
)
from publisher.sqlite_file import open_read_only
from publisher.store.file_owner import SERVICE_USER, name_of, owner_of
from publisher.text import did_you_mean, unknown_name

if TYPE_CHECKING:
    from publisher.config.schema import Config
    from publisher.finding import Finding

_STORE: Final = Path("/var/lib/usage-publisher/store.db")
_GOCDB_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}").fullmatch
_NEVER: Final = "never"
_NO_TARGET: Final = "none"
"""The kind of target of a site that only makes reports."""
_ASKED_APART: Final = frozenset({"type", "url", "path", "credentials"})
"""Keys of targets with questions of their own."""


class Answers:
    """The configuration answered so far; each part is parsed and tested when it is answered."""

    def __init__(self, path: Path, *, asks: bool) -> None:
        """`asks`: what may stay unknown is asked for too, not only reported."""
        self._path = path
        self.tables: dict[str, Any] = {"site": {"name": "?"}, "store": {"url": f"sqlite:///{_STORE}"}}
        self.problems: list[str] = []
        self._asks = asks
        self._tests_service = True

    def other_user(self, user_id: int) -> str | None:
        """The user as which root has to run the other commands: what root writes beside the store, the service cannot
        open. None: root may run them, or it is not root."""
        from publisher.store.dialect import file_of  # noqa: PLC0415 - loads the database

        file = file_of(self.tables["store"]["url"])
        if user_id != 0 or file is None:
            return None
        store = self._path.absolute().parent / file
        if not store.parent.exists():
            return SERVICE_USER
        owner = owner_of(store)
        return name_of(owner) if owner else None

    def site(self, given: str | None) -> None:
        """The name of the site."""

        def accept(answer: str) -> None:
            if not _GOCDB_NAME(answer):
                hint = "It has letters, digits, and . _ - only, such as EXAMPLE-SITE"
                raise UsageError(f"{answer!r} is not the name of a site in GOCDB", hint=hint)
            self.tables["site"]["name"] = answer

        ask("Name of the site, as in GOCDB", "--site", given, accept)

    def source(self, given: str | None, kind: str | None, more: Mapping[str, str | None]) -> None:
        """One source, named after its type, which is usually detected. `more`: further keys that are given."""
        self._source(given, kind, more)
        again = (lambda: self._source(None, kind, more)) if given is None else None
        self._try_until_confirmed("source", self._source_findings, again)

    def _source_findings(self) -> list[Finding]:
        from publisher.sources import make_source  # noqa: PLC0415

        ((name, settings),) = self._config().sources.items()
        return make_source(name, settings).check()

    def _source(self, given: str | None, kind: str | None, more: Mapping[str, str | None]) -> None:
        from publisher.cli import discovery  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415
        from publisher.sources import known_kinds, recognised  # noqa: PLC0415

        here = discovery.sources(os.environ) if given is None else {}
        if here:
            say("Found on this machine:", *(f"  {log} ({kind})" for log, kind in here.items()))
        urls: list[str] = []
        question = "Source of jobs: a file, a folder, a program, or a URL"
        programs = {each.program for each in SOURCE_KINDS.values() if each.program}
        log = ask_path(question, "--source", given, next(iter(here), None), urls, programs)
        address = next(iter(urls), str(log))
        if urls:
            possible = tuple(name for name, each in SOURCE_KINDS.items() if each.own_table)
        else:
            possible = (here[log],) if log in here else recognised(log)
        kind = kind or (possible[0] if len(possible) == 1 else None)
        if kind is None and not log.exists():
            self._report(f"{log} does not exist yet")

        def accept(answer: str) -> None:
            if answer not in known_kinds():
                raise UsageError(unknown_name("type of source", answer, known_kinds()))
            own = SOURCE_KINDS[answer].own_table if answer in SOURCE_KINDS else ""
            key, value = (own, {"url": address}) if own else ("path", address)
            self.tables["sources"] = {answer: {"type": answer, key: value}}
            self._config()

        ask(f"Type of the source ({', '.join(possible or SOURCE_KINDS)})", "--source-type", kind, accept)
        ((name, settings),) = self._config().sources.items()
        for key, answered in more.items():
            if key in settings.kind.asked and (answered is not None or self._asks):
                table = self.tables["sources"][name][settings.kind.own_table]
                ask(settings.kind.asked[key], f"--{key}", answered, self._setter(table, key), "other")

    def earlier_publisher(self, given: str | None) -> None:
        """The last month of the program that publishes this source's records without us, if it may have; the target
        begins with the next.

        Raises `UsageError` if the target would be sent another kind of record: the service would add up both.
        """
        from formats.registry import FORMATS  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415

        if not self.has_target:
            return
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
        question = f"Last month that {program} sent as a whole, such as 2026-10 ({_NEVER}: none)"
        ask(question, "--earlier-publisher", given, accept, _NEVER)
        if answers:
            self._setter(target, "since")(max(answers[0], str(target.get("since", ""))))

    def source_needs(self, zone: str | None, benchmark: str | None, since: str | None) -> None:
        """What the target, or closing months, needs and the source lacks."""
        from formats.registry import FORMATS  # noqa: PLC0415
        from publisher.cli import discovery  # noqa: PLC0415
        from publisher.config.schema import SOURCE_KINDS  # noqa: PLC0415

        (source,) = self.tables["sources"].values()
        kind = SOURCE_KINDS.get(source["type"])
        form = next((FORMATS[target["records"]] for target in self.tables.get("targets", {}).values()), None)
        runs_program = kind is not None and kind.program and _is_program(Path(source.get("path", "")))
        if zone is not None or (self._asks and kind is not None and kind.writes_local_time and not runs_program):
            question = "Time zone in which the batch system writes its logs, such as Europe/Oslo"
            ask(question, "--timezone", zone, self._setter(source, "timezone"), discovery.time_zone(os.environ))
        scored = (
            form is None
            or not form.needs_benchmark
            or (kind is not None and kind.has_scores and ("path" not in source or _has_scores(Path(source["path"]))))
        )
        if benchmark is not None or not scored:
            question = "Benchmark and its score of one core, such as HEPscore23:14.2"
            accept = self._setter(source, "benchmark", benchmark_of)
            self._ask_if_known(question, benchmark, accept, "--benchmark", "benchmark", "its jobs are held")
        if since is not None or (
            kind is not None
            and not kind.knows_first_day
            and (form is None or form.is_snapshot or form.file_of is not None)
        ):
            question = "Day from which on the logs contain every job, such as 2026-10-01"
            accept = self._setter(source, "complete_since")
            otherwise = "no month is sent" if self.has_target else "no month can be closed"
            self._ask_if_known(question, since, accept, "--complete-since", "complete_since", otherwise)

    def _ask_if_known(
        self, question: str, given: str | None, accept: Callable[[str], None], option: str, key: str, otherwise: str
    ) -> None:
        """Ask for what may be unknown, if the person is asked at all; report it if it stays unknown."""
        answers: list[str] = []

        def accept_or_note(answer: str) -> None:
            if answer != UNKNOWN:
                accept(answer)
            answers.append(answer)

        if given is not None or self._asks:
            ask(f"{question} ({UNKNOWN} if unknown)", option, given, accept_or_note, UNKNOWN)
        if answers in ([], [UNKNOWN]):
            self._report(f"`{key}` of the source is not set ({option}): {otherwise} until it is")

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

    def target(
        self, kind: str | None, place: str | None, more: Mapping[str, str | None], own: Mapping[str, str]
    ) -> None:
        """One target, named after its kind. `more` and `own`: further keys that are given, the latter by `--set`."""
        from publisher.config.schema import TARGET_KINDS  # noqa: PLC0415

        offered = [*(name for name, each in TARGET_KINDS.items() if each.is_offered), _NO_TARGET]
        chosen: list[str] = []

        def accept_kind(answer: str) -> None:
            if answer not in offered:
                near = did_you_mean(answer, offered)
                raise UsageError(f"init does not know the kind of target {answer!r}; known: {', '.join(offered)}{near}")
            chosen.append(answer)

        ask(f"Kind of the target ({', '.join(offered)})", "--target", kind, accept_kind, offered[0])
        (name,) = chosen
        if name == _NO_TARGET:
            if place is not None or own or any(more.values()):
                raise UsageError(f"--target {_NO_TARGET} has no other answers about a target")
            return
        records = TARGET_KINDS[name].settings.model_fields["records"].default
        table: dict[str, Any] = {"type": name, "records": records}
        self.tables["targets"] = {name: table}
        self._own_keys(table, TARGET_KINDS[name].settings, own)
        self._place(place)
        for key, given in more.items():
            if given is not None or (place is None and key in TARGET_KINDS[name].asked):
                self._ask_of_target(table, key, given)

    def _own_keys(self, table: dict[str, Any], settings: type[Any], given: Mapping[str, str]) -> None:
        """The keys beside its place that the kind of target needs, and others that are given. Raises `UsageError`."""
        from publisher.config.problems import wrong_value  # noqa: PLC0415

        fields = settings.model_fields
        if unknown := [key for key in given if key not in fields or key in _ASKED_APART]:
            possible = [key for key in fields if key not in _ASKED_APART]
            raise UsageError(f"--set: {unknown_name('key', unknown[0], possible)}")
        needed = [key for key, field in fields.items() if field.is_required() and key not in _ASKED_APART]
        for key in dict.fromkeys((*needed, *given)):

            def accept(answer: str, key: str = key) -> None:
                if (why := wrong_value(fields[key], answer)) is not None:
                    raise UsageError(f"{key} = {answer!r}: {why}")
                table[key] = answer

            ask(str(fields[key].description).rstrip("."), f"--set {key}=TEXT", given.get(key), accept)

    @property
    def has_target(self) -> bool:
        """Whether anything is sent: not by a site that only makes reports."""
        return "targets" in self.tables

    def token(self, given: str | None) -> None:
        """The file of the token, if the service may want one."""
        from publisher.config.schema import TARGET_KINDS  # noqa: PLC0415

        if not self.has_target:
            return
        ((name, table),) = self.tables["targets"].items()
        if given is None and (not self._asks or not TARGET_KINDS[name].sends_token):
            return

        def accept(answer: str) -> None:
            table.pop("credentials", None)
            if answer != UNKNOWN:
                path = {"token_file": str(Path(answer).expanduser().absolute())}
                self._setter(table, "credentials", lambda _: path)(answer)

        def again() -> None:
            ask(f"File with the token for the service ({UNKNOWN}: none)", "--token-file", given, accept, UNKNOWN)

        again()
        passed = self._try_until_confirmed("token", lambda: _token(self._config()), again if given is None else None)
        self._tests_service = passed

    def _place(self, given: str | None) -> None:
        """The URL or the folder of the target."""
        from publisher.config.schema import TARGET_KINDS  # noqa: PLC0415
        from publisher.config.store_url import is_url  # noqa: PLC0415

        ((name, table),) = self.tables["targets"].items()
        is_folder = "path" in TARGET_KINDS[name].settings.model_fields

        def accept(answer: str) -> None:
            if is_folder and is_url(answer):
                raise UsageError(f"{answer!r} is a URL, and a target of kind {name} needs a folder")
            table.update({"path": str(path_of(answer))} if is_folder else {"url": answer})
            self._config()

        ask("Folder to write to" if is_folder else "URL of the service (https://...)", "--url", given, accept)

    def _ask_of_target(self, table: dict[str, Any], key: str, given: str | None) -> None:
        """A further key of the target, if it is not left as it is."""
        from formats.registry import names_of  # noqa: PLC0415

        offered = names_of("record", "totals", "report")
        questions: dict[str, tuple[str, str]] = {
            "records": (f"Format of records ({', '.join(offered)})", table["records"]),
            "since": (f"Send only jobs that ended since, such as 2026-10-01 ({UNKNOWN}: all)", UNKNOWN),
            "local_jobs": ("Jobs without a grid identity (send, skip)", "skip"),
        }
        question, default = questions[key]
        accept = self._setter(table, key)
        ask(
            question,
            f"--{key.replace('_', '-')}",
            given,
            lambda answer: None if answer == UNKNOWN else accept(answer),
            default,
        )

    def credentials(
        self, certificate: Path | None, key: Path | None, authorities: Path | None, *, asks_place: bool
    ) -> None:
        """The certificate and the trusted authorities, if the target needs them, which one with a token, or without TLS
        on this host, does not; then the service is tested.

        Raises `UsageError` if they were answered from a pipe and cannot be used.
        """
        from publisher.cli.discovery import GRID_SECURITY, readable  # noqa: PLC0415

        if not self.has_target:
            return
        config = self._config()
        (target,) = config.targets.values()
        if certificate is None and not target.signs:
            if "url" not in type(target).model_fields:
                return
            if target.credentials is not None or str(getattr(target, "url", "")).startswith("http://"):
                self._try_service(asks_place=asks_place)
                return

        def ask() -> None:
            chosen = ask_path(
                "Certificate (PEM)", "--certificate", certificate, readable(GRID_SECURITY / "hostcert.pem")
            )
            given = {
                "certificate": chosen,
                "key": ask_path(
                    "Its key (PEM)",
                    "--key",
                    key,
                    readable(GRID_SECURITY / "hostkey.pem"),
                    check=lambda path: _require_own_key(chosen, path),
                ),
                "ca_directory": ask_path(
                    "Folder of trusted authorities",
                    "--ca-directory",
                    authorities,
                    readable(GRID_SECURITY / "certificates"),
                ),
            }
            self.tables["credentials"] = {name: str(path) for name, path in given.items()}

        ask()
        asked = None in {certificate, key, authorities}
        passed = self._try_until_confirmed("certificate", lambda: _certificate(self._config()), ask if asked else None)
        if asked and not passed and not sys.stdin.isatty():
            raise UsageError("the certificate cannot be used", hint="Correct the answers; nothing was written")
        if passed:
            self._try_service(asks_place=asks_place)

    def _try_service(self, *, asks_place: bool) -> None:
        if not self._tests_service:  # it would refuse the token, which is reported
            return
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

        def accept(answer: str) -> None:
            url = store_url(answer, Path.cwd()) if is_url(answer) else f"sqlite:///{path_of(answer)}"
            self.tables["store"]["url"] = url
            self._config()

        def again() -> None:
            ask("The store: a file, or postgresql://USER@HOST/DATABASE", "--store", given, accept, _STORE)

        again()
        self._try_until_confirmed(
            "store", lambda: _store(self.tables["store"]["url"]), again if given is None else None
        )

    def _config(self) -> Config:
        """The answers so far, parsed. Raises `UsageError`, which does not name the file: nothing is in it yet."""
        from publisher.config import file as config_file  # noqa: PLC0415

        try:
            return config_file.parse(self.tables, self._path)
        except ConfigError as error:
            raise UsageError(error.message.removeprefix(f"{self._path}: "), hint=error.hint) from None

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


def _is_program(path: Path) -> bool:
    """Whether it is run, so that it says its times as it is asked for."""
    return path.is_file() and os.access(path, os.X_OK)


def _certificate(config: Config) -> Iterator[Finding]:
    from publisher.finding import Finding  # noqa: PLC0415
    from publisher.security.credentials import load_credentials  # noqa: PLC0415
    from publisher.status.check_host import trust  # noqa: PLC0415

    given = config.credentials
    assert given.certificate is not None  # answered just now
    assert given.key is not None
    assert given.ca_directory is not None
    load_credentials(given.certificate, given.key, now_s=time.time())
    if given.ca_directory.is_dir():
        yield from trust(config, int(time.time()))
    else:
        yield Finding("authorities", "red", f"{given.ca_directory} is not a folder of trusted authorities")


def _require_own_key(certificate: Path, key: Path) -> None:
    """Raises `UsageError` for the key of another certificate: nobody can use that anyway. What else is wrong with
    either is reported when the authorities are known too."""
    from publisher.security.credentials import load_credentials  # noqa: PLC0415

    try:
        load_credentials(certificate, key, now_s=time.time())
    except KeyMismatchError as error:
        raise UsageError(error.message, hint=error.hint) from None
    except CredentialError:
        return


def _token(config: Config) -> list[Finding]:
    from publisher.targets.identity import Identity, TargetContext  # noqa: PLC0415

    (target,) = config.targets.values()
    identity = Identity(target.credentials, TargetContext(config.credentials, time.time))
    source = identity.authorisation(timeout_s=target.timeout, proxy=None)
    if source is not None:
        source.header()
    return []


def _store(url: str) -> list[Finding]:
    """Connect to the store, or to the server; the first collect creates what is missing."""
    from publisher.config.schema import StoreSettings  # noqa: PLC0415
    from publisher.status.check_host import new_store  # noqa: PLC0415
    from publisher.store.dialect import reach  # noqa: PLC0415

    try:
        reach(url, StoreSettings().busy_timeout)
    except StoreMissingError:
        return list(new_store(url))
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

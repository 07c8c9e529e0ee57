"""run: collect and publish, once or repeatedly; with log, metrics, mail, and service manager."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import msgspec
import typer

from publisher import subprocess_worker
from publisher.cli import exit_code, options, signals
from publisher.cli.collect_cmd import collected_json, say_if_new_store, say_measured, say_problems, show_collected
from publisher.cli.output import OutputClosedError, flush, json_object, say
from publisher.cli.publish_cmd import delivered_json, error_json, said, show_delivered, status_after
from publisher.cli.recorded import noted, recorded
from publisher.cli.session import session
from publisher.errors import (
    ConfigError,
    CredentialError,
    MissingExtraError,
    OutputError,
    PublisherError,
    SourceError,
    StoreError,
    TargetError,
    UsageError,
)
from publisher.events import several
from publisher.text import counted, iso

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.events import Event
    from publisher.observe.allocations import AllocationUse
    from publisher.observe.log import LogFile
    from publisher.observe.metrics import StatusCollector
    from publisher.observe.systemd import ServiceManager
    from publisher.publish.circuit import Circuits
    from publisher.reconcile.schedule import ReconcileResult
    from publisher.recording import Recording
    from publisher.status.status import Status
    from publisher.store.admin.rolling_check import PartChecked

_MOST_NAMED: Final = 3
_SHORTEST_PAUSE_S: Final = 1.0
_LONGEST_BACKOFF: Final = 8
"""If every run fails, the pause between runs grows to at most this many times `--every`."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Keep running, and repeat after this time: 1h, 30m."),
    ] = None,
) -> None:
    """Collect from all sources, publish to all targets, and reconcile when due; then exit or wait."""
    from publisher.observe.systemd import ServiceManager  # noqa: PLC0415

    manager = ServiceManager()
    if every is None:
        with _watch(manager, stays=False) as watch:
            subprocess_worker.tune_memory()
            raise typer.Exit(_once(watch))
    subprocess_worker.tune_memory()
    _stay(_pause_s(every), manager)


def _pause_s(every: str) -> float:
    """Raises `UsageError` for a pause of less than a second."""
    pause_s = options.seconds(every, "--every")
    if pause_s < _SHORTEST_PAUSE_S:
        raise UsageError("--every must be at least 1 second", hint="For example 1h")
    return pause_s


def _watch(manager: ServiceManager, *, stays: bool) -> Watch:
    return Watch(session.publisher(), manager, stays=stays)


def _once(watch: Watch, circuits: Circuits | None = None) -> int:
    watch.begin()
    code = 1
    stopped: PublisherError | None = None
    try:
        with recorded(watch.publisher, "run") as recording:
            code = _run(watch.publisher, recording, circuits)
            recording.exit_code = code
    except PublisherError as error:
        code, stopped = error.exit_code, error
        raise
    finally:
        watch.end(code, stopped)
    return code


def _run(publisher: Publisher, recording: Recording, circuits: Circuits | None) -> int:
    result = publisher.run(circuits)
    say_if_new_store(publisher)
    status, problem = status_after(publisher)
    problem = result.problem or problem
    contexts = publisher.context_errors()
    failed = [path for path, item in result.measured.items() if item.error is not None]
    code = exit_code.of_run(
        result.sources.values(), result.targets, status, busy=result.busy, contexts=[*contexts, *failed],
        with_evidence=True,
    )  # fmt: skip
    if result.checked is not None and _say_damage(result.checked):
        code = exit_code.STORE
    if result.busy:
        say("another run is collecting")
    say_problems(result.sources)
    say_measured(result.measured)
    recording.done = {
        "sources": collected_json(result.sources),
        "targets": delivered_json(result.targets, status),
        "reconciled": result.reconciled,
        "checked": _checked_json(result.checked),
        **error_json(problem),
    }
    if session.json:
        json_object(recording.done)
    elif not session.quiet:
        show_collected(result.sources)
        if result.targets:
            show_delivered(result.targets, status)
        else:
            say("no target is configured: nothing is sent")
        _show_reconciled(result.reconciled)
        if status is not None:
            _show_contradicted(status, result.reconciled)
    noted(recording, contexts, result.measured)
    return said(problem, code)


def _checked_json(checked: PartChecked | None) -> dict[str, Any]:
    if checked is None:
        return {"damage": [], "damaged_jobs": 0, "error": None}
    error = None if checked.problem is None else str(checked.problem)
    return {"damage": checked.new, "damaged_jobs": checked.damaged_runs, "error": error}


def _say_damage(checked: PartChecked) -> bool:
    """Say what is damaged in the store; whether some of it was not known before, or it could not be checked."""
    if checked.problem is not None:
        say(f"the store could not be checked: {checked.problem}")
    for text in checked.new[:_MOST_NAMED]:
        say(text)
    if checked.new:
        problem = f"the store is damaged ({len(checked.new):,} found by this run)"
        say(f"{problem}: `usage-publisher store check` shows all of it, and says what to do")
    elif checked.damaged_runs:
        runs = counted(checked.damaged_runs, "damaged job")
        say(f"the store has {runs}: `usage-publisher store check` says what to do")
    return bool(checked.new) or checked.problem is not None


def _show_reconciled(found: Mapping[str, ReconcileResult]) -> None:
    from publisher.status.run_summary import reconciled_findings  # noqa: PLC0415
    from publisher.store.history import ReconciledDone  # noqa: PLC0415

    for name, one in found.items():
        if one.problem is None:
            say(f"{name}: {one.confirmed:,} of {one.accepted:,} accepted jobs are confirmed by the service's evidence")
        for finding in reconciled_findings(name, msgspec.convert(one, ReconciledDone, from_attributes=True)):
            say(finding)


def _show_contradicted(status: Status, reconciled: Collection[str]) -> None:
    """What the evidence of the services contradicts, until a reconciliation finds it settled."""
    from publisher.status.status import reconcile_command  # noqa: PLC0415

    for name, target in status.targets.items():
        if not target.is_contradicted:
            continue
        command = reconcile_command(name, target)
        if (target.missing or target.differing) and name not in reconciled:
            differences = f"{target.missing:,} missing, {target.differing:,} with other values"
            say(f"{name}: at the service when last compared, {iso(target.reconciled_at)}: {differences}: {command}")
        if target.confirmation_overdue:
            say(f"{name}: accepted jobs are unconfirmed for {target.unconfirmed_days} days: {command}")


def _stay(pause_s: float, manager: ServiceManager) -> None:
    signals.watch_for_reload()
    watch = _watch(manager, stays=True)
    try:
        while True:
            manager.ready()
            if _repeat(watch, pause_s, manager) == "stop":
                manager.stopping()
                return
            manager.reloading()
            watch = _again(watch, manager)
    finally:
        watch.close()


def _again(watch: Watch, manager: ServiceManager) -> Watch:
    """A watch with the configuration read again; if it cannot be used, the previous watch."""
    try:
        session.publisher().close()
    except ConfigError as error:
        say(*(f"usage-publisher: {line}" for line in error.lines), "The previous configuration stays in use.")
        return watch
    say("The configuration was read again.")
    watch.close()  # the new one may need its port
    return _watch(manager, stays=True)


def _repeat(watch: Watch, pause_s: float, manager: ServiceManager) -> signals.Woken:
    """Repeat runs until a signal asks to stop or to read the configuration again."""
    from publisher.publish.circuit import Circuits  # noqa: PLC0415

    circuits = Circuits()
    failures = 0
    while True:
        try:
            code = _once(watch, circuits)
            flush()
            failures = 0
            manager.status(f"last run ended with {code}")
        except OutputClosedError:  # nobody reads the output any more; the work goes on
            failures = 0
        except OutputError as error:  # likewise
            say(f"usage-publisher: {error}")
            failures = 0
        except (StoreError, SourceError, TargetError, CredentialError) as error:
            say(f"usage-publisher: {error}")
            manager.status(str(error))
            failures += 1
        factor = min(2 ** max(0, failures - 1), _LONGEST_BACKOFF)
        seconds = pause_s * factor * (1 + random.random() / 20)  # noqa: S311 - spreads sites over the hour
        gc.collect()  # what a run leaves in cycles would stay until the next one
        woken = signals.rest(seconds, manager.alive_every_s, manager.alive)
        if woken != "time":
            return woken


class Watch:
    """Log, metrics, mail, and service manager of a publisher's runs: `publisher` is the one to run.

    None of them stops or changes a run: a problem with them is a message. Use it in a `with` statement.
    """

    def __init__(self, publisher: Publisher, manager: ServiceManager, *, stays: bool) -> None:
        """Raises `ConfigError` where the log or the port for metrics cannot be opened."""
        config = publisher.config
        observers = [publisher.tools.observer, self._alive]
        self._manager = manager
        self._log: LogFile | None = None
        self._watched: StatusCollector | None = None
        self._settings = config
        self._unusable: type[StoreError] | None = None
        """The error of the store of which a mail was sent: the store cannot remember that one."""
        if config.log.file is not None:
            from publisher.observe.log import LogFile  # noqa: PLC0415

            self._log = LogFile(config.log, config.log.file, lambda problem: say(f"usage-publisher: {problem}"))
            observers.append(self._log)
        self._close_server: Callable[[], object] = lambda: None
        if config.metrics.textfile is None and (config.metrics.listen is None or not stays):
            self.publisher = publisher.observed_by(several(observers))
            return
        from publisher.observe.metrics import MetricsObserver, StatusCollector, serve  # noqa: PLC0415

        tally = MetricsObserver()
        self.publisher = publisher.observed_by(several([*observers, tally]))
        self._watched = StatusCollector(self.publisher.status, tally.targets, publisher.tools.clock)
        if stays and config.metrics.listen is not None:
            self._close_server = serve(self._watched, config.metrics.listen, self._warn, config.metrics.names)

    def _alive(self, _event: Event) -> None:
        self._manager.alive()

    def _warn(self, problem: str) -> None:
        say(f"usage-publisher: {problem}")
        if self._log is not None:
            self._log.warning(problem)

    def begin(self) -> None:
        """A run begins."""
        if self._log is not None:
            self._log.begin()

    def end(self, exit_code: int, stopped: PublisherError | None) -> None:
        """A run has ended: write the metrics and the log, and send mail. `stopped`: the error that ended it."""
        if self._log is not None:
            self._log.end(exit_code)
        allocations = self._allocations()
        try:
            self._write_metrics(exit_code, allocations)
        except ConfigError as error:
            say(f"usage-publisher: {error}")
        self._send_mail(allocations, stopped)

    def _allocations(self) -> list[AllocationUse]:
        """The use of allocations, if mails or metrics are to tell of it; a problem with it is a message."""
        settings = self._settings
        if not settings.has_allocations or (self._watched is None and not settings.notices.mail_to):
            return []
        try:
            return self.publisher.allocations()
        except PublisherError as error:
            problem = error
        except ImportError as error:
            missing = MissingExtraError.of(error)
            if missing is None:
                raise
            problem = missing
        say(f"usage-publisher: allocations are not watched: {problem}")
        return []

    def _write_metrics(self, exit_code: int, allocations: list[AllocationUse]) -> None:
        if self._watched is None:
            return
        from publisher.observe.metrics import write  # noqa: PLC0415

        self._watched.exit_code, self._watched.last_run = exit_code, self.publisher.tools.clock()
        self._watched.allocations = allocations
        if self._settings.metrics.textfile is not None:
            write(self._watched, self._settings.metrics.textfile)

    def _send_mail(self, allocations: list[AllocationUse], stopped: PublisherError | None) -> None:
        settings = self._settings.notices
        if not settings.mail_to:
            return
        from publisher.observe.mail import MailError, send_notices, send_unusable  # noqa: PLC0415

        publisher, site, now = self.publisher, self._settings.site.name, self.publisher.tools.clock()
        try:
            try:
                status = publisher.status(assumed=False)
                send_notices(publisher.store, settings, site, status, now, allocations, stopped)
                self._unusable = None
            except StoreError as error:
                if str(error) != str(stopped):
                    say(f"usage-publisher: {error}")
                if type(error) is not self._unusable:
                    send_unusable(settings, site, error, now)
                    self._unusable = type(error)
        except MailError as error:
            say(f"usage-publisher: {error}")

    def close(self) -> None:
        """Close the port, the store, and the log."""
        self._close_server()
        self.publisher.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

"""What watches a run: the log, the numbers for Prometheus, notices by mail, the service manager.

None of them stops a run or changes what it does: trouble with them is said, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from publisher.cli.output import say
from publisher.errors import ConfigError, StoreError
from publisher.events import several
from publisher.observe.metrics import MetricsObserver

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.events import Event
    from publisher.observe.log import LogFile
    from publisher.observe.metrics import StatusCollector
    from publisher.observe.systemd import ServiceManager


class Watch:
    """Watches the runs of one publisher. Use it in a `with` statement; `publisher` is the one to run."""

    def __init__(self, publisher: Publisher, manager: ServiceManager, *, stays: bool) -> None:
        """Raises `ConfigError` where the log or the port for metrics cannot be had."""
        config = publisher.config
        self._manager = manager
        self._tally = MetricsObserver()
        self._log: LogFile | None = None
        self._watched: StatusCollector | None = None
        self._settings = config
        if config.log.file is not None:
            from publisher.observe.log import LogFile  # noqa: PLC0415

            self._log = LogFile(config.log, config.log.file, lambda problem: say(f"usage-publisher: {problem}"))
        logged = [self._log] if self._log is not None else []
        self.publisher = publisher.observed_by(several([publisher.tools.observer, self._tally, self._alive, *logged]))
        self._close_server: Callable[[], object] = lambda: None
        if config.metrics.textfile is not None or (stays and config.metrics.listen is not None):
            from publisher.observe.metrics import StatusCollector, serve  # noqa: PLC0415

            self._watched = StatusCollector(self.publisher.status, self._tally.targets, publisher.tools.clock)
            if stays and config.metrics.listen is not None:
                self._close_server = serve(self._watched, config.metrics.listen, self._warn)

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

    def end(self, exit_code: int) -> None:
        """A run has ended: write the numbers, tell the log and those who want a mail."""
        if self._log is not None:
            self._log.end(exit_code)
        try:
            self._write_numbers(exit_code)
        except ConfigError as error:
            say(f"usage-publisher: {error}")
        self._tell_people()

    def _write_numbers(self, exit_code: int) -> None:
        if self._watched is None:
            return
        from publisher.observe.metrics import write  # noqa: PLC0415

        self._watched.exit_code, self._watched.last_run = exit_code, self.publisher.tools.clock()
        if self._settings.metrics.textfile is not None:
            write(self._watched, self._settings.metrics.textfile)

    def _tell_people(self) -> None:
        settings = self._settings.notices
        if not settings.mail_to:
            return
        from publisher.observe.mail import MailError, send_notices  # noqa: PLC0415

        publisher = self.publisher
        try:
            send_notices(
                publisher.store,
                settings,
                self._settings.site.name,
                publisher.status(assumed=False),
                publisher.tools.clock(),
            )
        except (MailError, StoreError) as error:
            say(f"usage-publisher: {error}")

    def close(self) -> None:
        """Give back the port, the store and the log."""
        self._close_server()
        self.publisher.close()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

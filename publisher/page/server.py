"""The server: its settings are checked and its port bound before it is announced; its store is read-only."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

import uvicorn
from cryptography import x509
from starlette.types import ASGIApp

from publisher.api import Publisher
from publisher.config.operation import Serve
from publisher.config.schema import Config
from publisher.errors import PublisherError, StoreMissingError, UsageError
from publisher.page.app import PageContent, application
from publisher.page.auth import People, Person, Sessions
from publisher.page.middleware import Proxies, ProxyMiddleware, TimeoutMiddleware
from publisher.report.view_kind import VIEW_KINDS, Need
from publisher.security.connections import Listener, bound_socket, is_loopback
from publisher.security.credentials import load_certificates, load_credentials
from publisher.store import registry
from publisher.store.database import open_store

if TYPE_CHECKING:
    from publisher.page.job_pages import JobPages
    from publisher.page.report_pages import ReportPages
    from publisher.report.runs import ReportContext

_MOST_CONNECTIONS: Final = 200
_MOST_OF_ADDRESS: Final = 32
"""A browser opens six; several people may share an address."""
WAIT_S: Final = 10.0
"""A connection on which no whole request arrived for longer is closed: in a TLS handshake, a header, or between
requests."""
_STOP_S: Final = 5
_BACKLOG: Final = 32
"""Connections accepted before others are looked after: those that are to close are closed by then."""


class PageServer:
    """The page of a site at a bound address. `say` writes to the terminal."""

    def __init__(
        self, publisher: Publisher, settings: Serve, say: Callable[[str], None], *, wait_s: float = WAIT_S
    ) -> None:
        """Check the settings and bind. Raises `UsageError`, `CredentialError` and `PublisherError`."""
        people = People(settings.tokens) if settings.tokens is not None else None
        tls = _tls(settings, publisher.tools.clock())
        _require_private(settings, people, tls)
        proxies = Proxies(settings.proxies)
        self._listener = Listener(
            _bound(settings.host, settings.port), most=_MOST_CONNECTIONS, most_of_address=_MOST_OF_ADDRESS,
            wait_s=wait_s, is_proxy=proxies.include,
        )  # fmt: skip
        self._tls = tls
        self._stopping = publisher.tools.stopping
        names = (settings.host, *settings.names, *(_names_of(tls[0]) if tls else ()))
        self._reports = _SiteReports(publisher, say)
        site = PageContent(
            publisher=publisher, reports=self._reports.pages, jobs=self._reports.jobs,
            record_log_in=partial(_note_log_in, publisher), say=say, people=people,
            sessions=Sessions(settings.session, publisher.tools.clock), offered=self._reports.offered,
        )  # fmt: skip
        pages = application(site, names)
        self._app: ASGIApp = TimeoutMiddleware(ProxyMiddleware(pages, proxies), self._listener, wait_s)

    @property
    def url(self) -> str:
        """The URL of the page."""
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{shown}:{port}/"

    def run(self) -> None:
        """Serve until interrupted."""
        certificate, key = self._tls or (None, None)
        config = uvicorn.Config(
            self._app, loop="asyncio", http="h11", lifespan="off", ws="none", access_log=False, log_config=None,
            server_header=False, proxy_headers=False, backlog=_BACKLOG, timeout_keep_alive=_STOP_S,
            timeout_graceful_shutdown=_STOP_S, ssl_certfile=certificate, ssl_keyfile=key,
        )  # fmt: skip
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        with suppress(PublisherError, ModuleNotFoundError):  # the page shows it
            self._reports.pages().has_jobs()
        try:
            _UvicornServer(config, self._listener, self._stopping).run(sockets=[self._listener])
        finally:
            self._listener.close()


class _UvicornServer(uvicorn.Server):
    """Closes connections that wait too long, and stops also for a signal that came before its handler was set."""

    def __init__(self, config: uvicorn.Config, listener: Listener, stopping: Callable[[], bool]) -> None:
        super().__init__(config)
        self._listener = listener
        self._stopping = stopping

    async def on_tick(self, counter: int) -> bool:
        """Close overdue connections, several times a second. True to stop."""
        self._listener.drop_overdue()
        return await super().on_tick(counter) or self._stopping()


class _SiteReports:
    """The pages of reports and of jobs of a site."""

    def __init__(self, publisher: Publisher, say: Callable[[str], None]) -> None:
        self._publisher = publisher
        self._say = say
        self._opening = Lock()
        self._pages: ReportPages | None = None
        self._jobs: JobPages | None = None

    def pages(self) -> ReportPages:
        """The report pages. Raises `ModuleNotFoundError` if NumPy is not installed."""
        if self._pages is None:
            from publisher.page.report_pages import ReportPages  # noqa: PLC0415 - loads NumPy

            self._pages = ReportPages(self._context, self._say, self._publisher.tools.clock)
        return self._pages

    def jobs(self) -> JobPages:
        """The pages of jobs. Raises `ModuleNotFoundError` if NumPy is not installed."""
        if self._jobs is None:
            from publisher.page.job_pages import JobPages  # noqa: PLC0415 - loads NumPy

            self._jobs = JobPages(self._publisher, self._context)
        return self._jobs

    def offered(self) -> Collection[str]:
        """The views that have something to show: none before the first collect."""
        try:
            return offered_views(self._publisher.config) if self.pages().has_jobs() else ()
        except (PublisherError, ModuleNotFoundError):  # pages of views show it
            return ()

    def _context(self) -> ReportContext:
        """Of now. Raises `StoreMissingError`."""
        from publisher.report.runs import ReportContext  # noqa: PLC0415 - loads NumPy

        with self._opening:
            return ReportContext(self._publisher.store, self._publisher.config, self._publisher.tools.clock())


def offered_views(config: Config) -> frozenset[str]:
    """The views for which the configuration has what they need."""
    sources = config.sources.values()
    has: dict[Need, bool] = {
        "allocations": config.has_allocations,
        "prices": bool(config.charges.prices or config.charges.adjustments),
        "samples": any(source.stat_file for source in sources),
        "events": any(
            source.kind.has_events or not source.kind.factory for source in sources
        ),  # add-ons may have events
    }
    shown = (kind for kind in VIEW_KINDS.values() if kind.roles)
    return frozenset(kind.name for kind in shown if kind.needs is None or has[kind.needs])


def _note_log_in(publisher: Publisher, person: Person, address: str) -> None:
    """Record a log-in in the audit log: all that the server writes, through a connection of its own."""
    settings = publisher.config.store
    try:
        store = open_store(settings.url, settings.busy_timeout, create=False)
    except StoreMissingError:
        return  # no data can be seen yet
    try:
        with store.write() as connection:
            detail = f"to the page, as {person.role} of {person.group}, from {address}"
            registry.record_action(connection, registry.LOG_IN, person.name, detail, publisher.tools.clock())
    finally:
        store.close()


def _require_private(settings: Serve, people: People | None, tls: tuple[Path, Path] | None) -> None:
    if is_loopback(settings.host):
        return
    missing = [*(() if tls else ("certificate and key",)), *(() if people else ("tokens",))]
    if missing:
        raise UsageError(
            f"other hosts can reach {settings.host}, and [serve] has no {' and no '.join(missing)}",
            hint="Set them, or listen on 127.0.0.1 and put a proxy with TLS before it",
        )


def _tls(settings: Serve, now: int) -> tuple[Path, Path] | None:
    if settings.certificate is None or settings.key is None:
        return None
    load_credentials(settings.certificate, settings.key, now_s=now)
    return settings.certificate, settings.key


def _names_of(certificate: Path) -> list[str]:
    """The DNS names in a certificate: browsers connect under no other name."""
    extensions = load_certificates(certificate)[0].extensions
    try:
        alternative = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return alternative.get_values_for_type(x509.DNSName)


def _bound(host: str, port: int) -> socket.socket:
    try:
        return bound_socket(host, port)  # connections wait until the server runs
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            hint="Choose another address or port with --host and --port, or in [serve]",
        ) from error

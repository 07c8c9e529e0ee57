"""The application of the server: which page answers which address, and for whom.

Promises kept here: nothing is changed except the record of log-ins; nobody sees what the token file does not allow,
neither in a page nor in a plot, a table, or a message; a token is in no address and no log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from publisher.errors import ConfigError, MissingExtraError, PublisherError, StoreMissingError, UsageError
from publisher.page.addresses import (
    JOBS,
    LOGIN,
    OVERVIEW,
    login_for,
    path_of,
    query_of,
    return_address,
)
from publisher.page.auth import EVERYBODY, ROLES, STATUS, People, Person, Sessions
from publisher.page.history import MOST_RUNS, history_page, run_page
from publisher.page.html import markup
from publisher.page.middleware import SecurityMiddleware
from publisher.page.overview import (
    MOST_LISTED,
    NEED_DECISION,
    RECORD_LISTS,
    RecentUsage,
    RecordQuery,
    overview_page,
    records_page,
)
from publisher.report.view_kind import CHARGES, JOB, TOTALS, VIEW_KINDS, ViewKind
from publisher.status.records import ListedRecord
from publisher.status.status import Status
from publisher.text import instant_s

if TYPE_CHECKING:
    from publisher.api import Publisher
    from publisher.page.job_pages import JobPages
    from publisher.page.report_pages import ReportPages

_COOKIE: Final = "session"
_SECURE_COOKIE: Final = "__Host-session"
"""Over TLS. Browsers accept a cookie of this name from this host only."""
_MOST_LOGIN_BYTES: Final = 4_000
_MENU: Final = {name: kind for name, kind in VIEW_KINDS.items() if not kind.required}
"""The views of the menu: those that show something without a filter. Single jobs have pages of their own."""


class PageContent(msgspec.Struct, frozen=True, kw_only=True):
    """What the application shows, and where it records log-ins."""

    publisher: Publisher
    reports: Callable[[], ReportPages]
    """Raises `ModuleNotFoundError` if NumPy is not installed."""
    jobs: Callable[[], JobPages]
    """Raises likewise."""
    record_log_in: Callable[[Person, str], None]
    """Record who logged in, and from which address."""
    say: Callable[[str], None]
    """Report to the administrator of the server what its users should not know."""
    people: People | None
    sessions: Sessions
    offered: Callable[[], Collection[str]] = lambda: VIEW_KINDS
    """The views that have something to show, for the menu."""


def application(site: PageContent, names: tuple[str, ...]) -> SecurityMiddleware:
    """The whole application with its security rules; `names`: further names that it answers to."""
    pages = _PageHandlers(site)
    routes = [
        Route(OVERVIEW, pages.allowed(pages.overview, None)),
        Route("/records", pages.allowed(pages.records, STATUS)),
        Route("/history", pages.allowed(pages.history, STATUS)),
        Route("/history/{run_id:int}", pages.allowed(pages.run, STATUS)),
        Route(JOBS, pages.allowed(pages.jobs, JOB.name)),
        Route("/help", pages.allowed(pages.help, None)),
        Route(LOGIN, pages.login_form, methods=["GET"]),
        Route(LOGIN, pages.login, methods=["POST"]),
        Route("/logout", pages.logout, methods=["POST"]),
        Route("/statement.{form}", pages.allowed(pages.statement, CHARGES.name)),
        Route("/{view}.{form}", pages.allowed(pages.download, _known)),
        Route("/{view}", pages.allowed(pages.view, _known)),
    ]
    handlers: Mapping[Any, Any] = {
        HTTPException: pages.refused,
        PublisherError: pages.failed,
        ModuleNotFoundError: pages.not_installed,
        Exception: pages.broken,
    }
    app = Starlette(routes=routes, middleware=[Middleware(GZipMiddleware)], exception_handlers=handlers)
    return SecurityMiddleware(app, names)


class _ForbiddenError(Exception):
    """The person may not see this view."""


class _LogInError(Exception):
    """The request has no token and no session."""


class _PageHandlers:
    def __init__(self, site: PageContent) -> None:
        self._site = site

    @property
    def _name(self) -> str:
        return self._site.publisher.config.site.name

    # --- the person

    def _person(self, request: Request) -> Person:
        """The person who sent a request. Raises `_LogInError`."""
        if self._site.people is None:
            return EVERYBODY
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            by_token = self._site.people.by_token(token.strip())
            if by_token is not None:
                return by_token[1]
            raise _LogInError
        cookie = request.cookies.get(_cookie_name(request), "")
        digest = self._site.sessions.token_digest(cookie) if cookie else None
        person = self._site.people.by_digest(digest) if digest is not None else None
        if person is None:
            raise _LogInError
        return person

    def allowed(
        self, make: Callable[[Request, Person], Response], needs: str | Callable[[Request], str] | None
    ) -> Callable[[Request], Awaitable[Response]]:
        """The answer of `make` for the person, if the view that it `needs` is allowed; without a log-in, its form."""

        async def endpoint(request: Request) -> Response:
            view = needs(request) if callable(needs) else needs

            def work() -> Response:
                person = self._person(request)
                if view is not None and not person.may(view):
                    raise _ForbiddenError
                try:
                    return make(request, person)
                except StoreMissingError as error:  # nothing was collected yet
                    return _problem("Not available", str(error), 400, self._around(person, view or ""))

            try:
                return await run_in_threadpool(work)
            except _LogInError:
                if "authorization" in request.headers or request.url.path.count("."):
                    return PlainTextResponse("A token is needed.\n", 401, {"WWW-Authenticate": "Bearer"})
                return RedirectResponse(login_for(request.url.path, request.url.query), 303)
            except _ForbiddenError:
                return await self._message(request, "Not allowed", "Your group may not see this page.", 403)

        return endpoint

    # --- pages

    def overview(self, _request: Request, person: Person) -> Response:
        """The state of publishing, and recent usage; for a person who may see neither, the first view allowed."""
        landing = self._landing(person)
        if landing != OVERVIEW:
            return RedirectResponse(landing, 303)
        status = self._status() if person.may(STATUS) else None
        listed = {} if status is None else {name: self._of_list(name, status) for name in NEED_DECISION}
        return HTMLResponse(overview_page(status, self._usage(person), self._around(person, OVERVIEW), listed))

    def _status(self) -> Status:
        return self._site.publisher.status(assumed=False)

    def _of_list(self, name: str, status: Status) -> list[ListedRecord]:
        """The oldest records of a list, of the targets to which records are sent."""
        asked = RecordQuery(RECORD_LISTS[name], None, None)
        return [
            record
            for state in asked.list.states
            for target, one in asked.targets(status).items()
            if getattr(one, state.word)
            for record in self._site.publisher.listed(state, target, MOST_LISTED, None)
        ]

    def _usage(self, person: Person) -> RecentUsage | None:
        if not person.may(TOTALS.name):
            return None
        try:
            return self._site.reports().usage(person)
        except StoreMissingError as error:
            return RecentUsage(problem=str(error))
        except ModuleNotFoundError as error:
            return RecentUsage(problem=str(MissingExtraError.of(error) or error))
        except PublisherError as error:
            self._site.say(str(error))
            return RecentUsage(problem="Usage cannot be shown now. The log of the server says why.")

    def records(self, request: Request, person: Person) -> Response:
        """The records of a state, with their reasons."""
        query = query_of(request.query_params, person)
        status = self._status()
        since = _day(query.get("since", ""))
        asked = RecordQuery.parse(query, status.targets, since)
        if asked.list.name == "delivered" and since is None:
            asked = msgspec.structs.replace(asked, since=asked.last_day(status))
        listed = [
            record
            for state in asked.list.states
            for target in asked.targets(status)
            for record in self._site.publisher.listed(state, target, MOST_LISTED, asked.since)
        ]
        around = self._around(person, "records")
        return HTMLResponse(records_page(asked, status, listed, with_ids=person.may(JOB.name), around=around))

    def history(self, _request: Request, person: Person) -> Response:
        """The runs of the program."""
        history = self._site.publisher.history
        runs, total = history.newest(MOST_RUNS), history.count()
        return HTMLResponse(history_page(runs, total, self._around(person, "history")))

    def run(self, request: Request, person: Person) -> Response:
        """One run of the program."""
        run_id: int = request.path_params["run_id"]
        run, around = self._site.publisher.history.of_id(run_id), self._around(person, "history")
        if run is None:
            return _problem("Runs of the program", f"Run {run_id} is not in the history.", 404, around)
        return HTMLResponse(run_page(run, around))

    def jobs(self, request: Request, person: Person) -> Response:
        """The jobs behind a report, or one job with its deliveries."""
        around = self._around(person, "jobs")
        return self._site.jobs().page(query_of(request.query_params, person), person, around)

    def view(self, request: Request, person: Person) -> Response:
        """A view, with its form."""
        view, query = request.path_params["view"], query_of(request.query_params, person)
        return self._site.reports().view(view, query, person, self._around(person, view))

    def statement(self, request: Request, person: Person) -> Response:
        """The statement of a payer as a file; users get their own."""
        query = query_of(request.query_params, person)
        return self._site.reports().statement(request.path_params["form"], query, person)

    def download(self, request: Request, person: Person) -> Response:
        """A view as a plot, CSV, or JSON."""
        view, form = request.path_params["view"], request.path_params["form"]
        return self._site.reports().download(view, form, query_of(request.query_params, person), person)

    def help(self, _request: Request, person: Person) -> Response:
        """How the page is used."""
        views = [
            {"href": path_of(kind.name), "label": kind.title, "help": kind.summary} for kind in self._views(person)
        ]
        roles = ROLES if self._site.people is not None else {}
        context = {"title": "Help", "views": views, "roles": roles, "publishing": person.may(STATUS)}
        context |= {**self._around(person, "help"), "version": version_of("usage-publisher")}
        return HTMLResponse(markup("help.html", context))

    # --- log-in and log-out

    async def login_form(self, request: Request) -> Response:
        """The log-in form; for a person who is logged in, the page that was asked for."""
        back = request.query_params.get("next", "")
        try:
            person = await run_in_threadpool(self._person, request)
        except _LogInError:
            return self._login_page(None, back, 200)
        return RedirectResponse(return_address(back) or self._landing(person), 303)

    async def login(self, request: Request) -> Response:
        """Begin a session for a person with a token: its cookie is not the token."""
        _require_same_origin(request)
        form = await _form(request)
        return await run_in_threadpool(self._login, request, form.get("token", ""), form.get("next", ""))

    def _login(self, request: Request, token: str, back: str) -> Response:
        people = self._site.people
        known = people.by_token(token) if people is not None and token else None
        if known is None:
            self._site.say(f"log-in from {_address(request)} refused: the token is not known")
            return self._login_page("This token is not known. Check it, or ask the administrator for one.", back, 403)
        digest, person = known
        self._site.record_log_in(person, _address(request))
        response = RedirectResponse(return_address(back) or self._landing(person), 303)
        cookie = self._site.sessions.begin(digest)
        tls = request.url.scheme == "https"
        response.set_cookie(_cookie_name(request), cookie, path="/", secure=tls, httponly=True, samesite="strict")
        return response

    async def logout(self, request: Request) -> Response:
        """End the session."""
        _require_same_origin(request)
        self._site.sessions.end(request.cookies.get(_cookie_name(request), ""))
        response = RedirectResponse(LOGIN, 303)
        tls = request.url.scheme == "https"
        response.delete_cookie(_cookie_name(request), path="/", secure=tls, httponly=True, samesite="strict")
        return response

    def _login_page(self, problem: str | None, back: str, code: int) -> Response:
        context = {"title": "Log in", "site": self._name, "problem": problem, "next": return_address(back) or ""}
        return HTMLResponse(markup("login.html", context), code)

    # --- problems

    async def refused(self, request: Request, error: HTTPException) -> Response:
        """Errors of the address or the method."""
        texts = {404: "This page does not exist.", 405: "This page is read-only."}
        text = texts.get(error.status_code, error.detail)
        return await self._message(request, "Not possible", text, error.status_code, error.headers)

    async def failed(self, request: Request, error: PublisherError) -> Response:
        """Errors of the program that a page does not show itself."""
        if isinstance(error, UsageError) and not isinstance(error, ConfigError):
            return await self._message(request, "Not possible", str(error), 400)
        # Names of files are for the administrator of the server only.
        self._site.say(str(error))
        text = "The server cannot show this page now. The log of the server says why."
        return await self._message(request, "Not available", text, 503)

    async def not_installed(self, request: Request, error: ModuleNotFoundError) -> Response:
        """A library is missing that comes with an extra: reports need NumPy, files of plots matplotlib."""
        missing = MissingExtraError.of(error)
        if missing is None:
            raise error
        return await self._message(request, "Not installed", str(missing), 501)

    async def broken(self, request: Request, _error: Exception) -> Response:
        """A defect of the program; Starlette lets the server log it."""
        text = "The server has an internal error. The log of the server describes it."
        return await self._message(request, "Internal error", text, 500)

    async def _message(
        self, request: Request, title: str, problem: str, code: int, headers: Mapping[str, str] | None = None
    ) -> Response:
        def around() -> dict[str, Any]:
            try:
                return self._around(self._person(request), "")
            except (_LogInError, PublisherError):  # the menu is for people who are logged in
                return {"site": self._name}

        return _problem(title, problem, code, await run_in_threadpool(around), headers)

    # --- the menu

    def _views(self, person: Person) -> list[ViewKind]:
        """The views of the menu: those that a person may see and that have something to show."""
        offered = self._site.offered()
        return [kind for name, kind in _MENU.items() if name in offered and person.may(name)]

    def _landing(self, person: Person) -> str:
        """The page that a person arrives at: the overview, or the first view that the person may see."""
        if person.may(STATUS) or person.may(TOTALS.name):
            return OVERVIEW
        views = self._views(person) or [kind for name, kind in _MENU.items() if person.may(name)]
        return path_of(views[0].name) if views else JOBS if person.may(JOB.name) else "/help"

    def _around(self, person: Person, current: str) -> dict[str, Any]:
        search = person.may(JOB.name) and JOB.name in self._site.offered()
        items = [(kind.name, kind.title, path_of(kind.name)) for kind in self._views(person)]
        if self._landing(person) == OVERVIEW:
            items.insert(0, (OVERVIEW, "Overview", OVERVIEW))
        if search:
            items.append(("jobs", "Jobs", JOBS))
        items.append(("help", "Help", "/help"))
        menu = [{"label": label, "href": href, "current": name == current} for name, label, href in items]
        shown = person if person is not EVERYBODY else None
        return {"site": self._name, "menu": menu, "person": shown, "search": search}


def _known(request: Request) -> str:
    view: str = request.path_params["view"]
    if view not in VIEW_KINDS:
        raise HTTPException(404)
    return view


def _day(text: str) -> int | None:
    try:
        return instant_s(text) if text else None
    except (ValueError, OverflowError) as error:
        raise UsageError(f"since: {error}") from None


def _problem(
    title: str, problem: str, code: int, around: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Response:
    return HTMLResponse(markup("message.html", {"title": title, "problem": problem, **around}), code, headers)


def _address(request: Request) -> str:
    return request.client.host if request.client else "an unknown address"


def _cookie_name(request: Request) -> str:
    return _SECURE_COOKIE if request.url.scheme == "https" else _COOKIE


def _require_same_origin(request: Request) -> None:
    """Refuse a form of another site's page: browsers name its origin. Raises HTTPException."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise HTTPException(403, "This form was sent by a page of another site.")


async def _form(request: Request) -> dict[str, str]:
    """The values of a form that was sent, of bounded length. Raises HTTPException."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "The request is not a form.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_LOGIN_BYTES:
            raise HTTPException(413, f"The form has more than {_MOST_LOGIN_BYTES:,} bytes.")
    form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    return {name: values[0].strip() for name, values in form.items()}

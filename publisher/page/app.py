"""The server's application: which page answers which address, for whom.

Promises kept here: nothing is changed but the log of who came in; nobody sees what is not for them, neither in a page
nor in a picture, a table or a message about what there is; a token is in no address and no log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version as version_of
from threading import BoundedSemaphore
from typing import Any, Final
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

from publisher.errors import ConfigError, PublisherError, StoreMissingError, UsageError
from publisher.page import query as page_query
from publisher.page.auth import EVERYBODY, ROLES, STATUS, People, Person, Sessions
from publisher.page.html import markup, problem_page, report_page, status_page
from publisher.page.middleware import SecurityMiddleware
from publisher.page.report_cache import CachedReports
from publisher.report import output
from publisher.report.plot.draw import CONTENT_TYPES, draw
from publisher.report.plot.style import Look
from publisher.report.report import VIEWS, Report
from publisher.report.request import ReportRequest
from publisher.report.views.charges import Statements
from publisher.report.views.statements import Kind, document
from publisher.status.status import Status
from publisher.text import safe

_LABELS: Final = {"job": "Job", "load": "Load", "scarce": "Scarce resources", "waiting": "Waiting times"}
_COOKIE: Final = "session"
_SECURE_COOKIE: Final = "__Host-session"
"""Over TLS: browsers then keep it to this host, whatever another one sets."""
_MOST_LOGIN_BYTES: Final = 4_000
_AT_A_TIME: Final = 2
"""Reports and pictures that are made at a time; the rest wait."""
_PICTURE_LABELS: Final = {"ps": "PostScript", "pdf": "PDF", "png": "PNG", "svg": "SVG"}
_TEXT_LABELS: Final = {"csv": "CSV", "json": "JSON"}
_STATEMENTS: Final[dict[str, tuple[Kind, str]]] = {
    "pdf": ("pdf", "application/pdf"),
    "html": ("html", "text/html; charset=utf-8"),
    "txt": ("text", "text/plain; charset=utf-8"),
}
"""The statement of a payer, by the ending of its address: its kind, and its content type."""
_STATEMENT_LABELS: Final = {"pdf": "Statement (PDF)", "html": "Statement (HTML)", "txt": "Statement (text)"}
_TEXTS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


class PageContent(msgspec.Struct, frozen=True):
    """What the application shows: the site's name, its reports, its status, and where log-ins are recorded."""

    name: str
    reports: Callable[[], CachedReports]
    """Raises `StoreMissingError` as long as nothing was collected."""
    statements: Callable[[ReportRequest], Statements]
    """The same; and `UsageError`."""
    status: Callable[[], Status]
    record_log_in: Callable[[Person, str], None]
    """Record who logged in, and from which address."""
    say: Callable[[str], None]
    """Say to the administrator of the server what its users should not know."""
    people: People | None
    sessions: Sessions
    clock: Callable[[], int]
    views: tuple[str, ...] = tuple(VIEWS)


def application(site: PageContent, names: tuple[str, ...]) -> SecurityMiddleware:
    """The whole application, with its security rules; `names` are what it may be called."""
    pages = _Pages(site)
    routes = [
        Route("/", pages.view, name="utilization"),
        Route("/status", pages.status),
        Route("/help", pages.help),
        Route("/login", pages.login_form, methods=["GET"]),
        Route("/login", pages.login, methods=["POST"]),
        Route("/logout", pages.logout, methods=["POST"]),
        Route("/statement.{form}", pages.statement),
        Route("/{view}.{form}", pages.download),
        Route("/{view}", pages.view),
    ]
    handlers: Mapping[Any, Any] = {HTTPException: pages.refused, PublisherError: pages.failed, Exception: pages.broken}
    app = Starlette(routes=routes, middleware=[Middleware(GZipMiddleware)], exception_handlers=handlers)
    return SecurityMiddleware(app, names)


class _NotForYouError(Exception):
    """This view is not for the person who asks."""


class _LogInError(Exception):
    """It is not known who asks."""


class _Pages:
    def __init__(self, site: PageContent) -> None:
        self._site = site
        self._busy = BoundedSemaphore(_AT_A_TIME)

    # --- who asks

    def _person(self, request: Request) -> Person:
        """Who asks. Raises `_LogInError`."""
        if self._site.people is None:
            return EVERYBODY
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            known = self._site.people.by_token(token.strip())
            if known is not None:
                return known[1]
            raise _LogInError
        cookie = request.cookies.get(_cookie_name(request), "")
        digest = self._site.sessions.token_digest(cookie) if cookie else None
        person = self._site.people.by_digest(digest) if digest is not None else None
        if person is None:
            raise _LogInError
        return person

    async def _shown(self, request: Request, make: Callable[[Person], Response], needs: str | None) -> Response:
        """What `make` gives for the person who asks, if it is for them; the way in, if it is not known who asks."""

        def work() -> Response:
            person = self._person(request)
            if needs is not None and not person.may(needs):
                raise _NotForYouError
            return make(person)

        try:
            return await run_in_threadpool(work)
        except _LogInError:
            if "authorization" in request.headers or request.url.path.count("."):
                return PlainTextResponse("A token is needed.\n", 401, {"WWW-Authenticate": "Bearer"})
            return RedirectResponse("/login", 303)
        except _NotForYouError:
            return self._message("Not for you", "This is not for your group.", 403)

    # --- pages

    async def view(self, request: Request) -> Response:
        """A view, with the form that asks it."""
        view = self._known(request)
        return await self._shown(request, partial(self._view, request, view), view)

    def _view(self, request: Request, view: str, person: Person) -> Response:
        query = _query(request, person)
        now = self._site.clock()
        around = self._around(person, view) | {
            "fields": page_query.fields(view, query, now, person), "action": request.url.path,
            "measures": view == "utilization",
        }  # fmt: skip
        try:
            asked = page_query.parse(view, query, now, self._ends(), person)
            report = self._report(view, asked.request, person)
        except (UsageError, StoreMissingError) as error:
            return _page(problem_page(view, _label(view), str(error), page_query.choice(query), around), 400)
        links = [
            {"href": f"/{view}.{form}?{page_query.as_query(query)}", "label": label}
            for form, label in _TEXT_LABELS.items()
        ]
        if view == "charges" and _is_of_one_payer(report, asked.request):
            given = page_query.as_query(query)
            links += [
                {"href": f"/statement.{form}?{given}", "label": label} for form, label in _STATEMENT_LABELS.items()
            ]
        return _page(report_page(report, asked.choice, around | {"links": links, "prints": _prints(view, report)}))

    async def statement(self, request: Request) -> Response:
        """The statement of a payer as a file: users have their own."""
        form = request.path_params["form"]
        if form not in _STATEMENTS:
            raise HTTPException(404)
        return await self._shown(request, partial(self._statement, request, form), "charges")

    def _statement(self, request: Request, form: str, person: Person) -> Response:
        query = _query(request, person)
        asked = page_query.parse("charges", query, self._site.clock(), self._ends(), person).request
        with self._busy:
            made = self._site.statements(asked)
            if not asked.filters.keys() <= {made.by}:
                raise UsageError(f"a statement is of all jobs of a {made.by}", hint="Select by nothing else")
            if len(made.all) != 1:
                there = f"{len(made.all):,} payers have one" if made.all else "nobody has one for this month"
                raise UsageError(f"there is no one statement: {there}", hint=f"Fill in the {made.by}")
            kind, content_type = _STATEMENTS[form]
            content = document(made, made.all[0], kind)
        file = f"statement-{made.month}.{form}"
        return Response(content, 200, {"Content-Disposition": f'attachment; filename="{file}"'}, content_type)

    async def download(self, request: Request) -> Response:
        """A view as a picture, CSV or JSON."""
        view = self._known(request)
        form = request.path_params["form"]
        if form not in CONTENT_TYPES and form not in _TEXTS:
            raise HTTPException(404)
        return await self._shown(request, partial(self._download, request, view, form), view)

    def _download(self, request: Request, view: str, form: str, person: Person) -> Response:
        query = _query(request, person)
        asked = page_query.parse(view, query, self._site.clock(), self._ends(), person)
        report = self._report(view, asked.request, person)
        if form in _TEXTS:
            text = output.to_csv(report) if form == "csv" else output.to_json(report)
            content = text.encode("utf-8", "backslashreplace")
        else:
            content = self._picture(report, asked, form)
        kind = _TEXTS.get(form) or CONTENT_TYPES[form]
        return Response(content, 200, {"Content-Disposition": f'attachment; filename="{view}.{form}"'}, kind)

    def _picture(self, report: Report, asked: page_query.PageQuery, form: str) -> bytes:
        place = page_query.plot_number(asked.query)
        if not report.plots or place >= len(report.plots):
            raise UsageError("there is no such picture")
        choice = asked.choice
        look = Look(style=choice.style, grid=choice.grid, legend=choice.legend, note=report.site)
        with self._busy:
            return draw(
                report.plots[place], report.stop, look, form,  # type: ignore[arg-type]
                start=report.start, say=self._site.say,
            )  # fmt: skip

    async def status(self, request: Request) -> Response:
        """What was read, and what each service has."""

        def make(person: Person) -> Response:
            return _page(status_page(self._site.status(), self._around(person, STATUS)))

        return await self._shown(request, make, STATUS)

    async def help(self, request: Request) -> Response:
        """How the page is used."""

        def make(person: Person) -> Response:
            views = [{"href": _path(view), "label": _label(view), "help": VIEWS[view]} for view in self._menu(person)]
            roles = ROLES if self._site.people is not None else {}
            context = {"title": "Help", "views": views, "roles": roles, **self._around(person, "help")}
            return _page(markup("help.html", {**context, "version": version_of("usage-publisher")}))

        return await self._shown(request, make, None)

    # --- coming and going

    async def login_form(self, request: Request) -> Response:
        """The way in."""
        if await self._is_in(request):
            return RedirectResponse("/", 303)
        return self._login_page(None, 200)

    async def _is_in(self, request: Request) -> bool:
        try:
            await run_in_threadpool(self._person, request)
        except _LogInError:
            return False
        return True

    async def login(self, request: Request) -> Response:
        """Let in who has a token, with a cookie that is not the token."""
        _require_same_origin(request)
        token = await _form_value(request, "token")
        return await run_in_threadpool(self._login, request, token)

    def _login(self, request: Request, token: str) -> Response:
        people = self._site.people
        known = people.by_token(token) if people is not None and token else None
        if known is None:
            self._site.say(f"somebody from {_address(request)} tried to log in with a token that is not known")
            return self._login_page("That is not a token that is known here.", 403)
        digest, person = known
        self._site.record_log_in(person, _address(request))
        landing = "utilization" if person.may("utilization") else next(iter(self._menu(person)), STATUS)
        response = RedirectResponse(_path(landing), 303)
        cookie = self._site.sessions.begin(digest)
        tls = request.url.scheme == "https"
        response.set_cookie(_cookie_name(request), cookie, path="/", secure=tls, httponly=True, samesite="strict")
        return response

    async def logout(self, request: Request) -> Response:
        """End the session."""
        _require_same_origin(request)
        self._site.sessions.end(request.cookies.get(_cookie_name(request), ""))
        response = RedirectResponse("/login", 303)
        tls = request.url.scheme == "https"
        response.delete_cookie(_cookie_name(request), path="/", secure=tls, httponly=True, samesite="strict")
        return response

    def _login_page(self, problem: str | None, code: int) -> Response:
        return _page(markup("login.html", {"title": "Log in", "site": self._site.name, "problem": problem}), code)

    # --- problems

    async def refused(self, _request: Request, error: HTTPException) -> Response:
        """What starlette refuses."""
        said = {404: "There is no such page.", 405: "This page is read-only."}.get(error.status_code, error.detail)
        return self._message("Not here", said, error.status_code, error.headers)

    async def failed(self, _request: Request, error: PublisherError) -> Response:
        """Errors of ours that a page does not show by itself."""
        if isinstance(error, UsageError) and not isinstance(error, ConfigError):
            return self._message("That cannot be shown", str(error), 400)
        # What files and folders there are is for the administrator of the server, not for its users.
        self._site.say(str(error))
        return self._message("Not now", "The server cannot show this now; its messages say why.", 503)

    async def broken(self, _request: Request, _error: Exception) -> Response:
        """A mistake in the program; starlette lets the server log it."""
        return self._message("Not now", "Something went wrong here; the server's messages say what.", 500)

    def _message(self, title: str, problem: str, code: int, headers: Mapping[str, str] | None = None) -> Response:
        context = {"title": title, "site": self._site.name, "problem": problem}
        return _page(markup("message.html", context), code, headers)

    # --- inner

    def _known(self, request: Request) -> str:
        view: str = request.path_params.get("view", "utilization")
        if view not in self._site.views:
            raise HTTPException(404)
        return view

    def _ends(self) -> tuple[int | None, int | None]:
        return self._site.reports().known()

    def _report(self, view: str, asked: ReportRequest, person: Person) -> Report:
        with self._busy:
            report = self._site.reports().report(view, asked)
        if person.owner is not None and report.nothing:
            # What there is besides is others'.
            return msgspec.structs.replace(report, nothing="No job of yours matches.")
        return report

    def _menu(self, person: Person) -> list[str]:
        return [view for view in self._site.views if person.may(view)]

    def _around(self, person: Person, current: str) -> dict[str, Any]:
        items = [*((view, _label(view), _path(view)) for view in self._menu(person))]
        if person.may(STATUS):
            items.append((STATUS, "Publishing", "/status"))
        items.append(("help", "Help", "/help"))
        menu = [{"label": label, "href": href, "current": name == current} for name, label, href in items]
        return {"site": self._site.name, "menu": menu, "person": person if person is not EVERYBODY else None}


def _label(view: str) -> str:
    return _LABELS.get(view, view.capitalize())


def _path(view: str) -> str:
    return "/" if view == "utilization" else f"/{view}"


def _query(request: Request, person: Person) -> dict[str, str]:
    """What is asked; of whom is not asked where it can only be one."""
    names = page_query.NAMES - {"user"} if person.owner is not None else page_query.NAMES
    return {name: value.strip() for name, value in request.query_params.items() if name in names}


def _page(text: str, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), code, headers)


def _prints(view: str, report: Report) -> list[dict[str, Any]]:
    """What each picture is printed by; of the two measures of utilization, the one that is chosen is the first."""
    forms = [(f"/{view}.{form}", label) for form, label in _PICTURE_LABELS.items()]
    if len(report.plots) < 2 or view == "utilization":
        return [{"title": "", "plot": None, "forms": forms}] if report.plots else []
    return [
        {"title": safe(plot.title), "plot": place, "forms": forms} for place, plot in enumerate(report.plots, start=1)
    ]


def _is_of_one_payer(report: Report, asked: ReportRequest) -> bool:
    """Whether charges are one statement: of a payer, and all of its jobs."""
    return len(report.facts.get("totals", ())) == 1 and asked.filters.keys() <= set(report.facts["by"])


def _address(request: Request) -> str:
    return request.client.host if request.client else "an unknown address"


def _cookie_name(request: Request) -> str:
    return _SECURE_COOKIE if request.url.scheme == "https" else _COOKIE


def _require_same_origin(request: Request) -> None:
    """Refuse a form that another site's page sent: browsers say where it came from. Raises HTTPException."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise HTTPException(403, "This form was sent from elsewhere.")


async def _form_value(request: Request, name: str) -> str:
    """A value of a form that was sent, of bounded length. Raises HTTPException."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "A form is expected.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_LOGIN_BYTES:
            raise HTTPException(413, "That is too long.")
    return next(iter(parse_qs(body.decode("utf-8", "replace"), max_num_fields=10).get(name, [])), "").strip()

"""What the server answers, and to whom: without a browser, and without trusting one."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from lxml import html
from markupsafe import escape

from publisher.api import Publisher
from publisher.errors import StoreMissingError
from publisher.page import query as page_query
from publisher.page.app import PageContent, application
from publisher.page.auth import EVERYBODY, People, Person, Sessions
from publisher.page.job_pages import JobPages
from publisher.page.report_pages import ReportPages
from publisher.report.runs import ReportContext
from publisher.report.view_kind import VIEW_KINDS
from publisher.sources.base import Window
from publisher.text import moment_s
from tests.publisher.cli.program import Program
from tests.publisher.page.conftest import DAY, EVIL, JOBS, TOKENS, act_line, token_file

NOW = DAY + 30 * 86_400
MONTH = "since=2026-11-01&days=30"


class PageClient:
    """An application in this process, and what it said and noted."""

    def __init__(self, publisher: Publisher, people: People | None = None, names: tuple[str, ...] = ()) -> None:
        self.said: list[str] = []
        self.came: list[tuple[str, str]] = []
        self.now = NOW

        def context() -> ReportContext:
            return ReportContext(publisher.store, publisher.config, self.now)

        reports = ReportPages(context, self.said.append, lambda: self.now)
        self.site = PageContent(
            publisher=publisher, reports=lambda: reports, jobs=lambda: JobPages(publisher, context),
            record_log_in=self._came_in, say=self.said.append, people=people,
            sessions=Sessions(3600, lambda: self.now),
        )  # fmt: skip
        self.app = application(self.site, names)

    def _came_in(self, person: Person, address: str) -> None:
        self.came.append((person.name, address))

    def ask(self, path: str, method: str = "GET", *, base: str = "http://localhost", **rest: Any) -> httpx.Response:
        """An answer. Redirections are not followed."""

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=("192.0.2.7", 1))
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, **rest)

        return asyncio.run(asked())


@pytest.fixture(scope="module")
def publisher(month: Program) -> Iterator[Publisher]:
    with Publisher.from_file(month.config, read_only=True) as made:
        yield made


@pytest.fixture(scope="module")
def opened(publisher: Publisher) -> PageClient:
    return PageClient(publisher)


@pytest.fixture
def guarded(publisher: Publisher, tmp_path: Path) -> PageClient:
    return PageClient(publisher, People(token_file(tmp_path)))


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


# --- what is answered


def test_a_shadow_is_marked_where_the_status_is(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PageClient(publisher)
    reported = publisher.status()
    (name,) = reported.targets
    in_shadow = msgspec.structs.replace(reported.targets[name], shadow=True, last_error="no answer")
    status = msgspec.structs.replace(reported, targets={name: in_shadow, "other": reported.targets[name]})
    monkeypatch.setattr(publisher, "status", lambda **_: status)
    shown = page.ask("/").text
    assert f'{name} <span class="unit">a shadow: nothing is sent</span>' in shown
    assert f"<strong>{name}</strong>: no answer" in shown
    assert shown.count("a shadow") == 1


def test_every_answer_has_the_headers_that_restrict_browsers(opened: PageClient) -> None:
    for path in ("/", "/help", "/nosuch", f"/totals.csv?{MONTH}", "/utilization?days=x"):
        headers = opened.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
    assert "strict-transport-security" not in opened.ask("/").headers
    assert "strict-transport-security" in opened.ask("/", base="https://localhost").headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_done_but_looking(opened: PageClient, method: str) -> None:
    assert opened.ask("/", method).status_code == 405
    assert opened.ask("/totals", method).status_code == 405


@pytest.mark.parametrize(
    ("base", "code"),
    [("http://localhost:8642", 200), ("http://[::1]", 200), ("http://127.0.0.1", 200), ("http://evil.example", 421)],
)
def test_it_answers_to_its_names_alone(opened: PageClient, base: str, code: int) -> None:
    assert opened.ask("/help", base=base).status_code == code


def test_further_names_are_configured(publisher: Publisher) -> None:
    assert (
        PageClient(publisher, names=("usage.example.org",)).ask("/help", base="http://USAGE.example.org").status_code
        == 200
    )


def test_downloads_are_the_same_report(opened: PageClient) -> None:
    table = list(csv.DictReader(io.StringIO(opened.ask(f"/totals.csv?{MONTH}&by=user").text)))
    reported = json.loads(opened.ask(f"/totals.json?{MONTH}&by=user").text)
    assert {row["user"] for row in table} == {row["user"] for row in reported["totals"]}
    page = opened.ask(f"/totals?{MONTH}&by=user").text
    assert all(f">{int(row['jobs']):,}<" in page for row in table)
    for form, begins in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("ps", b"%!PS")):
        found = opened.ask(f"/utilization.{form}?{MONTH}&bin=1d&grid=1&style=bar")
        assert found.content.startswith(begins)
        assert found.headers["content-disposition"] == f'attachment; filename="utilization.{form}"'
    second = opened.ask(f"/utilization.svg?{MONTH}&bin=1d&plot=2").text
    assert "CPU, user" in second


def test_the_largest_come_first_and_the_rest_is_one_row(opened: PageClient) -> None:
    asked = f"{MONTH}&by=user&sort=jobs&top=2"
    rows = opened.ask(f"/totals.json?{asked}").json()["totals"]
    every = opened.ask(f"/totals.json?{MONTH}&by=user").json()["totals"]
    assert [row["jobs"] for row in rows[:2]] == sorted((row["jobs"] for row in every), reverse=True)[:2]
    assert rows[2]["user"] == f"others ({len(every) - 2})"
    page = opened.ask(f"/totals?{asked}").text
    assert "sort: jobs, top: 2" in page
    assert "top is not a whole number" in opened.ask(f"/totals?{MONTH}&top=0").text
    assert "nosuch" in opened.ask(f"/totals?{MONTH}&by=user&sort=nosuch").text


def test_names_of_jobs_are_escaped_everywhere(opened: PageClient) -> None:
    for path in (f"/totals?{MONTH}&by=user", f"/totals?{MONTH}&by=user&by2=queue"):
        assert EVIL not in opened.ask(path).text
        assert "&lt;script&gt;alert(" in opened.ask(path).text
    asked = opened.ask("/utilization", params={"user": EVIL, "queue": '" onfocus="alert(1)'}).text
    assert EVIL not in asked
    assert 'value="" onfocus' not in asked
    assert "<script" not in opened.ask(f"/utilization.svg?{MONTH}&bin=1d&by=user").text


@pytest.mark.parametrize("path", ["/totals", "/jobs"])
def test_a_form_sends_back_what_it_got_and_shows_it_safely(opened: PageClient, path: str) -> None:
    row = json.dumps({"words": {"user": "b\x9b"}}, ensure_ascii=False)
    text = opened.ask(path, params={"user": "a\u202e\x1b<", **({"row": row} if path == "/jobs" else {})}).text
    assert 'value="a\u202e\x1b&lt;"' in text
    assert path == "/totals" or f'value="{escape(row)}"' in text
    assert ("user: a\\u202e\\x1b&lt;" in text) == (path == "/totals")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("days=0", "days is not a whole number"),
        ("days=-1", "days is not a whole number"),
        ("since=yesterday", "since: &#39;yesterday&#39; is not a time"),
        ("since=0001-01-01&days=200000000", "days is not a whole number"),
        ("since=9999-12-30&days=9", "years 1 to 9999"),
        ("bin=1s&days=30", "a page has at most 10,000 bins"),
        ("bin=soon", "bin: must be a duration"),
        ("by=colour", "its keys are: queue, host"),
        (f"user={'x' * 1100}", "has more than 1,000 characters"),
    ],
)
def test_what_makes_no_sense_is_reported_beside_the_form(opened: PageClient, query: str, said: str) -> None:
    found = opened.ask(f"/utilization?{query}")
    assert found.status_code == 400
    assert said in found.text
    assert 'id="f-since"' in found.text


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ({"days": "7", "until": "2026-10-01"}, "2026-09-24", "2026-10-01"),
        ({"until": "2026-10-01"}, "2026-09-01", "2026-10-01"),
        ({"days": "2", "until": "2026-10-01T12:00Z"}, "2026-09-29T12:00:00Z", "2026-10-01T12:00Z"),
        ({"days": "7", "since": "2026-10-01"}, "2026-10-01", "2026-10-08"),
        ({"days": "7"}, "2026-11-25", "2026-12-02"),
    ],
)
def test_days_are_counted_from_the_bound_that_is_given(query: dict[str, str], since: str, until: str) -> None:
    """As on the command line; and the form shows the same interval."""
    now = NOW + 5
    kind = VIEW_KINDS["totals"]
    request = page_query.parse(kind, query, now, (None, None), EVERYBODY).request
    assert (request.start, request.stop) == (moment_s(since, now), moment_s(until, now))
    form = {field.name: field.value for field in page_query.fields(kind, query, now, EVERYBODY)}
    assert (form["since"], form["until"]) == (since, until)


@pytest.mark.parametrize("view", [name for name, kind in VIEW_KINDS.items() if kind.roles and not kind.needs])
def test_everything_that_a_form_offers_can_be_chosen(opened: PageClient, view: str) -> None:
    """`Compare with` was offered, and refused as unknown."""
    job = "job=7&" if VIEW_KINDS[view].required else ""
    page = html.fromstring(opened.ask(f"/{view}?{job}").text)
    chosen = {
        str(field.get("name")): str(field.get("value")) for field in page.xpath("//form[@id='ask']//input[@name]")
    }
    for field in page.xpath("//form[@id='ask']//select[@name]"):
        option = field.xpath("option/@value")[-1]
        found = opened.ask(f"/{view}", params={**chosen, str(field.get("name")): option})
        assert (found.status_code, "unknown name" in found.text) == (200, False)


def test_a_query_names_no_files(opened: PageClient) -> None:
    for query in ("archive=/etc", "stat_file=/etc/passwd"):
        found = opened.ask(f"/utilization?{MONTH}&{query}&bin=1d")
        assert found.status_code == 400
        assert "/etc" not in found.text


@pytest.mark.parametrize("path", ["/totals", "/totals.csv", "/records", "/statement.txt"])
def test_an_unknown_name_in_an_address_is_refused(opened: PageClient, path: str) -> None:
    """A report that ignores a mistyped filter shows too much."""
    found = opened.ask(f"{path}?sinse=2026-11-01")
    assert found.status_code == 400
    assert (
        "unknown name &#39;sinse&#39;; did you mean &#39;since&#39;? The known names are: account, bin, by, "
        in found.text
    )


def test_defaults_are_the_last_thirty_days_and_none_are_everything(opened: PageClient) -> None:
    default = opened.ask("/utilization.json").json()
    assert (default["since"], default["until"]) == ("2026-11-02T00:00:00Z", "2026-12-02T00:00:00Z")
    whole = opened.ask("/utilization.json?since=&days=&shown=1").json()
    assert (whole["since"], whole["until"]) == ("2026-11-01T00:00:00Z", "2026-12-02T00:00:00Z")
    assert whole["jobs"] == JOBS


def test_a_report_shows_what_was_collected_since(month: Program, tmp_path: Path) -> None:
    site = month.copy(tmp_path / "changing")
    with Publisher.from_file(site.config, read_only=True) as reading:
        looked = PageClient(reading)
        before = looked.ask(f"/totals.json?{MONTH}").json()["all"]["jobs"]
        with (site.folder / "act_file").open("a", encoding="utf-8") as log:
            log.write(act_line(JOBS + 1, "alice", DAY, 60) + "\n")
        site("collect").ok()
        assert looked.ask(f"/totals.json?{MONTH}").json()["all"]["jobs"] == before + 1


def test_without_a_store_it_says_so(month: Program, tmp_path: Path) -> None:
    with Publisher.from_file(month.config, read_only=True) as reading:
        site = PageClient(reading)

        def missing(*_: object) -> Any:
            raise StoreMissingError("there is no store", hint="`usage-publisher collect` creates it")

        reports = ReportPages(missing, site.said.append, int)
        empty = msgspec.structs.replace(site.site, reports=lambda: reports, offered=lambda: ())
        site.app = application(empty, ())
        for path in ("/", "/totals", "/totals.csv"):
            assert "there is no store" in site.ask(path).text
        assert 'href="/totals"' not in site.ask("/").text
        assert site.ask("/help").status_code == 200


# --- to whom


def test_strangers_see_nothing(guarded: PageClient) -> None:
    for path in ("/", "/totals", "/records", "/help"):
        found = guarded.ask(path)
        assert (found.status_code, found.headers["location"].partition("?")[0]) == (303, "/login")
        assert "alice" not in found.text
    for path in ("/totals.csv", "/utilization.png"):
        assert guarded.ask(path).status_code == 401
    assert guarded.ask("/totals", headers={"Authorization": "Bearer guess"}).status_code == 401
    assert guarded.ask("/totals", headers={"Authorization": "Basic YWxpY2U6"}).status_code == 401
    assert guarded.ask("/totals", headers={"Cookie": "session=guess"}).status_code == 303
    refused = guarded.ask(f"/totals?by=vo&token={TOKENS['root']}")
    assert (refused.status_code, refused.headers["location"]) == (303, "/login?next=%2Ftotals%3Fby%3Dvo")


@pytest.mark.parametrize(
    "path", ["/totals.json?by=user&", "/utilization.json?by=user&", "/totals.json?by=user&user=*&"]
)
def test_users_see_their_own_jobs_only(guarded: PageClient, path: str) -> None:
    mine = guarded.ask(f"{path}{MONTH}", headers=as_("alice")).text
    everybodys = guarded.ask(f"{path}{MONTH}", headers=as_("root")).text
    assert '"alice"' in mine
    assert "bob" in everybodys
    assert "bob" not in mine


def test_users_see_nothing_of_others(guarded: PageClient) -> None:
    hidden = guarded.ask(f"/totals?{MONTH}&queue=nosuch*&user=bob", headers=as_("alice")).text
    assert "None of your jobs match" in hidden
    assert "slow.q" not in hidden
    assert "bob" not in hidden
    assert "slow.q" in guarded.ask(f"/totals?{MONTH}&queue=nosuch*", headers=as_("root")).text


def test_a_job_is_shown_to_its_owner(publisher: Publisher, guarded: PageClient) -> None:
    whose: dict[str, str] = {}
    for known in publisher.jobs(Window(DAY, DAY + 86_400)):
        whose.setdefault(known.run.job.local_user or "", known.run.job.local_id or "")
    mine = guarded.ask(f"/job?job={whose['alice']}", headers=as_("alice")).text
    assert "local_user" in mine
    others = guarded.ask(f"/job?job={whose['bob']}", headers=as_("alice")).text
    assert "None of your jobs match" in others
    assert "local_user" not in others
    assert "local_user" in guarded.ask(f"/job?job={whose['bob']}", headers=as_("root")).text
    assert "bob" not in guarded.ask(f"/job.json?{MONTH}&job=*", headers=as_("alice")).text


def test_a_charge_is_shown_only_to_those_charged(guarded: PageClient) -> None:
    mine = guarded.ask("/charges.json?month=2026-11&by=project", headers=as_("alice")).text
    assert "alice" in mine
    assert "bob" not in mine
    assert "between us" not in mine
    assert "between us" in guarded.ask("/charges?month=2026-11", headers=as_("root")).text
    assert "between us" not in guarded.ask("/charges?month=2026-11&queue=slow*", headers=as_("root")).text


@pytest.mark.parametrize("form", ["pdf", "html", "txt"])
def test_users_print_their_own_statement(guarded: PageClient, form: str) -> None:
    """Whatever a user asks for: the statement is that of the user, and of all of the user's jobs."""
    shown = guarded.ask("/charges?month=2026-11", headers=as_("alice")).text
    link = re.search(rf'href="(/statement\.{form}\?[^"]*)"', shown)
    assert link is not None
    found = guarded.ask(link[1].replace("&amp;", "&"), headers=as_("alice"))
    assert found.status_code == 200
    assert found.headers["content-disposition"] == f'attachment; filename="statement-2026-11.{form}"'
    totals = guarded.ask("/charges.json?month=2026-11", headers=as_("alice")).json()["totals"]
    others = guarded.ask("/charges.json?month=2026-11", headers=as_("root")).json()["totals"]
    assert totals == {"alice": others["alice"]}
    if form == "pdf":
        assert found.content.startswith(b"%PDF")
    else:
        assert {"alice", totals["alice"]} <= set(re.findall(r"[\w.]+", found.text))
        assert not {"bob", "carol", "between us"} & set(re.findall(r"\w+", found.text))
    for more in ("user=bob", "by=project&project=x", "owner=bob"):
        again = guarded.ask(f"/statement.txt?month=2026-11&{more}", headers=as_("alice"))
        assert "bob" not in again.text
    partly = guarded.ask(f"/statement.{form}?month=2026-11&queue=slow*", headers=as_("alice"))
    assert (partly.status_code, "a statement contains all jobs of a user" in partly.text) == (400, True)
    assert 'href="/statement' not in guarded.ask("/charges?month=2026-11&queue=slow*", headers=as_("alice")).text


def test_who_prints_whose_statement(guarded: PageClient) -> None:
    assert guarded.ask("/statement.pdf?month=2026-11").status_code == 401
    whole = guarded.ask("/statement.txt?month=2026-11", headers=as_("root"))
    assert (whole.status_code, "a statement is for one user" in whole.text) == (400, True)
    of_bob = guarded.ask("/statement.txt?month=2026-11&user=bob", headers=as_("boss")).text
    assert "Statement number  2026-11-bob" in of_bob
    assert "between us and him" in of_bob
    shown = guarded.ask("/charges?month=2026-11", headers=as_("root")).text
    assert 'href="/statement' not in shown
    assert 'href="/statement' in guarded.ask("/charges?month=2026-11&user=bob", headers=as_("root")).text
    nobody = guarded.ask("/statement.txt?month=2026-01", headers=as_("alice"))
    assert (nobody.status_code, "nobody has one for this month" in nobody.text) == (400, True)
    assert guarded.ask("/statement.doc?month=2026-11", headers=as_("alice")).status_code == 404


def test_no_view_shows_users_what_others_used(guarded: PageClient) -> None:
    for view in ("utilization", "totals", "waiting", "paths", "charges"):
        for by in ("", "&by=user", "&by=queue"):
            for form in ("", ".json", ".csv"):
                path = f"/{view}{form}"
                found = guarded.ask(f"{path}?{MONTH}&month=2026-11{by}", headers=as_("alice")).text
                assert not {"bob", "carol", "dave"} & set(re.findall(r"\w+", found)), path


@pytest.mark.parametrize("view", [name for name, kind in VIEW_KINDS.items() if kind.roles])
def test_every_view_is_there(opened: PageClient, view: str) -> None:
    query = f"{MONTH}&month=2026-11&job={'job1' if view == 'job' else ''}"
    found = opened.ask(f"/{view}?{query}")
    if view == "load":
        assert "no source has a stat_file" in found.text
        return
    assert found.status_code == 200
    assert view == "job" or f'<a href="/{view}" aria-current="page">' in found.text
    assert opened.ask(f"/{view}.json?{query}").json()["view"] == view


def test_roles_have_their_views(guarded: PageClient) -> None:
    asked = ("/utilization", "/records", "/occupation", "/job")
    codes = {name: [guarded.ask(f"{path}?{MONTH}", headers=as_(name)).status_code for path in asked] for name in TOKENS}
    assert codes["alice"][:3] == [200, 403, 403]
    assert codes["boss"] == [200, 200, 200, 403]
    assert codes["root"][:3] == [200, 200, 200]
    menu = guarded.ask("/help", headers=as_("alice")).text
    assert "/scarce" not in menu
    assert "/totals" in menu


def test_users_see_the_allocations_of_their_jobs(guarded: PageClient) -> None:
    def names(person: str) -> list[str]:
        rows = guarded.ask("/allocations.json?user=bob", headers=as_(person)).json()["rows"]
        return [row["allocation"] for row in rows]

    assert names("alice") == ["Wonderland"]
    assert names("root") == ["Builders"]


def test_logging_in_gives_a_cookie_that_is_not_the_token(guarded: PageClient) -> None:
    found = guarded.ask("/login", "POST", data={"token": TOKENS["root"]}, base="https://localhost")
    cookie = found.headers["set-cookie"]
    assert cookie.startswith("__Host-session=")
    for word in ("HttpOnly", "Secure", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert TOKENS["root"] not in cookie
    assert guarded.came == [("root", "192.0.2.7")]
    value = cookie.partition("=")[2].partition(";")[0]
    jar = {"Cookie": f"__Host-session={value}"}
    assert guarded.ask("/records", base="https://localhost", headers=jar).status_code == 200
    guarded.now += 3600
    assert guarded.ask("/records", base="https://localhost", headers=jar).status_code == 303


def test_wrong_tokens_are_refused_and_reported_to_the_operator(guarded: PageClient) -> None:
    found = guarded.ask("/login", "POST", data={"token": "guess-guess"})
    assert found.status_code == 403
    assert "set-cookie" not in found.headers
    (said,) = guarded.said
    assert "192.0.2.7" in said
    assert "guess" not in said
    assert guarded.came == []


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ({"data": {"token": TOKENS["root"]}, "headers": {"Origin": "https://evil.example"}}, 403),
        ({"data": {"token": TOKENS["root"]}, "headers": {"Origin": "null"}}, 403),
        ({"json": {"token": TOKENS["root"]}}, 415),
        ({"data": {"token": "x" * 10_000}}, 413),
        ({"data": {}}, 415),
    ],
)
def test_only_our_own_form_logs_in(guarded: PageClient, rest: dict[str, Any], code: int) -> None:
    assert guarded.ask("/login", "POST", **rest).status_code == code
    assert guarded.came == []


def test_without_a_token_file_there_is_no_login(opened: PageClient) -> None:
    assert opened.ask("/login").headers["location"] == "/"
    assert opened.ask("/login", "POST", data={"token": "x"}).status_code == 403


def test_a_broken_token_file_gives_no_access(publisher: Publisher, tmp_path: Path) -> None:
    site = PageClient(publisher, People(token_file(tmp_path)))
    (tmp_path / "tokens.toml").chmod(0o644)
    (tmp_path / "tokens.toml").write_text("broken", encoding="utf-8")
    found = site.ask("/totals", headers=as_("root"))
    assert found.status_code == 503
    assert "tokens.toml" not in found.text
    assert "tokens.toml" in site.said[0]

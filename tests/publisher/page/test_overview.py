"""The first page and the lists of records: what each role sees, and where people arrive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from formats.rule_codes import Reason
from publisher.api import Publisher
from publisher.config.file import load
from publisher.config.sources import SOURCE_KINDS
from publisher.page.addresses import return_address
from publisher.page.app import application
from publisher.page.auth import People
from publisher.page.overview import headline, problems, tiles
from publisher.page.server import offered_views
from publisher.reason import ReasonCode
from publisher.report.view_kind import VIEW_KINDS
from publisher.status.records import ListedRecord
from publisher.status.status import Status
from publisher.store.history import ProgramRun, RunDone, SourceDone
from publisher.store.schema import State
from tests.publisher.cli.program import Program
from tests.publisher.cli.test_status_screen import SOURCE, TARGET
from tests.publisher.page.conftest import DAY, JOBS, TOKENS, token_file
from tests.publisher.page.test_app import PageClient, as_
from tests.publisher.sources.log_reading import golden_jobs
from tests.publisher.test_golden_sources import READ

HELD = "summaries-of-a-service-with-a-long-name"


@pytest.fixture(scope="module")
def publisher(states: Program) -> Iterator[Publisher]:
    with Publisher.from_file(states.config, read_only=True) as made:
        yield made


@pytest.fixture
def guarded(publisher: Publisher, tmp_path: Path) -> PageClient:
    return PageClient(publisher, People(token_file(tmp_path)))


def status(**target: object) -> Status:
    return Status(complete=True, sources={"ce1": SOURCE}, targets={"neic": msgspec.structs.replace(TARGET, **target)})


# --- the tiles


def test_a_tile_has_the_number_of_its_list(publisher: Publisher) -> None:
    page = PageClient(publisher)
    for name, href, number in re.findall(
        r'href="(/records\?[^"]*)"><span class="label">(\w+)</span> <span class="figure">([\d,]+)<', page.ask("/").text
    ):
        listed = page.ask(unescape(name)).text
        assert f"<h1>{href} records</h1>" in listed
        assert (number == "0") == (f"No record is {href.lower()}" in listed)
        assert f"{int(number.replace(',', '')):,}" in listed


def test_each_state_has_its_tone() -> None:
    tones = {tile.label: tile.tone for tile in tiles(status())}
    assert tones == {"Delivered": "good", "Waiting": "plain", "Held": "plain", "Rejected": "plain"}
    left = status(waiting=2, held=3, rejected=4)
    assert [tile.tone for tile in tiles(left)] == ["plain", "busy", "warn", "bad"]
    failing = status(waiting=2, last_error="connection refused")
    assert [tile.tone for tile in tiles(failing)][1] == "warn"


def test_what_is_in_flight_waits_and_a_shadow_does_not_count() -> None:
    assert {tile.label: tile.number for tile in tiles(status(waiting=2, in_flight=3))}["Waiting"] == 5
    assert sum(tile.number for tile in tiles(status(held=3, shadow=True))) == 0


@pytest.mark.parametrize(
    ("found", "text", "tone"),
    [
        (status(), "Everything that was read is delivered.", "good"),
        (status(held=1), "held jobs need a change of the configuration", "warn"),
        (status(rejected=1), "rejected jobs are to be sent again or waived", "warn"),
        (msgspec.structs.replace(status(waiting=1), complete=False), "jobs wait to be sent", "warn"),
        (Status(complete=True, sources={}, targets={}), "No target is configured", "warn"),
        (msgspec.structs.replace(status(), not_latest="an old backup"), "Nothing is sent: an old backup", "bad"),
    ],
)
def test_the_state_is_a_sentence(found: Status, text: str, tone: str) -> None:
    shown = headline(found)
    assert text in shown[0]
    assert shown[1] == tone


def test_problems_name_their_source_or_target() -> None:
    target = msgspec.structs.replace(TARGET, last_error="HTTP 500", certificate_days_left=3, differences=2)
    source = msgspec.structs.replace(SOURCE, silent=True, unreadable=1)
    found = problems(Status(complete=True, sources={"ce1": source}, targets={"neic": target}))
    assert [(name, text.partition(":")[0]) for name, text in found] == [
        ("ce1", "silent for longer than `expect_every`"),
        ("ce1", "1 unreadable record"),
        ("neic", "HTTP 500"),
        ("neic", "the certificate expires in 3 days"),
        ("neic", "2 differences to what the service has"),
    ]
    assert problems(status()) == []


def test_damage_is_shown_beside_a_store_that_is_not_the_latest() -> None:
    """The headline has only one of them."""
    found = msgspec.structs.replace(status(), not_latest="an old backup", damaged_jobs=3)
    ((name, text),) = problems(found)
    assert name == "store"
    assert text.startswith("3 damaged jobs: `usage-publisher store check`")
    assert problems(msgspec.structs.replace(found, not_latest=None)) == []


# --- the lists


def test_records_are_listed_with_their_reasons(publisher: Publisher) -> None:
    page = PageClient(publisher)
    shown = page.ask("/records?state=held").text
    assert "200 of 1,501 records are shown" in shown
    assert "does not show that it has every job" in shown
    (first, *_) = re.findall(r'href="(/jobs\?job=[^"]*)"', shown)
    assert "local_user" in page.ask(unescape(first)).text
    assert "200 of 1,501" in page.ask(f"/records?state=held&target={HELD}").text
    assert "No record is held" in page.ask("/records?state=held&target=files").text


def test_records_of_a_shadow_are_listed_only_by_its_name(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PageClient(publisher)
    found = publisher.status()
    shadow = msgspec.structs.replace(found.targets[HELD], shadow=True)
    status = msgspec.structs.replace(found, targets={**found.targets, HELD: shadow})
    monkeypatch.setattr(publisher, "status", lambda **_: status)
    assert "No record is held" in page.ask("/records?state=held").text
    assert "200 of 1,501" in page.ask(f"/records?state=held&target={HELD}").text


def test_records_of_a_day(publisher: Publisher) -> None:
    page = PageClient(publisher)
    later = page.ask("/records?state=held&since=2026-11-20").text
    assert "ended 2026-11-20" in later
    assert "ended 2026-11-19" not in later
    delivered = page.ask("/records?state=delivered&since=2026-11-10").text
    assert set(re.findall(r"ended (2026-11-\d\d)", delivered)) == {"2026-11-10"}
    assert "ended 2026-1" in page.ask("/records?state=delivered").text
    nothing = page.ask("/records?state=delivered&since=2026-01-10").text
    assert "No delivered record ended on this day. 1,501 records ended on other days." in nothing


def test_all_delivered_records_are_found_day_by_day(publisher: Publisher) -> None:
    by_day = [publisher.listed(State.ACCEPTED, "files", None, DAY + 86_400 * day) for day in range(60)]
    assert len({record.record_id for day in by_day for record in day}) == sum(map(len, by_day)) == JOBS + 1


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("state=lost", "state: &#39;lost&#39; is not one of: delivered, waiting, held"),
        ("target=nosuch", "target: &#39;nosuch&#39; is not configured"),
        ("since=soon", "since: must be a time such as"),
    ],
)
def test_a_wrong_list_is_an_error(publisher: Publisher, query: str, text: str) -> None:
    found = PageClient(publisher).ask(f"/records?{query}")
    assert (found.status_code, text in found.text) == (400, True), found.text


def test_answers_of_services_are_escaped(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PageClient(publisher)
    reason = Reason(ReasonCode.REFUSED, {"answer": "<script>alert(1)</script> `<b>`"})
    refused = ListedRecord("files", "<i>id</i>", DAY, reason)
    monkeypatch.setattr(publisher, "listed", lambda *_: [refused])
    shown = page.ask("/records?state=rejected").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; <code>&lt;b&gt;</code>" in shown
    assert "<i>" not in shown


def test_who_sees_records(guarded: PageClient) -> None:
    assert guarded.ask("/records", headers=as_("alice")).status_code == 403
    of_manager = guarded.ask("/records", headers=as_("boss")).text
    assert "does not show that it has every job" in of_manager
    assert "/jobs?" not in of_manager
    assert "ur-dqs" not in of_manager
    assert "/jobs?" in guarded.ask("/records", headers=as_("root")).text


# --- the history


class _OtherHistory:
    """A publisher with these runs of the program; `count`: as it counts them."""

    def __init__(self, publisher: Publisher, runs: tuple[ProgramRun, ...], count: int) -> None:
        self._publisher = publisher
        of_id = {run.id: run for run in runs}.get
        self.history = SimpleNamespace(newest=lambda _: [*runs], count=lambda: count, of_id=of_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)


def _with_runs(page: PageClient, *runs: ProgramRun, count: int | None = None) -> None:
    """Have a page show these runs."""
    publisher: Any = _OtherHistory(page.site.publisher, runs, len(runs) if count is None else count)
    page.app = application(msgspec.structs.replace(page.site, publisher=publisher), ())


def test_the_runs_of_the_program_are_shown_with_their_errors(guarded: PageClient) -> None:
    run = ProgramRun(7, "run", "host", DAY, DAY + 90, 1, msgspec.convert({
        "sources": {"ce1": {"new": 5, "changed": 1}}, "targets": {"files": {"accepted": 4, "error": "<b>down</b>"}},
    }, RunDone))  # fmt: skip
    _with_runs(guarded, run, count=9)
    shown = guarded.ask("/history", headers=as_("boss")).text
    for text in (
        "1 of 9 runs is shown",
        "1 min 30 s",
        "something waits, or failed (exit code 1)",
        "files: &lt;b&gt;down&lt;/b&gt;",
        'data-label="new jobs">5<',
    ):
        assert text in shown
    assert guarded.ask("/history", headers=as_("alice")).status_code == 403
    assert '<a href="/history/7">7</a>' in shown
    lines = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", shown))
    assert "Source ce1: new 5, changed 1 " in lines
    assert "Target files: sent 4 " in lines


def test_one_run_is_shown_in_full(guarded: PageClient) -> None:
    run = ProgramRun(7, "reconcile", "<host>", DAY, DAY + 90, 1, msgspec.convert({
        "sources": {"ce1": {"new": 5, "error": "<b>gone</b>"}}, "error": "disk full", "problems": ["the <i>meter</i>"],
        "targets": {"files": {"accepted": 4, "held": 2}}, "reconciled": {"files": {"confirmed": 3}},
    }, RunDone))  # fmt: skip
    _with_runs(guarded, run)
    shown = guarded.ask("/history/7", headers=as_("boss")).text
    for text in (
        "Run 7 of the program", "&lt;host&gt;", "reconcile", "1 min 30 s", "something waits, or failed (exit code 1)",
        "disk full", "the &lt;i&gt;meter&lt;/i&gt;", "&lt;b&gt;gone&lt;/b&gt;",
        'data-label="new">5<', 'data-label="sent">4<', 'data-label="confirmed">3<', 'data-label="held">2<',
    ):  # fmt: skip
        assert text in shown, text
    missing = guarded.ask("/history/8", headers=as_("boss"))
    assert (missing.status_code, "Run 8 is not in the history" in missing.text) == (404, True)
    assert guarded.ask("/history/x", headers=as_("boss")).status_code == 404
    assert guarded.ask("/history/7", headers=as_("alice")).status_code == 403
    without = guarded.ask("/history/7")
    assert without.headers["location"].endswith("next=%2Fhistory%2F7")


def test_a_run_that_cannot_be_read_is_shown_as_such_beside_the_others(guarded: PageClient) -> None:
    why = "`done` of run 7 in the history cannot be read"
    damaged = ProgramRun(7, "run", "host", None, DAY + 90, 0, None, why)
    other = ProgramRun(6, "collect", "host", DAY, DAY + 90, 0, RunDone(sources={"ce1": SourceDone(new=5)}))
    _with_runs(guarded, damaged, other)
    for path in ("/history", "/history/7"):
        shown = guarded.ask(path, headers=as_("boss"))
        assert shown.status_code == 200
        assert "done; its record cannot be read" in shown.text
        assert "<code>done</code> of run 7 in the history cannot be read" in shown.text
        assert "unknown" in shown.text
    assert "Source ce1" in guarded.ask("/history", headers=as_("boss")).text


@pytest.mark.parametrize("digits", [18, 19, 5000])
def test_a_run_whose_number_no_store_can_have_is_not_in_the_history(publisher: Publisher, digits: int) -> None:
    assert PageClient(publisher).ask(f"/history/{'9' * digits}").status_code == 404


def test_the_overview_leads_to_the_last_run(publisher: Publisher) -> None:
    page = PageClient(publisher)
    (path,) = re.findall(r'Last run: <a href="(/history/\d+)">', page.ask("/").text)
    assert f"Run {path.rpartition('/')[2]} of the program" in page.ask(path).text


def test_the_last_run_has_its_exit_code(publisher: Publisher) -> None:
    assert ", records newly held or rejected (exit code 3); " in PageClient(publisher).ask("/").text


# --- who arrives where


def test_a_user_sees_the_own_usage(guarded: PageClient) -> None:
    shown = guarded.ask("/", headers=as_("alice")).text
    assert "Your usage by queue" in shown
    assert "slow.q" in shown
    assert not {"bob", HELD, "Held", "Sources"} & set(re.findall(r"[\w-]+", shown))
    everybody = guarded.ask("/", headers=as_("boss")).text
    assert "Usage by user" in everybody
    assert {"bob", HELD} <= set(re.findall(r"[\w-]+", everybody))


@pytest.mark.parametrize(
    ("views", "landing", "menu"),
    [
        ('["occupation", "scarce"]', "/occupation", ["/occupation", "/scarce", "/help"]),
        ('["scarce"]', "/scarce", ["/scarce", "/help"]),
        ('["status"]', "/", ["/", "/help"]),
        ('["totals"]', "/", ["/", "/totals", "/help"]),
        ("[]", "/help", ["/help"]),
    ],
)
def test_a_manager_arrives_at_a_page_of_the_views(
    publisher: Publisher, tmp_path: Path, views: str, landing: str, menu: list[str]
) -> None:
    tokens = token_file(tmp_path)
    text = tokens.read_text(encoding="utf-8")
    tokens.write_text(text.replace('"manager"', f'"manager"\nviews = {views}'), encoding="utf-8")
    page = PageClient(publisher, People(tokens))
    assert page.ask("/login", "POST", data={"token": TOKENS["boss"]}).headers["location"] == landing
    if landing != "/":
        assert page.ask("/", headers=as_("boss")).headers["location"] == landing
    shown = page.ask(landing, headers=as_("boss"))
    assert shown.status_code == 200
    assert re.findall(r'<li><a href="([^"]*)"(?: aria-current="page")?>\w', shown.text)[: len(menu)] == menu


# --- back after log-in


def test_a_log_in_returns_to_the_page_asked_for(guarded: PageClient) -> None:
    asked = "/totals?since=2026-11-01&days=30&by=user"
    form = guarded.ask(asked).headers["location"]
    shown = guarded.ask(form).text
    hidden = re.search(r'name="next" value="([^"]*)"', shown)
    assert hidden is not None
    assert unescape(hidden[1]) == asked
    wrong = guarded.ask("/login", "POST", data={"token": "a guess", "next": asked}).text
    assert f'value="{hidden[1]}"' in wrong
    found = guarded.ask("/login", "POST", data={"token": TOKENS["root"], "next": asked})
    assert (found.status_code, found.headers["location"]) == (303, asked)


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/", "//evil.example/totals", "/\\evil.example", "\\\\evil.example", "/%2fevil.example",
        "javascript:alert(1)", "/totals\r\nSet-Cookie: a=b", "/totals\tx", "http:totals", "/logout", "/login", "totals",
        "@evil.example", "//", "///evil.example", "https:///evil.example", "/..//evil.example", "?next=x",
        "//[", "/totals?" + "x=1&" * 100, "/" + "a" * 3000, " //evil.example", "\x00//evil.example",
        "/\N{FULLWIDTH SOLIDUS}evil.example",
    ],
)  # fmt: skip
def test_a_log_in_never_leads_elsewhere(guarded: PageClient, elsewhere: str) -> None:
    assert return_address(elsewhere) is None
    found = guarded.ask("/login", "POST", data={"token": TOKENS["root"], "next": elsewhere})
    assert (found.status_code, found.headers["location"]) == (303, "/")
    assert "evil" not in guarded.ask("/login", params={"next": elsewhere}).text


def test_only_known_values_are_kept_of_an_address() -> None:
    assert return_address("/totals?by=vo&token=secret#x") == "/totals?by=vo"
    assert return_address("/") == "/"
    assert return_address("/history/12") == "/history/12"


# --- the menu


def test_the_menu_has_only_what_has_something_to_show(publisher: Publisher, states: Program, tmp_path: Path) -> None:
    page = PageClient(publisher)
    assert offered_views(publisher.config) == {*VIEW_KINDS} - {"late", "load", "paths", "sql"}
    text = states.config.read_text(encoding="utf-8")
    bare = Program(tmp_path, text[: text.index("[charges]")] + text[text.index("[serve]") :])
    assert offered_views(load(bare.config)) == {*VIEW_KINDS} - {
        "allocations",
        "charges",
        "late",
        "load",
        "paths",
        "sql",
    }
    bare.configure(
        bare.config.read_text(encoding="utf-8").replace(
            'path = "act_file"', 'path = "act_file"\nstat_file = "stat_file"'
        )
    )
    assert "load" in offered_views(load(bare.config))
    bare.configure(bare.config.read_text(encoding="utf-8") + '[sources.ce]\ntype = "arc"\npath = "a.db"\n')
    assert "paths" in offered_views(load(bare.config))
    page.app = application(msgspec.structs.replace(page.site, offered=lambda: {"totals"}), ())
    assert re.findall(r'<li><a href="([^"]*)"', page.ask("/help").text) == ["/", "/totals", "/help"]
    assert page.ask("/utilization?since=2026-11-01&days=30").status_code == 200


@pytest.mark.parametrize("name", READ)
def test_the_descriptor_says_which_sources_have_events(name: str, fixtures: Path) -> None:
    jobs = golden_jobs(fixtures / READ[name])
    assert any(job.events for job in jobs) == SOURCE_KINDS[name.partition("-")[0]].has_events


def test_a_job_is_asked_for_without_an_error(publisher: Publisher) -> None:
    found = PageClient(publisher).ask("/job")
    assert found.status_code == 200
    assert 'role="alert"' not in found.text
    assert '<details class="ask" open>' in found.text


def test_a_message_has_the_menu_of_the_person(guarded: PageClient) -> None:
    assert 'href="/totals"' in guarded.ask("/nosuch", headers=as_("alice")).text
    assert 'href="/totals"' not in guarded.ask("/nosuch").text

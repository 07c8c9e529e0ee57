"""Jobs on the page: the rows of reports lead to them, and a job to its deliveries; nobody sees more than before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from publisher.api import Publisher
from publisher.page.auth import People
from publisher.sources.base import Window
from publisher.status.jobs import JobFilter
from tests.publisher.cli.program import BASE, Program
from tests.publisher.page.believable import settings, write_logs
from tests.publisher.page.conftest import EVIL, TOKENS, token_file
from tests.publisher.page.test_app import MONTH, NOW, PageClient, as_


@pytest.fixture(scope="module")
def publisher(states: Program) -> Iterator[Publisher]:
    with Publisher.from_file(states.config, read_only=True) as reading:
        yield reading


@pytest.fixture
def opened(publisher: Publisher) -> PageClient:
    return PageClient(publisher)


@pytest.fixture
def guarded(publisher: Publisher, tmp_path: object) -> PageClient:
    return PageClient(publisher, People(token_file(tmp_path)))  # type: ignore[arg-type]


def counted(text: str) -> int:
    """How many jobs a list says that there are."""
    (found,) = re.findall(r"<p>[\d,]+ of ([\d,]+) jobs? (?:is|are) shown", text)
    return int(found.replace(",", ""))


def links(text: str) -> list[str]:
    return [unescape(href) for href in re.findall(r'<a href="(/jobs\?[^"]*)"', text)]


@pytest.mark.parametrize(
    "query",
    ["by=user", "by=user&by2=queue", "by=queue&by2=day", "by=week", "by=vo", "by=host&queue=fast*", "by=status"],
)
def test_each_row_of_totals_leads_to_as_many_jobs_as_it_counts(opened: PageClient, query: str) -> None:
    rows = opened.ask(f"/totals.json?{MONTH}&{query}").json()["totals"]
    *hrefs, of_all = links(opened.ask(f"/totals?{MONTH}&{query}").text)
    assert counted(opened.ask(of_all).text) == sum(row["jobs"] for row in rows)
    for row, href in list(zip(rows, hrefs, strict=True))[:12]:
        found = opened.ask(href).text
        jobs = counted(found) if "jobs are shown" in found or "job is shown" in found else 0
        assert jobs == row["jobs"], href


def test_bins_lead_to_the_jobs_that_ran_in_them(opened: PageClient) -> None:
    asked = f"{MONTH}&bin=6h"
    (row, *_) = [one for one in opened.ask(f"/utilization.json?{asked}").json()["bins"] if one["jobs"] > 2]
    (href,) = [
        one
        for one in links(opened.ask(f"/utilization?{asked}").text)
        if parse_qs(urlsplit(one).query)["since"] == [row["start"]]
    ]
    assert parse_qs(urlsplit(href).query)["counted"] == ["overlapping"]
    assert counted(opened.ask(href).text) == row["jobs"]


def test_a_job_has_its_deliveries_message_and_facts(opened: PageClient, publisher: Publisher) -> None:
    found = opened.ask("/jobs?job=7").text
    assert "<h1>Job 7</h1>" in found
    assert "files <span" in found
    assert "summaries-of-a-service-with-a-long-name" in found
    assert "the job has no usable benchmark" in found
    assert "&lt;urf:UsageRecord" in found or "&lt;JobUsageRecord" in found or "UsageRecord" in found
    assert "local_user" in found
    assert "<h1>Jobs</h1>" in opened.ask(f"/jobs?{MONTH}&job=job1*").text


def test_text_from_outside_is_escaped(opened: PageClient) -> None:
    for path in (f"/jobs?{MONTH}", "/jobs?job=5", f"/jobs?{MONTH}&user={EVIL}"):
        found = opened.ask(path).text
        assert EVIL not in found
        assert "&lt;script&gt;" in found


@pytest.mark.parametrize(
    "query", ["job=%00", "since=x", "counted=x", f"user={'x' * 2000}", "until=2026-01-01&since=2026-02-01", "path=/etc"]
)
def test_what_makes_no_sense_is_reported(opened: PageClient, query: str) -> None:
    assert opened.ask(f"/jobs?{query}").status_code in {200, 400}
    assert opened.ask(f"/jobs?{query}&nosuch=1").status_code == 400


def test_nobody_sees_more_than_the_view_job_allows(guarded: PageClient, publisher: Publisher) -> None:
    everything = guarded.ask(f"/jobs?{MONTH}", headers=as_("root")).text
    mine = guarded.ask(f"/jobs?{MONTH}", headers=as_("alice")).text
    assert counted(mine) < counted(everything)
    assert "bob" in everything
    assert "bob" not in mine
    assert "deliveries" in everything
    assert "deliveries" not in mine
    assert guarded.ask(f"/jobs?{MONTH}", headers=as_("boss")).status_code == 403
    whose = {known.run.job.local_user: known.run for known in publisher.jobs_found(Window(), JobFilter(), None).jobs}
    for name in (whose["bob"].record_id, whose["bob"].job.local_id, "*"):
        others = guarded.ask(f"/jobs?{MONTH}&job={name}&user=bob", headers=as_("alice")).text
        assert "bob" not in others.replace(str(name), "")
    own = guarded.ask(f"/jobs?job={whose['alice'].record_id}", headers=as_("alice")).text
    assert "local_user" in own
    assert "summaries-of" not in own
    assert not set(TOKENS.values()) & set(own.split())


def test_rows_lead_nowhere_for_those_who_see_no_jobs(guarded: PageClient) -> None:
    assert links(guarded.ask(f"/totals?{MONTH}&by=user", headers=as_("boss")).text) == []
    assert len(links(guarded.ask(f"/totals?{MONTH}&by=queue", headers=as_("alice")).text)) == 3


def test_periods_are_links_that_keep_the_grouping(opened: PageClient) -> None:
    found = opened.ask(f"/totals?{MONTH}&by=queue").text
    hrefs = {label: unescape(href) for href, label in re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a></li>', found)}
    assert hrefs["Last quarter"] == "/totals?by=queue&since=2026-07&until=2026-10"
    assert hrefs["Last month"] == "/totals?by=queue&since=2026-11&until=2026-12"
    for label in ("7 days", "This year", "Last year", "All"):
        assert opened.ask(hrefs[label]).status_code == 200, label
    shown = opened.ask(hrefs["Last month"]).text
    assert 'aria-current="true">Last month' in shown
    assert "2026-11-01 until 2026-12-01" in shown
    assert shown.count('aria-current="true"') == 1


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/totals", "30 days"),
        ("/jobs?user=bob", "30 days"),
        ("/totals?since=2026-11-25&days=7", "7 days"),
        ("/totals?since=2026-11-01&until=2026-12-01", "Last month"),
        ("/totals?since=2026-01&until=", "This year"),
        ("/totals?since=&until=", "All"),
        ("/charges", "This month"),
        ("/charges?month=2026-11", "Last month"),
        ("/totals?since=2026-11-02&until=2026-12-01", None),
        ("/totals?since=x", None),
    ],
)
def test_the_period_that_is_shown_is_marked(opened: PageClient, path: str, label: str | None) -> None:
    """Also where it is the default, or was given as days."""
    marked = re.findall(r'aria-current="true">([^<]*)<', opened.ask(path).text)
    assert marked == ([] if label is None else [label])


def test_a_view_of_now_offers_no_interval(opened: PageClient) -> None:
    found = opened.ask("/allocations").text
    assert "Wonderland" in found
    assert 'class="periods"' not in found
    assert 'name="since"' not in found


# --- a cluster whose jobs have accounts


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    """Slurm, whose jobs have accounts and no projects."""
    folder = tmp_path_factory.mktemp("cluster")
    write_logs(folder, NOW, 80)
    site = Program(folder, BASE + settings())
    site("collect").ok()
    with Publisher.from_file(site.config, read_only=True) as reading:
        yield PageClient(reading)


def test_an_account_is_called_account(cluster: PageClient) -> None:
    assert 'data-label="project / account">atlas<' in cluster.ask("/jobs?since=&until=&account=atlas").text
    shown = cluster.ask("/jobs?job=900").text
    assert "<dt>account</dt><dd>atlas</dd>" in shown
    assert "<dt>project</dt>" not in shown


def test_the_page_of_a_job_shortens_nothing(cluster: PageClient) -> None:
    shown = cluster.ask("/jobs?job=900").text
    assert re.search(r"<code>ur-slurm/old\.example\.org/900/\d+</code>", shown)
    assert '<td role="cell">billing=8,cpu=8,mem=16384M,node=1</td>' in shown
    assert 'class="long"' not in shown


def test_the_page_groups_by_the_first_key_that_jobs_have(cluster: PageClient) -> None:
    """No job here has a project, so that by project one bar would be unknown."""
    shown = cluster.ask("/energy?since=&until=").text
    assert "<h1>Energy, by account</h1>" in shown
    assert "speech-models" in shown
    assert '<option value="account" selected>' in shown
    (csv,) = re.findall(r'href="(/energy\.csv[^"]*)"', shown)
    assert cluster.ask(unescape(csv)).text == cluster.ask("/energy.csv?since=&until=").text
    assert "<h1>Energy, by project</h1>" in cluster.ask("/energy?since=&until=&by=project").text
    assert "<h1>Energy</h1>" in cluster.ask("/energy?since=&until=&by=").text
    assert cluster.ask("/energy?since=x").status_code == 400
    first = cluster.ask("/").text
    assert "Usage by account" in first
    assert "All totals" in first

"""Each row of each view leads to the jobs that it counts, whatever jobs are called and however they ran."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.datastructures import QueryParams

from formats.job import Events, Host, Job
from publisher.errors import UsageError
from publisher.page import query as page_query
from publisher.page.addresses import MOST_QUERY_BYTES, query_of
from publisher.page.auth import EVERYBODY
from publisher.page.report_pages import ReportPages
from publisher.page.row_links import job_links
from publisher.report.job_runs import found_jobs
from publisher.report.ranking import ranked
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import RowSelection, row_selection
from publisher.report.runs import ReportContext
from publisher.report.view_kind import VIEW_KINDS, ViewKind
from publisher.report.views import make
from publisher.status.jobs import KnownRun
from tests.extent import every, short_or_whole
from tests.publisher.page.conftest import EVIL
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

DAY_S = 86_400
NOW = NOVEMBER + 20 * DAY_S
INTERVAL = {"since": "2026-11-01", "until": "2026-11-15"}
MORE = {"utilization": {"bin": "1d"}, "job": {"job": "*"}, "charges": {"month": "2026-11"}}
NAMES = ("ada", "[a]*", "o'neil", "(unknown)", "others (3)", "(all)", EVIL, "  a,b ", "", None, "r\u00e9 \u202e", "x/y")
MOST = short_or_whole(2, 9)
"""Rows of a report that are followed."""
_AMOUNTS = {"occupation": "used_h", "charges": "quantity", "allocations": "used_h"}
"""Of views whose rows do not count jobs, what is more than 0 if there are any."""
NODES = ("n1", "n2", "fat1", "c1/n1", "stray", "(unknown)", "*")


def hostile_jobs(count: int = 240) -> Iterator[Job]:
    """Jobs with nasty names; on several hosts or none, of no length, backward, impossible, running, and run again."""
    chance = random.Random(26)
    for number in range(1, count + 1):
        start = NOVEMBER - DAY_S + chance.randrange(16 * DAY_S)
        wall_s = chance.choice([0, 1, 3600, 40_000, 200_000])
        names = chance.sample(NODES, chance.choice([0, 1, 1, 1, 2, 3]))
        hosts = tuple(Host(name, chance.randrange(4)) for name in names)
        slots = sum(host.slots or 0 for host in hosts) or 1
        facts: dict[str, Any] = {
            "start": start, "end": start + wall_s, "submit": start - chance.choice([-5, 0, 60, 9_000]), "hosts": hosts,
            "slots": slots, "cores": slots, "wall_ms": wall_s * 1000, "gpus": chance.choice([None, 0, 2]),
            "user_dn": None, "run": 0, "local_id": chance.choice([str(number), str(number), "7*", "[8]"]),
            "cluster": chance.choice(["c1", "c2", "c*"]), "name": chance.choice(NAMES), "global_id": f"g{number}",
            "extras": {"complex": chance.choice(["", "gpu,big", "big", "gpu"])}, "system": "gridengine",
            "array_task": chance.choice([None, 3]),
        }  # fmt: skip
        facts |= {key: chance.choice(NAMES) for key in ("local_user", "local_group", "project", "account", "queue")}
        if chance.random() < 0.5:
            facts["events"] = Events.of(enumerate(chance.choice(["Q S E", "Q S S E", "Q S S S E"]).split(), start))
        if number % 17 == 0:
            facts |= {"slots": 1 << 45, "cores": None, "hosts": ()}
        if number % 19 == 0:
            facts["end"] = start - 500
        if number % 23 == 0:
            facts |= {"end": None, "status": "running", "wall_ms": None, "cpu_ms": None}
        job = make_job(number, **facts)
        yield job
        if number % 3 == 0 and job.end is not None:  # run again on another day in another queue, submitted once
            later = {**facts, "start": start + 90_000, "end": job.end + 90_000, "run": 1, "queue": "again"}
            yield make_job(number, record_id=f"again-{number}", **later)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportContext]:
    source = ListSource("ce1")
    source.add(*hostile_jobs())
    site = Site(tmp_path_factory.mktemp("hostile"), [source], [])
    site.now = NOW
    site.table["nodes"] = [
        {"name": "n1", "cores": 4, "gpus": 2, "cluster": "c1", "memory_gib": 8},
        {"name": "n2", "cores": 4, "cluster": "c2", "until": "2026-11-08", "memory_gib": 8},
        {"name": "n2", "cores": 8, "since": "2026-11-08", "type": "big", "cluster": "c2", "memory_gib": 8},
        {"name": "fat1", "cores": 16, "type": "fat", "memory_gib": 8},
        {"name": "idle1", "cores": 16, "type": "fat", "memory_gib": 8},
    ]
    site.table["charges"] = {"by": "project", "prices": [{"resource": "cores", "price": "1"}]}
    site.table["allocations"] = [
        {"name": name, "amount": 9, "since": "2026-11-02", "until": "2026-11-09", **holder}
        for name, holder in (
            ("a", {"project": "ada"}), ("b", {"user": "(unknown)", "account": "x/y", "subaccounts": ["ada", "[a]*"]}),
            ("c", {"user": "o'neil", "resource": "gpus"}),
        )
    ]  # fmt: skip
    site.reopen()
    site.collect()
    yield ReportContext(site.publisher.store, site.config, NOW)
    site.reopen()


def asked(kind: ViewKind, query: dict[str, str]) -> ReportRequest:
    return page_query.parse(kind, query, NOW, (NOVEMBER - 2 * DAY_S, NOW), EVERYBODY).request


def followed(context: ReportContext, href: str) -> tuple[int, list[KnownRun]]:
    """How many jobs the page of a link says that there are, and the jobs."""
    query = query_of(QueryParams(urlsplit(href).query), EVERYBODY)
    request = page_query.jobs_request(query, NOW, (None, None), EVERYBODY)
    found = found_jobs(context, request, 1000, page_query.selected_row(query))
    assert found.total == len(found.jobs)
    return found.total, found.jobs


def rows_of(report: Report) -> Iterator[dict[str, Any]]:
    names = [column.name for column in report.columns]
    for row in (*report.rows, *([report.footer] if report.footer else [])):
        yield dict(zip(names, row, strict=True))


def groupings(kind: ViewKind) -> list[dict[str, str]]:
    keys = [{"by": key} for key in kind.keys_for("admin")]
    pairs = (
        list(combinations(kind.keys_for("admin"), 2))[:: len(kind.keys) * short_or_whole(3, 1)]
        if kind.most_keys > 1
        else []
    )
    none = [] if kind.user_key else [{"by": ""}]
    return [*none, *every(3, keys), *({"by": one, "by2": two} for one, two in pairs)]


def followed_report(context: ReportContext, kind: ViewKind, query: dict[str, str]) -> tuple[Report, list[str]]:
    request = asked(kind, {**INTERVAL, **MORE.get(kind.name, {}), **query})
    report = make(kind.name, context, request)
    assert report.nothing is None, report.nothing
    return report, job_links(report, request, kind, frozenset())


@pytest.mark.parametrize("name", [name for name, kind in VIEW_KINDS.items() if not kind.row_jobs.none])
def test_a_row_leads_to_as_many_jobs_as_it_counts(context: ReportContext, name: str) -> None:
    """Two rows of one label, such as jobs of one number in two clusters, lead to the jobs of both."""
    compared, kind = 0, VIEW_KINDS[name]
    amount, counts_jobs = _AMOUNTS.get(name, "jobs"), "jobs" in {column.name for column in kind.columns}
    for query in groupings(kind):
        if "job" in query.values():  # else rows of a label may be missing
            query["top"] = "1000"
        report, hrefs = followed_report(context, kind, query)
        counts: Counter[str] = Counter()
        for row, href in zip(rows_of(report), hrefs, strict=True):
            value = row.get(amount, 1) or 0
            assert bool(href) == bool(value or not counts_jobs) or "top" in query, (query, row)
            if href:
                counts[href] = value + (0 if next(iter(row.values())) == "total" else counts[href])
        for href in random.Random(26).sample(sorted(counts), min(MOST, len(counts))):
            found = followed(context, href)[0]
            assert found == counts[href] if counts_jobs else found or not counts[href], (query, href)
            compared += bool(found)
    assert compared


def test_rows_that_lead_nowhere_say_why() -> None:
    nowhere = {kind.name: kind.row_jobs.none for kind in VIEW_KINDS.values() if kind.row_jobs.none}
    assert all(kind.row_jobs.none or kind.roles for kind in VIEW_KINDS.values())
    assert nowhere.keys() == {"load", "late", "sql"}


def held_s(job: Job, names: set[str], start: int, stop: int) -> int:
    seconds = max(0, min(job.end or NOW, stop) - max(job.start or 0, start))
    return sum(host.slots or 0 for host in job.hosts if host.name in names) * seconds


@pytest.mark.parametrize("by", ["node", "type", "cluster"])
def test_the_jobs_of_nodes_held_what_the_row_says(context: ReportContext, by: str) -> None:
    """As a sum over the jobs of the link, of the hosts that the row is of."""
    query = {"by": by, "host": "n2", "cluster": "c2", "period": "day"}
    report, hrefs = followed_report(context, VIEW_KINDS["occupation"], query)
    sums = 0
    for row, href in zip(rows_of(report), hrefs, strict=True):
        jobs = [known.run.job for known in followed(context, href)[1]]
        own = [held_s(job, {"n2"}, row["start"], row["start"] + DAY_S) / 3600 for job in jobs]
        assert all(own), (row, href)
        assert sum(own) == pytest.approx(row["used_h"]), (row, href)
        sums += bool(own)
    assert sums > 3


def test_a_row_of_all_nodes_leads_to_the_jobs_that_held_the_resource(context: ReportContext) -> None:
    query = {"by": "", "resource": "gpus", "period": "month"}
    report, hrefs = followed_report(context, VIEW_KINDS["occupation"], query)
    assert report.rows
    for href in hrefs:
        jobs = [known.run.job for known in followed(context, href)[1]]
        assert jobs
        assert all(job.gpus for job in jobs), href


def test_the_jobs_of_a_payer_and_of_an_allocation_used_what_the_row_says(context: ReportContext) -> None:
    report, hrefs = followed_report(context, VIEW_KINDS["charges"], {"by": "project"})
    for row, href in zip(rows_of(report), hrefs, strict=True):
        jobs = [known.run.job for known in followed(context, href)[1]]
        held = [sum(host.slots or 0 for host in job.hosts) if job.hosts else job.slots or 0 for job in jobs]
        core_ms = sum(slots * max(job.wall_ms or 0, 0) for job, slots in zip(jobs, held, strict=True))
        if row["item"] != "total":
            assert core_ms / 3_600_000 == pytest.approx(row["quantity"], rel=1e-3, abs=0.01), row
    report, hrefs = followed_report(context, VIEW_KINDS["allocations"], {})
    for row, href in zip(rows_of(report), hrefs, strict=True):
        jobs = [known.run.job for known in followed(context, href)[1]]
        used_h = 0.0
        for job in jobs:
            begin, end = job.start or 0, max(job.end or 0, (job.start or 0) + 1)
            part = (min(end, row["until"]) - max(begin, row["since"])) / (end - begin)
            amount = job.gpus if row["resource"] == "gpus" else min(job.slots or 0, 1 << 24)
            used_h += part * (amount or 0) * (job.wall_ms or 0) / 3_600_000
        assert used_h == pytest.approx(row["used_h"]), row


def test_sums_of_others_and_what_is_nobodys_lead_nowhere(context: ReportContext) -> None:
    kind = VIEW_KINDS["totals"]
    request = asked(kind, {**INTERVAL, "by": "user", "top": "2"})
    report = ranked(make(kind.name, context, request), request)
    hrefs = job_links(report, request, kind, frozenset())
    assert [bool(href) for href in hrefs] == [True, True, False, True]


def test_groups_of_the_compared_interval_alone_lead_nowhere(context: ReportContext) -> None:
    kind = VIEW_KINDS["totals"]
    query = {"since": "2026-11-14", "until": "2026-11-15", "by": "user", "by2": "queue", "compare": "previous"}
    request = asked(kind, query)
    report = make(kind.name, context, request)
    rows = list(rows_of(report))
    hrefs = job_links(report, request, kind, frozenset())
    assert any(row["jobs"] == 0 and row["jobs_before"] for row in rows)
    assert [bool(href) for href in hrefs] == [row["jobs"] > 0 for row in rows]


def test_rows_of_names_that_make_an_address_too_long_lead_nowhere(tmp_path: Path) -> None:
    """A name may have any length: the server answers no longer query, and reports take no longer filter."""
    said: list[str] = []
    source = ListSource("ce1")
    source.add(*(make_job(number, account=name) for number, name in enumerate(("a", "b" * 2000, "c" * 5000), 1)))
    site = Site(tmp_path, [source], [])
    site.collect()
    long = ReportContext(site.publisher.store, site.config, NOW)
    kind = VIEW_KINDS["totals"]
    request = page_query.parse(kind, {"since": "", "by": "account"}, NOW, (0, NOW), EVERYBODY).request
    report = make(kind.name, long, request)
    hrefs = job_links(report, request, kind, frozenset())[:3]
    assert [bool(href) for href in hrefs] == [len(str(row[0])) < MOST_QUERY_BYTES for row in report.rows]
    assert all(followed(long, href)[0] == 1 for href in hrefs if href)
    usage = ReportPages(lambda: long, said.append, lambda: NOW).usage(EVERYBODY)
    assert {row.href[:20] for row in usage.rows if len(row.name) > page_query.MOST_LETTERS} == {""}
    (href,) = (row.href for row in usage.rows if row.href)
    assert page_query.parse(kind, query_of(QueryParams(urlsplit(href).query), EVERYBODY), NOW, (0, NOW), EVERYBODY)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"node": "n1"}, {"node": "n1", "resource": "cores"}), ({"type": "fat"}, {"type": "fat", "resource": "cores"}),
        ({"core": "n1/2"}, {"node": "n1", "core": "2", "resource": "cores"}),
        ({"core": "stray"}, {"node": "stray", "resource": "cores"}),
        ({"core": "c1/n1"}, {"node": "c1/n1", "resource": "cores"}),
    ],
)  # fmt: skip
def test_a_selection_of_nodes_without_a_resource_is_one_of_cores(
    context: ReportContext, words: dict[str, str], said: dict[str, str]
) -> None:
    def jobs(row: RowSelection) -> tuple[int, list[int]]:
        request = page_query.jobs_request({**INTERVAL, "counted": "overlapping"}, NOW, (None, None), EVERYBODY)
        found = found_jobs(context, request, 1000, row)
        return found.total, [known.run.run_id for known in found.jobs]

    assert jobs(RowSelection(words=words)) == jobs(RowSelection(words=said))
    assert 0 < jobs(RowSelection(words=words))[0] < jobs(RowSelection())[0]


@pytest.mark.parametrize("text", ["x", "[]", '{"words": {"path": 1}}', '{"words": {"x": "y"}}', '{"runs": "some"}',
                                  '{"words": {"resource": "x"}}', '{"words": {"held_on": "last"}}',
                                  '{"words": {"node": "n1", "core": "x"}}'])  # fmt: skip
def test_a_selection_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="row"):
        row_selection(text)


def test_messages_of_the_page_name_its_fields() -> None:
    kind = VIEW_KINDS["efficiency"]
    form = page_query.fields(kind, {}, NOW, EVERYBODY)
    text = "choose how many with --top. `collect --unreadable`, --archive"
    assert page_query.in_its_terms(text, form) == "choose how many with “Top”. `collect --unreadable`, --archive"

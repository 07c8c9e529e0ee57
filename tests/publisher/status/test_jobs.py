"""jobs: what is listed by the facts of classes is what a look at every run gives."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from formats.ending import ending_of
from publisher.api import Publisher
from publisher.sources.base import Window
from publisher.status.jobs import JobFilter, KnownRun
from publisher.store.schema import State
from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE
from tests.publisher.report.conftest import SOURCES

ARC = '[sources.ce1]\ntype = "arc"\npath = "accounting.db"\n'
TARGETS = """
[targets.all]
type = "directory"
path = "all"
[targets.some]
type = "directory"
path = "some"
sources = ["ce1"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Iterator[Publisher]:
    config = tmp_path_factory.mktemp("jobs") / "publisher.toml"
    config.write_text(BASE + (SOURCES + ARC).replace("{0}", str(fixtures)) + TARGETS)
    load(fixtures / "arc" / "accounting.sql", config.parent / "accounting.db")
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        publisher.publish(["some"])
        yield publisher


def _listed(site: Publisher, chosen: JobFilter, limit: int | None = None) -> tuple[int, list[str]]:
    jobs = site.jobs_found(Window(), chosen, limit)
    return jobs.total, [job.run.record_id for job in jobs.jobs]


def _words(job: KnownRun, key: str) -> list[str | None]:
    facts = job.run.job
    return {
        "user": [facts.local_user, facts.user_dn],
        "group": [facts.local_group],
        "vo": [facts.vo],
        "project": [facts.project],
        "queue": [facts.queue],
        "host": [host.name for host in facts.hosts],
        "status": [facts.status],
        "task": [None if facts.array_task is None else str(facts.array_task)],
        "ending": [ending_of(facts.system, facts.status, facts.end_reason)],
    }[key]


@pytest.mark.parametrize(
    "patterns",
    [
        {},
        {"user": "a*"},
        {"user": "*CN=*"},
        {"group": "*"},
        {"vo": "chemistry"},
        {"vo": "*", "status": "failed"},
        {"project": "?*"},
        {"queue": "[a-g]*"},
        {"host": "*1*"},
        {"task": "2"},
        {"user": "*s*", "queue": "*", "task": "*"},
        {"user": "nobody"},
        {"ending": "*limit"},
        {"ending": "completed"},
        {"ending": "*", "status": "failed"},
    ],
    ids=str,
)
@pytest.mark.parametrize("source", [None, "ce1"])
def test_what_is_listed(site: Publisher, patterns: dict[str, str], source: str | None) -> None:
    """Both by class, and where a run itself decides: ARC's local users, array tasks."""
    expected = [
        job.run.record_id
        for job in site.jobs(Window())
        if all(
            any(word is not None and fnmatchcase(word, text) for word in _words(job, key))
            for key, text in patterns.items()
        )
        and source in {None, job.run.source}
    ][::-1]
    chosen = JobFilter(patterns, source)
    assert _listed(site, chosen) == (len(expected), expected)
    assert _listed(site, chosen, 3) == (len(expected), expected[:3])


@pytest.mark.parametrize("state", [None, State.WAITING, State.ACCEPTED])
@pytest.mark.parametrize("target", [None, "all", "some"])
@pytest.mark.parametrize("patterns", [{}, {"vo": "*"}, {"task": "*"}], ids=str)
def test_where_they_were_delivered(
    site: Publisher, target: str | None, state: State | None, patterns: dict[str, str]
) -> None:
    chosen = {job.run.record_id for job in site.jobs_found(Window(), JobFilter(patterns), None).jobs}
    expected = [
        job.run.record_id
        for job in site.jobs(Window())
        if job.run.record_id in chosen
        and (
            target is state is None
            or any(target in {None, it.target} and state in {None, it.state} for it in job.whereabouts)
        )
    ][::-1]
    assert _listed(site, JobFilter(patterns, target=target, state=state)) == (len(expected), expected)

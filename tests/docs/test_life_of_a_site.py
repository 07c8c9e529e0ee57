"""The page on changes at a site: every command of it is run, and each job is at each service once afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.docs.test_lost_store import OCTOBER, SEPTEMBER, LostSite
from tests.publisher.torque_cluster import torque_line

PAGE = "how-to/life-of-a-site.md"
NOVEMBER = OCTOBER + 31 * 86_400

Begin = Callable[[str], LostSite]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("life"))


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


@pytest.fixture
def begin(tmp_path: Path, simulator: Simulator, pki: Pki) -> Begin:
    """A site that sent jobs of September, before a section of the page."""

    def site(section: str) -> LostSite:
        found = LostSite(section, tmp_path, simulator, pki, page=PAGE)
        found.work(SEPTEMBER, 1, 12)
        return found

    return site


def walk_all(site: LostSite, *, then: tuple[int, int, int] | None = None) -> None:
    """All commands of the section; `then`: month and numbers of jobs that end afterwards."""
    site.walk()
    assert len(site.ran) == len(list(site.steps()))
    if then is not None:
        site.work(*then)


def test_a_renamed_source(begin: Begin) -> None:
    site = begin("A source gets another name")
    walk_all(site, then=(OCTOBER, 1, 8))
    site.assert_each_job_is_counted_once()
    assert site.rows("SELECT name, jobs FROM sources") == [("main", 20)]
    assert "retired" not in site.program("--config", site.config, "status").ok().out


def test_without_the_command_its_jobs_would_be_held(begin: Begin) -> None:
    """The stored jobs lose the benchmark of their source."""
    site = begin("A source gets another name")
    site.log(SEPTEMBER, 13, 13)
    site.program("--config", site.config, "collect").ok()
    site.walk(until="usage-publisher store rename-source")
    assert site.program("--config", site.config, "run").code == 3
    refused = site.program("--config", site.config, "store", "rename-source", "torque", "main")
    assert (refused.code, "retired = true" in refused.err) == (2, True)


def test_a_retired_cluster(begin: Begin) -> None:
    site = begin("A cluster is replaced or retired")
    site.log(OCTOBER, 1, 8)
    walk_all(site)
    site.assert_each_job_is_counted_once()
    assert "retired" in site.said["usage-publisher status"]
    read = site.program("--config", site.config, "collect", "torque")
    assert read.code == 1, "it is read if it is named"


def test_another_name_of_the_site(begin: Begin, simulator: Simulator) -> None:
    site = begin("The site gets another name")
    site.log(OCTOBER, 1, 8)
    walk_all(site, then=(NOVEMBER, 1, 5))
    by_site = {(row.fields["Site"], row.fields["Month"]) for row in simulator.apel.holdings().summaries.values()}
    assert by_site == {("EXAMPLE-SITE", "9"), ("EXAMPLE-SITE", "10"), ("NEW-SITE", "11")}
    assert len(simulator.sgas.holdings()) == len(site.jobs)
    assert sum(site.files().values()) == len(site.jobs)
    assert len(site.ssm()) == len(site.jobs)


def test_the_site_cannot_be_renamed_under_its_targets(begin: Begin) -> None:
    site = begin("The site gets another name")
    site.walk(until="sed -i -E")
    refused = site.program("--config", site.config, "run")
    assert (refused.code, "would be counted twice" in refused.err) == (2, True)


def test_users_that_are_not_sent(begin: Begin) -> None:
    site = begin("Users or queues that are not sent")
    walk_all(site, then=(OCTOBER, 1, 8))
    tested = torque_line(99, OCTOBER + 9 * 3_600, user="test1").replace(".server;", ".batch.example.org;")
    log = site.folder / "var/spool/torque/accounting/20261001"
    log.write_text(log.read_text(encoding="utf-8") + tested, encoding="utf-8")
    site.program("--config", site.config, "run").ok()
    assert site.rows("SELECT jobs FROM sources") == [(21,)]
    site.assert_each_job_is_counted_once()


def test_a_corrected_benchmark(begin: Begin, simulator: Simulator) -> None:
    site = begin("A benchmark is corrected for past months")
    walk_all(site, then=(OCTOBER, 1, 8))
    site.assert_each_job_is_counted_once()
    factors = {row.fields["ServiceLevel"] for row in simulator.apel.holdings().summaries.values()
               if int(row.fields["NumberOfJobs"])}  # fmt: skip
    assert factors == {"15.500"}

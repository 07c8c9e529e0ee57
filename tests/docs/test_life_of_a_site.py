"""The page on changes at a site: every command of it is run, and each job is at each service once afterwards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.conftest import ROOT
from tests.docs.test_lost_store import OCTOBER, SEPTEMBER, LostSite
from tests.publisher.store.server import PostgresqlServer, serving
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


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    with serving() as server:
        yield server


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


def test_an_added_cluster(begin: Begin) -> None:
    site = begin("A cluster or computing element is added")
    lines = [torque_line(number, OCTOBER + number * 3_600, wall_s=60).replace(".server;", ".new.example.org;")
             for number in range(1, 8)]  # fmt: skip
    site.put("/var/spool/new/accounting/20261001", "".join(lines))
    walk_all(site, then=(OCTOBER, 1, 8))
    assert site.rows("SELECT name, jobs FROM sources ORDER BY name") == [("new", 7), ("torque", 20)]
    assert len(site.ssm()) == 27
    assert len(site.simulator.sgas.holdings()) == 27
    assert sum(int(row.fields["NumberOfJobs"]) for row in site.simulator.apel.holdings().summaries.values()) == 27


def test_logs_that_moved(begin: Begin) -> None:
    site = begin("Its logs move to another host or folder")
    site.log(OCTOBER, 1, 8)
    walk_all(site)
    site.assert_each_job_is_counted_once()


def test_a_new_certificate(begin: Begin, pki: Pki) -> None:
    site = begin("A host certificate or authority changes")
    for name, file in (("hostcert", pki.client.certificate), ("hostkey", pki.client.key)):
        (site.folder / f"new-{name}.pem").write_bytes(file.read_bytes())
        old = site.put(f"/etc/grid-security/{name}.pem", "the old one")
        site.config.write_text(site.config.read_text().replace(str(file), str(old)))
    site.log(OCTOBER, 1, 8)
    assert site.program("--config", site.config, "run").code == 4, "the old one cannot be used"
    walk_all(site)
    site.assert_each_job_is_counted_once()


def test_another_name_of_a_vo(begin: Begin, simulator: Simulator) -> None:
    site = begin("A VO gets another name")
    walk_all(site, then=(OCTOBER, 1, 8))
    assert len(simulator.sgas.holdings()) == len(site.ssm()) == 20
    by_month = {(row.fields["Month"], row.fields["VO"]) for row in simulator.apel.holdings().summaries.values()}
    assert by_month == {("9", "atlas"), ("10", "atlas-new")}


def test_two_sites_that_become_one(begin: Begin, simulator: Simulator) -> None:
    site = begin("Two sites become one")
    (moved,) = re.findall(r"^```toml\n(.*?)^```$", site.text, re.MULTILINE | re.DOTALL)
    service = f'{simulator.ams_url}"\nauth_url = "{simulator.token_url}"\nproject = "accounting"\ntopic = "gLite-APEL'
    text = moved.replace("https://msg.example.org", service).replace("apel-job", "apel-summary")
    (site.folder / "moved.toml").write_text(site.here(text), encoding="utf-8")
    lines = [torque_line(number, NOVEMBER + number * 3_600, wall_s=60).replace(".server;", ".batch.moved.example.org;")
             for number in range(1, 8)]  # fmt: skip
    site.put("/var/spool/moved/accounting/20261101", "".join(lines))
    walk_all(site, then=(OCTOBER, 1, 8))
    assert site.rows("SELECT name, jobs FROM sources ORDER BY name") == [("moved", 7), ("torque", 20)]
    by_month: Counter[str] = Counter()
    for row in simulator.apel.holdings().summaries.values():
        by_month[row.fields["Month"]] += int(row.fields["NumberOfJobs"])
    assert by_month == {"9": 12, "10": 8, "11": 7}


@pytest.mark.extra("postgresql")
def test_to_postgresql_and_back(begin: Begin, postgresql: PostgresqlServer) -> None:
    site = begin("A VO gets another name")
    page = (ROOT / "docs" / "how-to" / "postgresql.md").read_text(encoding="utf-8")
    section = page.split("## Copy an SQLite store")[1].split("\n## ")[0]
    site.text = section.replace(
        "postgresql://publisher@db.example.org/usage", postgresql.url(postgresql.new_database())
    )
    site.walk(until="usage-publisher store copy postgresql")
    site.work(OCTOBER, 1, 8)
    site.assert_each_job_is_counted_once()
    walk_all(site)
    site.work(OCTOBER, 9, 12)
    site.assert_each_job_is_counted_once()

"""The drill for a store that is lost or was restored: every command of the page is run, on simulated SGAS and APEL.

The oracle: afterwards each job of the logs is at each service once, with its hours, also what was not sent before.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.apel.text import parse as parse_text
from formats.text import read_date_time
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.docs.test_moving import BLOCK, Walk
from tests.publisher.torque_cluster import torque_line

CONFIG = """
[site]
name = "EXAMPLE-SITE"
[store]
url = "sqlite:////var/lib/usage-publisher/store.db"
[credentials]
certificate = "{certificate}"
key = "{key}"
ca_directory = "{authorities}"
[sources.torque]
type = "torque"
path = "/var/spool/torque/accounting"
cluster = "batch.example.org"
timezone = "UTC"
benchmark = {{ type = "HEPscore23", value = 14.2 }}
complete_since = "2026-09-01"
[[map]]
vo = "{vo}"
[targets.neic]
type = "sgas"
url = "{sgas}"
batch_records = 10
[targets.egi]
type = "ams"
url = "{ams}"
auth_url = "{token}"
project = "accounting"
topic = "gLite-APEL"
records = "apel-summary"
local_jobs = "send"
[targets.files]
type = "directory"
path = "/var/spool/usage"
layout = "files"
records = "emi-car"
sync = false
batch_records = 10
[targets.ssm]
type = "directory"
path = "/var/spool/apel/outgoing"
layout = "dirq"
records = "apel-job"
sync = false
batch_records = 10
"""
SEPTEMBER = 1_788_220_800
"""2026-09-01T00:00:00Z."""
OCTOBER = SEPTEMBER + 30 * 86_400
DAY = 86_400


class GeneratedJob:
    """A job of the log: its number, among those of the month, decides its id, its end, and its hours."""

    def __init__(self, number: int, begin: int) -> None:
        self.end = begin + number * 3_600
        self.wall_s = 100 + number
        local_id = number + (1_000 if begin == OCTOBER else 0)
        line = torque_line(local_id, self.end, wall_s=self.wall_s)
        self.line = line.replace(".server;", ".batch.example.org;")


class LostSite(Walk):
    """A site whose publisher worked for some time; `section` of the page is walked."""

    def __init__(
        self, section: str, folder: Path, simulator: Simulator, pki: Pki, page: str = "how-to/lost-store.md"
    ) -> None:
        super().__init__(page, folder, simulator, pki)
        parts = re.split(r"^## (.*)$", self.text, flags=re.MULTILINE)
        self.sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        self.text = self.sections[section]
        self.jobs: list[GeneratedJob] = []
        (folder / "var" / "lib" / "usage-publisher").mkdir(parents=True, mode=0o700)
        (folder / "var" / "spool" / "torque" / "accounting").mkdir(parents=True)
        (folder / "var" / "spool" / "apel" / "outgoing").mkdir(parents=True)
        (folder / "var" / "backups").mkdir()
        self.configure()

    def configure(self, vo: str = "atlas") -> None:
        """Write the configuration."""
        text = CONFIG.format(
            certificate=self.pki.client.certificate,
            key=self.pki.client.key,
            authorities=self.pki.ca_directory,
            sgas=self.simulator.sgas_url,
            ams=self.simulator.ams_url,
            token=self.simulator.token_url,
            vo=vo,
        )
        self.put("/etc/usage-publisher/publisher.toml", text)

    def work(self, begin: int, first: int, last: int) -> None:
        """Jobs end, and are collected and published."""
        self.log(begin, first, last)
        self.program("--config", self.config, "run").ok()

    def log(self, begin: int, first: int, last: int) -> None:
        """Jobs end."""
        for number in range(first, last + 1):
            job = GeneratedJob(number, begin)
            self.jobs.append(job)
            day = self.folder / "var" / "spool" / "torque" / "accounting" / _day(job.end)
            with day.open("a", encoding="utf-8") as file:
                file.write(job.line)

    def back_up(self) -> None:
        """As every night."""
        self.program("--config", self.config, "store", "backup", self.folder / "var/backups/usage-publisher.db").ok()

    def keep_messages(self) -> None:
        """SSM takes its messages, and somebody keeps copies."""
        queue, copies = (self.folder / "var" / "spool" / "apel" / name for name in ("outgoing", "copies"))
        shutil.copytree(queue, copies, dirs_exist_ok=True)
        for message in queue.glob("*/*"):
            message.unlink()

    # --- what the services have

    def assert_each_job_is_counted_once(
        self, jobs: list[GeneratedJob] | None = None, months: dict[str, str] | None = None
    ) -> None:
        """The union of all that was ever sent, by each service's own rule, is the log."""
        jobs = self.jobs if jobs is None else jobs
        ends_and_hours = Counter((job.end, job.wall_s) for job in jobs)
        held = self.simulator.sgas.holdings()
        assert len(held) == len(jobs), "SGAS keeps one record an id"
        assert self.files() == ends_and_hours, "who reads the files adds up all of them"
        assert Counter(set(self.ssm())) == ends_and_hours, "APEL replaces a record of the same key"
        apel = self.simulator.apel.holdings()
        assert not apel.rejected
        found = Counter({
            (row.fields["Month"], row.fields["VO"]): int(row.fields["NumberOfJobs"]) for row in apel.summaries.values()
        })  # fmt: skip
        wall_s = sum(int(row.fields["WallDuration"]) for row in apel.summaries.values())
        expected = Counter((_month(job), (months or {}).get(_month(job), "atlas")) for job in jobs)
        assert found == expected
        assert wall_s == sum(job.wall_s for job in jobs)
        synced = Counter({row.fields["Month"]: int(row.fields["NumberOfJobs"]) for row in apel.sync.values()})
        assert synced == Counter(map(_month, jobs))

    def files(self) -> Counter[tuple[int, int]]:
        """Ends and wall seconds of the records in the folder."""
        pattern = r"<urf:WallDuration[^>]*>PT(\d+)S<.*?<urf:EndTime[^>]*>([^<]*)<"
        texts = [file.read_text() for file in (self.folder / "var" / "spool" / "usage").iterdir() if file.is_file()]
        found = [each for text in texts for each in re.findall(pattern.replace("urf:", r"(?:\w+:)?"), text, re.DOTALL)]
        return Counter((read_date_time(end), int(wall)) for wall, end in found)

    def ssm(self) -> list[tuple[int, int]]:
        """Ends and wall seconds of the records in the messages for SSM, kept ones and new ones."""
        found = []
        for name in ("outgoing", "copies"):
            for message in (self.folder / "var" / "spool" / "apel" / name).glob("*/*"):
                records = parse_text(message.read_text("ascii")).records
                found += [(int(each.get("EndTime") or 0), int(each.get("WallDuration") or 0)) for each in records]
        return found


def _day(end: int) -> str:
    return time.strftime("%Y%m%d", time.gmtime(end))


def _month(job: GeneratedJob) -> str:
    return "9" if job.end < OCTOBER else "10"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("lost"))


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def test_a_new_store_from_the_logs(tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    site = LostSite("A new store from the logs", tmp_path, simulator, pki)
    site.configure(vo="cms")
    site.work(SEPTEMBER, 1, 25)
    site.configure(vo="atlas")  # months that were sent stay as they were
    site.work(OCTOBER, 1, 35)
    site.keep_messages()
    site.log(OCTOBER, 36, 50)
    site.walk(until="usage-publisher reconcile files")
    posts = simulator.sgas.stats()["posts"]
    site.walk(until="sed -i '/# for the rebuild")
    assert simulator.sgas.stats()["posts"] == posts
    taken_over = dict(site.rows(_ASSUMED))
    assert taken_over == {"egi": 25, "files": 60, "ssm": 60}
    site.walk()
    assert len(site.ran) == len(list(site.steps()))
    site.assert_each_job_is_counted_once(months={"9": "cms"})
    assert len(site.ssm()) == len(site.jobs), "nothing that was kept went again"


_ASSUMED = (
    "SELECT name, count(*) FROM deliveries JOIN targets ON targets.id = target_id WHERE reason = 'assumed' GROUP BY 1"
)


def test_without_the_drill_a_new_store_would_count_twice(tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    site = LostSite("A new store from the logs", tmp_path, simulator, pki)
    site.configure(vo="cms")
    site.work(SEPTEMBER, 1, 25)
    site.configure(vo="atlas")
    for file in (tmp_path / "var" / "lib" / "usage-publisher").glob("store.db*"):
        file.unlink()
    site.work(SEPTEMBER, 26, 26)
    with pytest.raises(AssertionError):
        site.assert_each_job_is_counted_once()


def test_logs_that_are_partly_gone(tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    site = LostSite("A new store from the logs", tmp_path, simulator, pki)
    site.work(SEPTEMBER, 1, 60)
    site.work(OCTOBER, 1, 35)
    site.keep_messages()
    for day in ("20260901", "20260902"):
        (tmp_path / "var" / "spool" / "torque" / "accounting" / day).unlink()
    site.log(OCTOBER, 36, 50)
    site.walk(until="usage-publisher run")
    (rest,) = [line for line in site.ran if "shadow = true" in line]
    site.text = site.text.replace(rest, f"{rest}\n" + "\n".join(_shell(site.sections["Logs that are partly gone"])))
    site.walk()
    assert len(site.ran) == len(list(site.steps()))
    site.assert_each_job_is_counted_once()
    done = site.program("--config", site.config, "reconcile", "neic", "--month", "2026-09")
    assert "60" in done.out
    assert "foreign" in done.out


def _shell(text: str) -> list[str]:
    return [line for block in BLOCK.findall(text) for line in block.splitlines()]


def test_an_older_backup_and_the_logs_since(tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    site = LostSite("An older backup, and the logs since", tmp_path, simulator, pki)
    site.work(SEPTEMBER, 1, 25)
    site.work(OCTOBER, 1, 25)
    site.back_up()
    site.work(OCTOBER, 26, 60)
    site.log(OCTOBER, 61, 70)
    posts = simulator.sgas.stats()["posts"]
    site.walk(until="usage-publisher reconcile")
    assert "was restored from an earlier state" in site.said["usage-publisher check   # exit code 1"]
    refused = site.program("--config", site.config, "run")
    assert (refused.code, simulator.sgas.stats()["posts"]) == (5, posts)
    assert "accept-restored" in refused.err
    site.walk()
    assert len(site.ran) == len(list(site.steps()))
    site.assert_each_job_is_counted_once()

"""Files by resource and day: each run in one file, each file written once, whatever is killed, late, or changed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from formats.job import Job
from formats.registry import FORMATS, record_format
from formats.view import View
from formats.xdmod.slurm import record_id_of
from publisher.config.directory import DirectorySettings
from publisher.config.schema import Config, SourceSettings
from publisher.reason import ReasonCode
from publisher.sources import make_source
from publisher.status.check import check
from publisher.store.schema import State
from publisher.targets.base import Message
from publisher.targets.daily_files import DailyFiles
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

DAY = 86_400
TODAY = NOVEMBER + 10 * DAY + 3600


def slurm_job(number: int, end: int, cluster: str = "c1", **facts: object) -> Job:
    return make_job(number, end=end, cluster=cluster, endpoint_url=None, system="slurm", **facts)


class DailySite:
    """A site with one source, and a folder for XDMoD."""

    def __init__(self, folder: Path) -> None:
        self.source = ListSource("c1")
        self.site = Site(folder, [self.source], [])
        self.path = folder / "xdmod"
        self.site.table["targets"]["xdmod"] = {
            "type": "directory", "path": str(self.path), "layout": "daily", "records": "xdmod-slurm",
        }  # fmt: skip
        self.site.now = TODAY

    def run(self) -> None:
        self.site.collect()
        self.site.publish("xdmod")

    def files(self) -> dict[str, list[str]]:
        """The record ids in each file."""
        return {
            name: [record_id_of(line) for line in (self.path / name).read_bytes().splitlines()]
            for name in sorted(each.name for each in self.path.iterdir())
        }

    def ids(self) -> Counter[str]:
        return Counter(each for ids in self.files().values() for each in ids)


@pytest.fixture
def daily(tmp_path: Path) -> DailySite:
    return DailySite(tmp_path)


def test_a_day_is_one_file_and_written_when_it_is_over(daily: DailySite) -> None:
    first, second = NOVEMBER + 8 * DAY, NOVEMBER + 9 * DAY
    daily.source.add(*(slurm_job(number, first + number) for number in range(1, 800)))
    daily.source.add(slurm_job(900, second + 5), slurm_job(901, second + DAY - 1), slurm_job(902, second + DAY))
    daily.run()
    assert {name: len(ids) for name, ids in daily.files().items()} == {"c1-2026-11-09.log": 799, "c1-2026-11-10.log": 2}
    status = daily.site.publisher.status().targets["xdmod"]
    assert (status.waiting, status.not_due) == (1, 1)
    before = {name: (daily.path / name).stat() for name in daily.files()}
    daily.site.now += DAY
    daily.run()
    assert list(daily.files()) == ["c1-2026-11-09.log", "c1-2026-11-10.log", "c1-2026-11-11.log"]
    assert {name: (daily.path / name).stat() for name in before} == before


def test_a_day_waits_for_every_source(daily: DailySite, tmp_path: Path) -> None:
    daily.source.add(slurm_job(1, NOVEMBER + 5))
    daily.source.fails = "the disk is broken"
    daily.run()
    assert not daily.path.exists()
    daily.source.fails = None
    daily.run()
    assert list(daily.files()) == ["c1-2026-11-01.log"]


def test_late_runs_go_into_a_further_file(daily: DailySite) -> None:
    for number in (1, 2, 3):
        daily.source.add(slurm_job(number, NOVEMBER + number))
        daily.run()
    assert daily.files() == {
        "c1-2026-11-01.log": ["ur-ce1.example.org-0001"],
        "c1-2026-11-01.2.log": ["ur-ce1.example.org-0002"],
        "c1-2026-11-01.3.log": ["ur-ce1.example.org-0003"],
    }


def test_each_resource_has_its_files(daily: DailySite) -> None:
    daily.source.add(slurm_job(1, NOVEMBER + 1, "a"), slurm_job(2, NOVEMBER + 2, "b"), slurm_job(3, NOVEMBER + 3, "a"))
    daily.run()
    assert {name: len(ids) for name, ids in daily.files().items()} == {"a-2026-11-01.log": 2, "b-2026-11-01.log": 1}


def test_each_schedd_of_htcondor_is_a_resource(daily: DailySite, fixtures: Path, tmp_path: Path) -> None:
    """Their job numbers may be the same."""
    history = (fixtures / "htcondor" / "history.20261101T001000").read_text(encoding="utf-8")
    (tmp_path / "history").write_text(
        history.replace("schedd.example.org#", "a.example.org#")
        + history.replace("schedd.example.org#", "b.example.org#")
    )
    source = make_source("pool", SourceSettings(type="htcondor", path=tmp_path / "history"))
    daily.source.add(*(job for page in source.pages({}) for job in page.jobs))
    daily.run()
    files = {name: len(ids) for name, ids in daily.files().items()}
    assert files.keys() == {"a.example.org-2026-11-01.log", "b.example.org-2026-11-01.log"}
    assert len(set(files.values())) == 1


@pytest.mark.parametrize(
    ("name", "sources", "said"),
    [
        ("all", ["a", "b"], r"makes one resource of the sources a, b"),
        ("a-name-of-a-cluster-", ["b"], ""),
    ],
)
def test_what_would_be_one_resource_of_several_is_refused(name: str, sources: list[str], said: str) -> None:
    table = {"type": "directory", "path": "x", "records": "xdmod-slurm", "machine_name": name, "sources": sources}
    given = {
        "site": {"name": "S"},
        "store": {"url": "sqlite:///x"},
        "sources": {each: {"type": "slurm", "path": "x", "cluster": each} for each in "ab"},
        "targets": {"x": table},
    }
    if not said:
        assert Config.model_validate(given).targets["x"].machine_name == name
        return
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(given)


def test_a_run_whose_end_moves_after_a_lost_answer_is_in_one_file(tmp_path: Path) -> None:
    """The file of the other day has it already."""
    form = record_format("xdmod-slurm", View(site="S"))
    files = DailyFiles(FORMATS["xdmod-slurm"])
    directory = os.open(tmp_path, os.O_RDONLY)

    def posted(job: Job, *sent_before: str) -> str:
        payload = form.message([form.record(job, 0).body])
        message = Message("b", form.name, form.content_type, payload, (job.record_id,), sent_before=sent_before)
        return files.write(directory, message)["file"]

    try:
        first = slurm_job(1, NOVEMBER + 5)
        assert posted(first) == "c1-2026-11-01.log"
        assert posted(slurm_job(1, NOVEMBER + DAY), first.record_id) == "c1-2026-11-01.log"
        assert posted(slurm_job(2, NOVEMBER + DAY), first.record_id) == "c1-2026-11-02.log"
    finally:
        os.close(directory)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c1-2026-11-01.log", "c1-2026-11-02.log"]


def levels_of_machine_name(site: Site) -> list[tuple[str, str]]:
    """Subjects and levels of what `check` finds about `machine_name`."""
    findings = check(site.config, lambda: site.publisher.store, lambda: site.now)
    return [(finding.subject, finding.level) for finding in findings if "machine_name" in finding.message]


def test_a_longer_name_of_a_resource_holds_its_jobs_and_check_says_so(daily: DailySite) -> None:
    daily.site.configure("xdmod", machine_name="a-name-of-a-cluster-x")
    daily.source.add(slurm_job(1, NOVEMBER + 1))
    daily.run()
    assert daily.site.in_state("xdmod", State.HELD) == {make_job(1).record_id}
    assert levels_of_machine_name(daily.site) == [("target xdmod", "red")]
    daily.site.configure("xdmod", machine_name="a-name-of-a-cluster-")
    assert levels_of_machine_name(daily.site) == []


def test_reconcile_reads_the_files_back(daily: DailySite) -> None:
    daily.source.add(*(slurm_job(number, NOVEMBER + number) for number in range(1, 6)))
    daily.run()
    with daily.site.publisher.reconcile(["xdmod"]) as found:
        assert found.agrees
        assert sum(month.confirmed for month in found.targets["xdmod"].months) == 5
    (daily.path / "c1-2026-11-01.log").unlink()
    with daily.site.publisher.reconcile(["xdmod"]) as found:
        assert [month.taken for month in found.targets["xdmod"].months if month.taken] == [5], (
            "read by XDMoD, and removed"
        )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"layout": "daily", "records": "ogf-ur"}, '"daily" needs records = "xdmod-slurm"'),
        ({"layout": "files", "records": "xdmod-slurm"}, 'with layout = "daily"'),
        ({"layout": "daily", "records": "xdmod-slurm", "sign": True}, "files by day are not signed"),
    ],
)
def test_a_layout_has_its_format(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DirectorySettings.model_validate({"type": "directory", "path": "x", **settings})


def test_the_reason_of_a_superseded_run_is_that_it_changed(daily: DailySite) -> None:
    daily.source.add(slurm_job(1, NOVEMBER + 1))
    daily.run()
    daily.source.add(slurm_job(1, NOVEMBER + 1, exit_code=9))
    daily.run()
    query = "SELECT reason FROM deliveries"
    assert daily.site.rows(query) == [(ReasonCode.CHANGED_AFTER_DELIVERY.value,)]


ONE_ROW = {"submit": NOVEMBER, "exit_code": 0}


def test_two_servers_in_one_resource_that_give_one_number(daily: DailySite) -> None:
    """Their ids differ, and XDMoD reads the same number: it would ignore the second run without a word."""
    first = slurm_job(1, NOVEMBER + 5, local_id="12.one", **ONE_ROW)
    second = slurm_job(2, NOVEMBER + 5, local_id="12.two", **ONE_ROW)
    others = (
        slurm_job(3, NOVEMBER + 5, local_id="12[1].one", **ONE_ROW),
        slurm_job(4, NOVEMBER + 6, local_id="12.two", **ONE_ROW),
        slurm_job(5, NOVEMBER + 5, local_id="12.two", cluster="c2", **ONE_ROW),
        slurm_job(6, NOVEMBER + 5, local_id="12.two", exit_code=0, submit=NOVEMBER + 1),
    )
    daily.source.add(first, second, *others)
    daily.run()
    assert set(daily.ids()) == {job.record_id for job in (first, *others)}
    assert daily.site.in_state("xdmod", State.HELD) == {second.record_id}
    said = daily.site.reasons("xdmod")[second.record_id]
    assert said is not None
    assert f"{first.record_id} of source c1 have the same resource, job number, submission, and end" in said


@pytest.mark.parametrize("late", [False, True])
def test_two_sources_in_one_resource_that_give_one_number(tmp_path: Path, late: bool) -> None:
    """The first that was stored is sent; also if the other turns up when its file was written."""
    daily = DailySite(tmp_path)
    other = daily.site.sources["c2"] = ListSource("c2")
    daily.site.table["sources"]["c2"] = {"type": "arc", "path": "x"}
    daily.source.add(slurm_job(1, NOVEMBER + 5, local_id="1.one"))
    if late:
        daily.run()
    other.add(slurm_job(2, NOVEMBER + 5, local_id="1.two"))
    daily.run()
    assert daily.site.states("xdmod") == {
        make_job(1).record_id: State.ACCEPTED, make_job(2).record_id: State.HELD,
    }  # fmt: skip
    daily.site.configure("xdmod", sources=["c2"])
    daily.run()
    assert set(daily.ids()) == {make_job(1).record_id}, "the resource has the first"


def test_explain_names_the_facts_of_a_line(daily: DailySite) -> None:
    daily.source.add(slurm_job(1, NOVEMBER + 5, queue="a|b"))
    daily.site.collect()
    (explained,) = daily.site.publisher.explanations("xdmod-slurm", "xdmod", make_job(1).record_id)
    values = {each.field: (each.value, each.facts) for each in explained.values}
    assert values["Partition"] == ("a_b", {"queue": "a|b"})
    assert values["JobID"] == ("1", {"local_id": "1"})
    assert [note.field for note in explained.notes] == ["Partition"]


def test_files_that_were_removed_are_neither_missing_nor_compared(daily: DailySite) -> None:
    """Files stay where XDMoD read them; an administrator removes them later. A day has a file for each resource."""
    end = TODAY - DAY
    daily.source.add(slurm_job(1, end), slurm_job(2, end, cluster="c2"), slurm_job(3, end - DAY))
    daily.run()
    assert len(daily.files()) == 3
    for removed, taken in ((None, 0), ("c2", 1), ("c1", 3)):
        for file in daily.path.iterdir():
            if removed is not None and file.name.startswith(removed):
                file.unlink()
        with daily.site.publisher.reconcile(["xdmod"]) as result:
            found = result.targets["xdmod"]
            notes = [note for note in found.notes if "no longer in this directory" in note]
            assert (sum(month.taken for month in found.months), found.agrees, len(notes)) == (taken, True, bool(taken))
            assert found.compared_nothing == (removed == "c1")

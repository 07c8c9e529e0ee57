"""Files by resource and day: each run in one file, each file written once, whatever is killed, late, or changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pydantic import ValidationError

from formats.job import Job
from formats.xdmod.slurm import record_id_of
from publisher.config.targets import DirectorySettings
from publisher.events import Event
from publisher.reason import ReasonCode
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.site import NOVEMBER, Killed, ListSource, Site, make_job, make_jobs

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


def test_a_changed_run_is_superseded(daily: DailySite) -> None:
    daily.source.add(slurm_job(1, NOVEMBER + 1))
    daily.run()
    daily.source.add(slurm_job(1, NOVEMBER + 2 * DAY, exit_code=9))
    daily.run()
    (record_id,) = daily.ids()
    assert daily.site.states("xdmod") == {record_id: State.SUPERSEDED}
    assert daily.site.reasons("xdmod")[record_id] is not None
    assert list(daily.files()) == ["c1-2026-11-01.log"]


@pytest.mark.parametrize("changes", ["not", "figures", "its day"])
@pytest.mark.parametrize("event", ["BatchInFlight", "BatchAnswered"])
def test_after_a_kill_the_files_and_the_ledger_agree(daily: DailySite, event: str, changes: str) -> None:
    """The process dies before the file is written, or after it; then a run that may be in it has changed."""
    daily.source.add(*(slurm_job(number, NOVEMBER + number) for number in range(1, 6)))
    daily.site.collect()

    def kill(happened: Event) -> None:
        if type(happened).__name__ == event:
            raise Killed

    daily.site.watch = kill
    with pytest.raises(Killed):
        daily.site.publish("xdmod")
    daily.site.reopen()
    daily.site.watch = lambda _event: None
    if changes != "not":
        daily.source.add(slurm_job(2, NOVEMBER + 2 + (DAY if changes == "its day" else 0), exit_code=9))
    daily.run()
    daily.run()
    ids = daily.ids()
    assert len(ids) == 5
    assert set(ids.values()) == {1}
    states = daily.site.states("xdmod")
    assert set(states) == set(ids)
    changed = states.pop("ur-ce1.example.org-0002")
    assert set(states.values()) == {State.ACCEPTED}
    assert changed in ({State.ACCEPTED} if changes == "not" else {State.ACCEPTED, State.SUPERSEDED})
    written = any(b"|9:0|" in (daily.path / name).read_bytes() for name in daily.files())
    assert written or changed is (State.ACCEPTED if changes == "not" else State.SUPERSEDED)


def test_what_is_shown_is_what_is_written(daily: DailySite) -> None:
    daily.source.add(*make_jobs(3, cluster="c1", endpoint_url=None), slurm_job(9, TODAY - 5))
    daily.site.collect()
    shown = [each.payload for each in daily.site.publisher.rendering("xdmod-slurm", "xdmod", Window()).messages()]
    daily.site.publish("xdmod")
    assert shown == [(daily.path / name).read_bytes() for name in daily.files()]


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

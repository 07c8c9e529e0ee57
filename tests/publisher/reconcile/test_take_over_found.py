"""reconcile --take-over: what the service has, and was never sent from here, counts as delivered; nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from formats.job import Job
from publisher.store.schema import State
from tests.publisher.receivers import AnyReceiver
from tests.publisher.reconcile.reconciled_site import NOV, files, kinds, month, reconciled
from tests.publisher.site import ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

HEADER = "Executing Site,LocalJobId,EndTime"


def site_of(folder: Path, *of_sources: Sequence[Job]) -> Site:
    """A site with sources of these jobs, which wait for APEL as job records."""
    sources = [ListSource(f"ce{number}") for number in range(1, len(of_sources) + 1)]
    for source, jobs in zip(sources, of_sources, strict=True):
        source.add(*jobs)
    site = Site(folder, sources, [AnyReceiver("apel")])
    site.configure("apel", records="apel-job")
    site.collect()
    return site


def export(folder: Path, *lines: str, header: str = HEADER) -> Path:
    """What APEL's database says."""
    file = folder / "JobRecords.csv"
    file.write_text("\n".join([header, *lines]) + "\n")
    return file


def row(job: Job, *more: int) -> str:
    return ",".join(map(str, ["EXAMPLE-SITE", job.local_id, job.end, *more]))


def take_over(site: Site, file: Path, meanwhile: Callable[[], object] = lambda: None) -> dict[str, int]:
    """`meanwhile` happens after the comparison."""
    with site.publisher.reconcile((), [NOV], [file]) as found:
        meanwhile()
        return site.publisher.take_over_found(found, "a file")


def of_two_sources() -> tuple[Job, Job]:
    """Two jobs with one key at APEL: two batch systems with the same numbers."""
    return make_job(7), make_job(7, record_id="ur-ce2.example.org-0007", global_id="other", wall_s=60)


def test_a_row_without_sums_delivers_neither_of_two_runs_with_its_key(tmp_path: Path) -> None:
    one, other = of_two_sources()
    site = site_of(tmp_path, [one, make_job(8)], [other])
    file = export(tmp_path, row(one), row(make_job(8)))
    assert take_over(site, file) == {"apel": 1}
    assert site.in_state("apel", State.ACCEPTED) == {make_job(8).record_id}
    assert site.publisher.status().targets["apel"].differences == 2, "the two that are left"
    found, differences = reconciled(site, file=file)
    assert (found.delivered_jobs, month(found).unsettled) == (0, 2)
    assert kinds(differences) == {"unsettled": {one.record_id, other.record_id}}
    assert {one.detail for one in differences} == {"here: waiting; 2 jobs have the key of this one record"}
    site.publish()
    states = site.states("apel")
    assert sorted([states[one.record_id], states[other.record_id]]) == [State.ACCEPTED, State.HELD]


def test_two_runs_with_one_key_are_found_wherever_a_page_of_the_ledger_ends(tmp_path: Path) -> None:
    one, other = of_two_sources()
    earlier = [make_job(100 + number, end=one.end) for number in range(4_999)]
    site = site_of(tmp_path, [*earlier, one], [other])
    assert take_over(site, export(tmp_path, row(one))) == {}


def test_a_row_with_sums_delivers_the_one_that_it_agrees_with(tmp_path: Path) -> None:
    one, other = of_two_sources()
    site = site_of(tmp_path, [one], [other])
    file = export(tmp_path, row(other, 60, 30), header=f"{HEADER},WallDuration,CpuDuration")
    assert take_over(site, file) == {"apel": 1}
    assert site.in_state("apel", State.ACCEPTED) == {other.record_id}
    site.publish()
    assert site.states("apel")[one.record_id] is State.HELD, "it would replace the other"


def test_a_row_of_what_was_sent_from_here_delivers_no_other_run(tmp_path: Path) -> None:
    one, other = of_two_sources()
    site = site_of(tmp_path, [one], [other])
    site.publish()
    assert site.in_state("apel", State.ACCEPTED) == {one.record_id}
    file = export(tmp_path, row(one))
    assert take_over(site, file) == {}
    assert site.publisher.status().targets["apel"].confirmed == 1
    assert site.in_state("apel", State.HELD) == {other.record_id}


def test_one_row_does_not_confirm_two_runs_that_were_delivered(tmp_path: Path) -> None:
    one, other = of_two_sources()
    site = site_of(tmp_path, [one], [other])
    site.publisher.take_over_until("apel", one.end or 0)
    found, differences = reconciled(site, file=export(tmp_path, row(one)))
    assert (month(found).confirmed, month(found).differing, found.again_jobs) == (0, 2, 0)
    assert {each.detail for each in differences} == {"2 jobs have the key of this one record"}


def test_a_run_that_changed_after_the_comparison_is_sent(tmp_path: Path) -> None:
    """What was compared is not what it is now."""
    site = site_of(tmp_path, make_jobs(2))

    def change() -> None:
        site.sources["ce1"].add(make_job(2, wall_s=77))
        with site.another_publisher() as other:
            other.collect()

    assert take_over(site, export(tmp_path, *map(row, make_jobs(2))), change) == {"apel": 1}
    assert site.in_state("apel", State.WAITING) == {make_job(2).record_id}
    site.assert_counters_right()


def new_store(folder: Path, name: str, *jobs: Job) -> Site:
    """A store of these jobs, of a site that writes files into a folder all its stores share."""
    source = ListSource("ce1")
    source.add(*jobs)
    place = folder / name
    place.mkdir()
    site = Site(place, [source], [])
    site.table["targets"] = {"spool": files(path=str(folder / "out"), records="emi-car")}
    site.collect()
    return site


def test_what_a_directory_has_with_other_values_is_sent_again_under_the_same_id(tmp_path: Path) -> None:
    """It may be the run before it changed: the reader replaces it, as APEL does, or ignores the new one."""
    new_store(tmp_path, "lost", *make_jobs(2)).publish()
    site = new_store(tmp_path, "new", make_job(1), make_job(2, wall_s=77))
    with site.publisher.reconcile((), [NOV]) as found:
        (difference,) = (one for one in found.differences("spool") if one.record == make_job(2).record_id)
        assert (difference.kind, difference.detail) == (
            "unsettled",
            "here: waiting; wall 100 s, here 77 s; CPU 50 s, here 39 s",
        )
        assert found.targets["spool"].delivered_jobs == 1
        assert site.publisher.take_over_found(found, "files") == {"spool": 1}
    assert site.in_state("spool", State.WAITING) == {make_job(2).record_id}
    site.publish()
    found_after, differences = reconciled(site)
    assert (differences, month(found_after).confirmed) == ([], 2)

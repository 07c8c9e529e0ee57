"""reconcile of reports: those of a directory or a file compared with what was sent, period by period."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from formats.calendar import Month
from formats.text import date_time
from formats.utilization.report import read_report
from publisher.errors import UsageError
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.store.schema import State
from tests.publisher.messages.test_reports import ran
from tests.publisher.reconcile.reconciled_site import OCT, asked, confirmed, reconciled, resent
from tests.publisher.site import OCTOBER, ListSource, Site

pytestmark = pytest.mark.either_store

DAY = 86_400
SEPTEMBER = OCTOBER - 30 * DAY
SEP = Month(2026, 9)


def site_of(folder: Path, **settings: Any) -> Site:
    """Two jobs in September, one that ran into October, one there; all months but this one are sent."""
    source = ListSource("ce1")
    source.add(
        ran(1, SEPTEMBER + 10, SEPTEMBER + 3610),
        ran(2, SEPTEMBER + DAY, SEPTEMBER + DAY + 60),
        ran(3, OCTOBER - 1800, OCTOBER + 1800),
        ran(4, OCTOBER + 5 * DAY, OCTOBER + 5 * DAY + 7200, cores=4),
    )
    site = Site(folder, [source], [])
    usual = {"type": "directory", "path": "out", "layout": "files", "records": "utilization"}
    site.table["targets"] = {"portal": usual | settings}
    site.reopen()
    site.collect()
    site.publisher.publish()
    return site


def out(site: Site) -> list[Path]:
    return sorted((site.folder / "out").iterdir())


def report_of(site: Site, start: int) -> Path:
    """The file with the report that begins then."""
    (file,) = [path for path in out(site) if read_report(path.read_bytes()).start == start]
    return file


def test_reports_that_were_sent_before_the_site_got_another_name_are_there(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    site.table["site"]["name"] = "LATER-SITE"
    site.reopen()
    site.collect()
    site.publish()
    for file in ((), out(site)):
        found, differences = reconciled(site, SEP, OCT, file=file)
        assert (differences, found.notes) == ([], [])


@pytest.mark.parametrize("settings", [{}, {"version": "csv"}, {"period": "day"}, {"batch_bytes": 60_000}])
def test_reports_that_are_there_as_sent_agree_and_are_confirmed(tmp_path: Path, settings: dict[str, Any]) -> None:
    site = site_of(tmp_path, **settings)
    found, differences = reconciled(site, SEP, OCT)
    assert (found.evidence, found.agrees, differences, found.unavailable, found.notes) == ("files", True, [], None, [])
    assert [(one.sent.jobs, one.service_jobs, one.confirmed) for one in found.months] == [(2, 2, 2), (2, 2, 2)]
    assert confirmed(site) == 4
    status = site.publisher.status().targets["portal"]
    assert status.groups["accepted"] == len(out(site))


@pytest.mark.parametrize("period", ["month", "day"])
def test_a_report_that_is_gone_is_missing_and_sent_again(tmp_path: Path, period: str) -> None:
    site = site_of(tmp_path, period=period)
    reconciled(site, SEP, OCT)
    report_of(site, OCTOBER).unlink()
    found, (difference,) = reconciled(site, SEP, OCT)
    until = "2026-11-01" if period == "month" else "2026-10-02"
    assert (difference.kind, difference.record) == (
        "missing",
        f"report of 2026-10-01T00:00:00Z to {until}T00:00:00Z",
    )
    assert (found.agrees, found.again_groups, found.months[1].missing) == (False, 1, 1)
    assert confirmed(site) == (2 if period == "month" else 3), "nobody knows of the runs that ended in it"
    before = len(out(site))
    resent(site, SEP, OCT)
    assert len(out(site)) == before + 1
    assert reconciled(site, SEP, OCT)[0].agrees
    assert confirmed(site) == 4
    assert site.counted("portal") == {State.ACCEPTED: 4}


def test_a_report_that_was_altered_differs_and_is_reported_bin_by_bin(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    file = report_of(site, SEPTEMBER)
    text = file.read_text()
    assert '"jobs": 1' in text
    file.write_text(text.replace('"jobs": 1', '"jobs": 7', 1))
    _, (difference,) = reconciled(site, SEP)
    assert (difference.kind, difference.detail) == (
        "differs",
        "1 of 720 bins, the first of 2026-09-01T00:00:00Z: jobs 7, sent 1",
    )
    resent(site, SEP)
    assert reconciled(site, SEP)[0].agrees, "of two reports of a month the one that was written last counts"


def test_reports_of_others_are_foreign_or_of_other_sites(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    text = report_of(site, OCTOBER).read_text()
    (site.folder / "out" / "other.json").write_text(text.replace("EXAMPLE-SITE", "ANOTHER-SITE"))
    august = text.replace('"start": "2026-10', '"start": "2026-08').replace('"stop": "2026-11', '"stop": "2026-09')
    (site.folder / "out" / "august.json").write_text(august)
    (site.folder / "out" / "notes.txt").write_text("nothing of ours")
    found, (difference,) = reconciled(site, Month(2026, 8), SEP, OCT)
    assert (difference.kind, difference.record) == (
        "foreign",
        "report of 2026-08-01T00:00:00Z to 2026-09-01T00:00:00Z",
    )
    assert [note.partition(":")[0] for note in found.notes] == ["notes.txt", "1 reports are of other sites"]
    assert found.again_groups == 0


def test_what_was_taken_out_of_a_queue_is_neither_missing_nor_seen(tmp_path: Path) -> None:
    site = site_of(tmp_path, layout="dirq")
    for element in (site.folder / "out").glob("*/*"):
        element.unlink()
    found, differences = reconciled(site, SEP, OCT)
    assert (found.agrees, differences, [one.taken for one in found.months]) == (True, [], [2, 2])
    assert confirmed(site) == 0


def test_a_late_job_waits_and_is_not_a_difference(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    site.sources["ce1"].add(ran(9, OCTOBER + 60, OCTOBER + 120))
    site.collect()
    found, differences = reconciled(site, OCT)
    assert (found.agrees, differences, found.months[0].states[State.WAITING]) == (True, [], 1)


def test_a_file_with_a_report_or_many_is_compared(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    september = report_of(site, SEPTEMBER)
    found, differences = reconciled(site, SEP, file=september)
    assert (found.evidence, found.agrees, differences) == ("file", True, [])
    both = tmp_path / "both.json"
    both.write_text(f"[{september.read_text()}, {report_of(site, OCTOBER).read_text()}]")
    assert reconciled(site, SEP, OCT, file=both)[0].agrees
    found, (difference,) = reconciled(site, SEP, OCT, file=september)
    assert (difference.kind, found.again_groups) == ("missing", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("month,jobs\n2026-10,4\n", "not a utilization report"),
        ("[]", "has no report of EXAMPLE-SITE"),
        ('[{"site": "EXAMPLE-SITE"}]', "not a utilization report"),
    ],
)
def test_a_file_without_a_report_is_refused(tmp_path: Path, text: str, said: str) -> None:
    site = site_of(tmp_path)
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        reconciled(site, file=file)
    with pytest.raises(UsageError, match="cannot be read"):
        reconciled(site, file=tmp_path / "nowhere")


def test_what_the_simulator_holds_is_compared_and_what_it_forgot_is_sent_again(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of(tmp_path)
    site.table["credentials"] = {
        "certificate": str(pki.client.certificate),
        "key": str(pki.client.key),
        "ca_directory": str(pki.ca_directory),
    }
    service = {"type": "ams", "url": simulator.ams_url, "auth_url": simulator.token_url, "records": "utilization"}
    site.table["targets"] = {"other": service}
    site.reopen()
    site.publisher.publish()
    file = tmp_path / "holdings.json"
    file.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    assert simulator.apel.holdings().rejected == ()
    found, differences = reconciled(site, SEP, OCT, file=file)
    assert (found.evidence, found.agrees, differences) == ("file", True, [])
    held = json.loads(file.read_bytes())
    lost = held["apel"]["reports"].pop()
    file.write_text(json.dumps(held))
    simulator.apel.reset()
    found, (difference,) = reconciled(site, SEP, OCT, file=file)
    assert (difference.kind, found.again_groups) == ("missing", 1)
    resent(site, SEP, OCT, file=file)
    (report,) = simulator.apel.holdings().reports
    assert date_time(report.start) == lost["start"]
    site.reopen()

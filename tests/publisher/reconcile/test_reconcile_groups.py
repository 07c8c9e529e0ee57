"""reconcile of summaries and sync counts, also with groups from a portal or from the simulator of AMS."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.calendar import month_bounds
from publisher.collect.plan import prepare
from publisher.errors import UsageError
from publisher.publish.republish import begin
from publisher.reconcile.evidence import EvidenceDatabase
from publisher.reconcile.evidence_files import read_file
from publisher.reconcile.reconcile import Reconciliation
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.sources.base import Window
from tests.publisher.reconcile.reconciled_site import (
    NOV,
    OCT,
    ams,
    asked,
    confirmed,
    files,
    kinds,
    month,
    of_two_users,
    reconciled,
    resent,
    site_of,
    summaries,
)
from tests.publisher.site import make_job, make_jobs

pytestmark = pytest.mark.either_store


def test_summaries_are_confirmed_by_group_and_missing_ones_written_again(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries(batch_records=1))
    found, differences = reconciled(site, OCT, NOV)
    assert (found.agrees, differences) == (True, [])
    assert (month(found).service_jobs, month(found).confirmed) == (5, 5)
    assert confirmed(site) == 6
    groups = site.publisher.status().targets["apel"].groups
    assert groups == {"accepted": 3, "confirmed": 3}

    bo = next(path for path in (tmp_path / "out").iterdir() if b"CN=Bo" in path.read_bytes())
    bo.unlink()
    found, differences = reconciled(site, OCT, NOV)
    assert (month(found).missing, month(found, OCT).missing) == (1, 0)
    assert [one.kind for one in differences] == ["missing"]
    assert "user /dc=org/cn=bo" in differences[0].record
    assert differences[0].detail.startswith("0 jobs, sent 2")
    assert (found.again_jobs, found.again_groups) == (0, 1)
    assert confirmed(site) == 4
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 2}
    resent(site, OCT, NOV)
    assert any(b"CN=Bo" in path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert reconciled(site, OCT, NOV)[0].agrees
    assert confirmed(site) == 6
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 3}


def test_summaries_that_wait_to_be_sent_again_are_not_confirmed(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    reconciled(site, OCT, NOV)
    store, config = site.publisher.store, site.config
    plan = prepare(store, config, site.now)["apel"]
    begin(store, config, "apel", plan, Window(*month_bounds(NOV)), site.now, only_missing=False)
    assert site.publisher.status().targets["apel"].groups == {"accepted": 1, "waiting": 2, "confirmed": 1}
    site.publish()
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 1}


def test_a_change_takes_back_the_confirmation_of_its_group(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    reconciled(site, OCT, NOV)
    site.sources["ce1"].add(make_job(1, wall_s=500))
    site.collect()
    assert confirmed(site) == 5
    site.publisher.publish()
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 2}
    found, _ = reconciled(site, OCT, NOV)
    assert found.agrees, "the last message of a group is the one that counts"
    assert confirmed(site) == 6


def test_the_summary_of_somebody_who_was_forgotten_is_never_sent_under_the_pseudonym(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    site.publisher.maintenance.forget("/DC=org/CN=Bo")
    found, differences = reconciled(site, OCT, NOV)
    assert kinds(differences).keys() == {"foreign"}, "the service knows the name"
    assert (month(found).unsettled, found.again_groups) == (1, 0)
    file = tmp_path / "portal.csv"
    file.write_text("month,jobs\n2026-10,1\n2026-11,5\n")
    assert reconciled(site, OCT, NOV, file=file)[0].agrees
    file.write_text("month,jobs\n2026-10,1\n2026-11,3\n")
    assert reconciled(site, OCT, NOV, file=file)[0].again_groups == 0


def test_a_sync_count_that_is_lost_is_written_again(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    sync = next(path for path in (tmp_path / "out").iterdir() if b"APEL-sync" in path.read_bytes())
    sync.unlink()
    found, differences = reconciled(site, OCT, NOV)
    assert {one.record.partition(":")[0] for one in differences} == {"sync"}
    assert found.again_groups == len(differences) > 0
    resent(site, OCT, NOV)
    assert reconciled(site, OCT, NOV)[0].agrees


@pytest.mark.parametrize("records", ["apel-summary", "apel-normalised-summary", "apel-job", "emi-car"])
def test_what_the_simulator_holds_agrees_with_what_was_sent(
    simulator: Simulator, pki: Pki, tmp_path: Path, records: str
) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, records))
    found, _ = reconciled(site, OCT, NOV)
    assert (found.evidence, found.agrees) == ("receipts", True)
    assert "--file" in (found.unavailable or "")
    assert (month(found).sent.jobs, month(found).sent.without_receipt) == (5, 0)
    file = tmp_path / "holdings.json"
    file.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    found, differences = reconciled(site, OCT, NOV, file=file)
    assert differences == []
    assert (found.evidence, found.agrees) == ("file", True)
    assert confirmed(site) == 6


PORTAL = """\
# from the accounting portal
Site,Submit Host,Month,Year,VO,Number of jobs,Wall hours,CpuDuration,Efficiency
EXAMPLE-SITE,ARCREST:https://ce1.example.org:443/arex,11,2026,atlas,{jobs},{wall},250,50%
EXAMPLE-SITE,arcrest:https://ce1.example.org:443/arex,October,2026,atlas,1,0.03,50,50%
OTHER-SITE,https://elsewhere,11,2026,atlas,7,1,1,1%
"""


@pytest.mark.parametrize("records", ["apel-summary", "emi-car"])
def test_a_portals_numbers_agree_or_differ_and_sending_again_corrects_them(
    simulator: Simulator, pki: Pki, tmp_path: Path, records: str
) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, records))
    file = tmp_path / "portal.csv"
    file.write_text(PORTAL.format(jobs=5, wall="0.14"))
    found, differences = reconciled(site, OCT, NOV, file=file)
    assert (found.agrees, differences) == (True, [])
    assert found.notes == ["unknown columns, not used: Efficiency", "1 rows are of other sites"]
    assert confirmed(site) == 6

    file.write_text(PORTAL.format(jobs=4, wall="0.11"))
    with site.publisher.reconcile(("apel",), None, [file]) as result:  # the months are those of the file
        found, differences = result.targets["apel"], list(result.differences("apel"))
        assert [one.month for one in found.months] == [OCT, NOV]
        assert [one.kind for one in differences] == ["differs"]
        assert differences[0].detail.startswith("4 jobs, sent 5")
        assert "submit_host arcrest:https://ce1.example.org:443/arex" in differences[0].record
        assert confirmed(site) == 1
        before = len(simulator.ams.messages())
        site.publisher.send_missing(result)
    assert len(simulator.ams.messages()) > before
    file.write_text(PORTAL.format(jobs=5, wall="0.14"))
    assert reconciled(site, OCT, NOV, file=file)[0].agrees
    assert confirmed(site) == 6


def test_a_sync_test_is_compared_with_what_was_sent(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, "apel-summary"))
    file = tmp_path / "sync.csv"
    host = "arcrest:https://ce1.example.org:443/arex"
    file.write_text(f"month\tsubmit_host\tjobs\tsync_jobs\n2026-11\t{host}\t5\t4\n2026-11\thttps://new\t2\t2\n")
    found, differences = reconciled(site, file=file)
    assert [(one.kind, one.record, one.detail) for one in differences] == [
        ("foreign", "jobs: submit_host https://new", "2 jobs, sent 0"),
        ("differs", f"sync: submit_host {host}", "4 jobs, sent 5"),
        ("foreign", "sync: submit_host https://new", "2 jobs, sent 0"),
    ]
    assert (month(found).confirmed, found.again_groups) == (5, 1)


def test_a_month_that_the_file_leaves_out_is_missing(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, "emi-car", sync=False))
    file = tmp_path / "portal.json"
    file.write_text(json.dumps({"rows": [{"month": "2026-11", "jobs": 5, "wall_s": 500}]}))
    found, differences = reconciled(site, OCT, NOV, file=file)
    assert [(one.month, one.kind, one.record) for one in differences] == [(OCT, "missing", "jobs of the month")]
    assert (found.again_jobs, resent(site, OCT, NOV, file=file)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no row"),
        ("a,b\n1,2\n", "are not a month"),
        ("month,vo\n2026-11,x\n", "neither a record id nor a number of jobs"),
        ("month,jobs\n2026-13,1\n", "row 1: month '2026-13'"),
        ("month,jobs\n2026-11,many\n", "row 1, jobs: 'many' is not a number"),
        ("month,jobs\n2026-11,1.5\n", "not a whole number"),
        ("month,jobs\n2026-11,-1\n", "not a number"),
        ("month,jobs,wall\n2026-11,1,nan\n", "wall: 'nan' is not a number"),
        ('month,jobs\n2026-11,"1\n', "cannot be read as CSV"),
        ("user,month,jobs\n/CN=Doe, Jo,2026-11,1\n", "row 1: 4 columns, and the header has 3"),
        ("record_id,end\nx,yesterday\n", "end: 'yesterday' is not a time"),
        *((f"month,jobs\n2026-11,{bad}\n", "row 1, jobs") for bad in ("inf", "9" * 400, "1e400", "1_0", "\u0661")),
        *((f"record_id,end\nx,{bad}\n", "end: ") for bad in ("9" * 400, "9" * 5000, "99999999999999", "\u00b2")),
        ("record_id,end\nx,0001-01-01T00:00:00+14:00\n", "not a time"),
        (f"month,jobs\n{'9' * 5000},1\n", "row 1: month"),
        (json.dumps([{"month": "2026-11", "jobs": [1]}]), "row 1, jobs: neither"),
        (json.dumps([{"month": "2026-11", "jobs": 10**400}]), "row 1, jobs: '10000"),
        ("{", "cannot be read as JSON"),
        ("[1]", "row 1: not a JSON object"),
        ('{"a": 1}', "has no list of rows"),
        ("site,month,jobs\nELSEWHERE,2026-11,1\n", "has no row about this site"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_row_and_column(tmp_path: Path, text: str, said: str) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files())
    file = tmp_path / "reported"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        reconciled(site, file=file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            lambda: f"month,jobs\n2026-11,1\n2026-11,{'9' * (1 << 20)}1\n",
            "after row 1: .*field larger than field limit",
        ),
        (lambda: f"month,{'x' * (1 << 20)}y\n2026-11,1\n", "after row 0: .*field larger than field limit"),
        (lambda: "x" * (8 << 20), "line 1: longer than 8,388,608 characters"),
    ],
    ids=["field", "field-of-the-header", "line"],
)
def test_fields_and_lines_of_a_file_have_a_most_length(tmp_path: Path, text: Callable[[], str], said: str) -> None:
    file = tmp_path / "reported.csv"
    file.write_text(text())
    with EvidenceDatabase() as database, pytest.raises(UsageError, match=said):
        read_file(file, "neic", "ogf-ur", frozenset(), database)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files(), apel=summaries(path="sums"))
    with pytest.raises(UsageError, match="one target"):
        site.publisher.reconcile((), None, [tmp_path / "x"])
    with pytest.raises(UsageError, match="cannot be read"):
        site.publisher.reconcile(["spool"], None, [tmp_path / "x"])
    (tmp_path / "x").write_bytes(b"month\xff,jobs\n")
    with pytest.raises(UsageError, match="UTF-8"):
        site.publisher.reconcile(["spool"], None, [tmp_path / "x"])
    (tmp_path / "x").write_text("record_id\nx\n")
    with pytest.raises(UsageError, match="receives summaries"):
        site.publisher.reconcile(["apel"], None, [tmp_path / "x"])
    with pytest.raises(UsageError, match="known: spool, apel"):
        site.publisher.reconcile(["nowhere"])


def test_the_usual_months_are_this_one_and_the_one_before(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files())
    with site.publisher.reconcile() as found:
        assert [one.month for one in found.targets["spool"].months] == [OCT, NOV]
        assert isinstance(found, Reconciliation)
        assert found.agrees

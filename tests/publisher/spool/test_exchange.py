"""export and import: round trip equal, all or nothing, and nothing that was altered on the way is taken."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from publisher.errors import StoreRestoredError, UsageError
from publisher.spool.base import SpoolError
from publisher.spool.context import FILE_FORMATS
from publisher.spool.exchange import export, import_
from publisher.store.database import Store, open_store
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, Site, make_job
from tests.publisher.spool.test_formats import full_job
from tests.publisher.store.filled_site import fill
from tests.publisher.torque_cluster import NOW, TorqueCluster, torque_line

pytestmark = pytest.mark.either_store


def rich_site(folder: Path) -> Site:
    """A site with something in every table that a site without a grid log has."""
    site = fill(folder)
    source = site.sources["ce1"]
    source.add(full_job(20), make_job(30, end=NOVEMBER - 5), make_job(31, user_dn="/CN=Bob", end=NOVEMBER + 9))
    site.collect()
    site.publish()
    publisher = site.publisher
    for name in ("sgas", "apel"):
        found = site.in_state(name, State.HELD) | site.in_state(name, State.REJECTED)
        for state in (State.HELD, State.REJECTED):
            ids = sorted(found & site.in_state(name, state))
            if ids:
                publisher.waive(state, name, ids, "a test")
    publisher.maintenance.purge(site_month())
    publisher.maintenance.forget("/CN=Bob")
    source.add(make_job(40))
    site.collect()
    return site


def site_month() -> Any:
    """November: what is before goes."""
    from formats.calendar import Month

    return Month(2026, 11)


def fresh(folder: Path) -> Store:
    """An empty store."""
    return open_store(f"sqlite:///{folder}/other/store.db")


def texts(folder: Path) -> dict[str, str]:
    """Every file of an export."""
    return {str(file.relative_to(folder)): file.read_text() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("form", FILE_FORMATS)
def test_what_is_exported_comes_back_equal(tmp_path: Path, form: str) -> None:
    site = rich_site(tmp_path)
    manifest = site.publisher.maintenance.export(tmp_path / "one", form)
    assert manifest.objects["jobs"] == site.rows("SELECT count(*) FROM runs")[0][0] > 5
    kinds = {
        "versions",
        "deliveries",
        "messages",
        "counters",
        "summaries",
        "audit",
        "unreadable",
        "purged_runs",
        "erased",
    }
    assert all(manifest.objects[kind] for kind in kinds)
    assert {file.stat().st_mode & 0o077 for file in (tmp_path / "one").rglob("*")} == {0}
    store = fresh(tmp_path)
    assert import_(store, tmp_path / "one") == manifest
    assert export(store, tmp_path / "two", form) == manifest
    one, two = texts(tmp_path / "one"), texts(tmp_path / "two")
    if form == "delimited":  # serial numbers are those of the time
        one, two = ({name: _without_serials(text) for name, text in each.items()} for each in (one, two))
    assert one == two
    store.close()


@pytest.mark.parametrize("form", FILE_FORMATS)
def test_what_a_grid_log_gave_is_read_back(tmp_path: Path, form: str) -> None:
    """Tested with a user with a certificate, one with a token, and a run without an entry."""
    for name in ("site", "other"):
        (tmp_path / name).mkdir()
    site = TorqueCluster(tmp_path / "site")
    site.source |= {"benchmark": {"type": "HEPscore23", "value": 10}, "grid_log": {"path": "grid.log"}}
    (site.folder / "grid.log").write_text(ROUTED.format(at=NOW - 43_200), "utf-8")
    site.log(*(torque_line(number, NOW - 3600) for number in (1, 2, 3)))
    site.run()
    with site.publisher() as publisher:
        publisher.maintenance.export(tmp_path / "one", form)
    with TorqueCluster(tmp_path / "other").publisher() as other:
        other.import_store(tmp_path / "one")
        known = {number: other.job(number)[0].run for number in ("1", "2", "3")}
        other.maintenance.export(tmp_path / "two", form)
    assert [(run.job.token_subject, run.job.token_issuer, run.job.user_dn) for run in known.values()] == [
        ("ada-7", "https://iam.example.org", None), (None, None, "/CN=Bob"), (None, None, None)
    ]  # fmt: skip
    assert known["2"].job.fqans == ("/atlas/Role=production",)
    assert [run.awaits_grid_log for run in known.values()] == [False, False, True]
    one, two = ((tmp_path / name, form) for name in ("one", "two"))
    assert _comparable_texts(*one) == _comparable_texts(*two)


ROUTED = """\
GridJobId = "batch pbs ce1.example.org_9619_ce1.example.org#12.0#1795190000 pbs/20261120/1"
QDate = {at}
AuthTokenSubject = "ada-7"
AuthTokenIssuer = "https://iam.example.org"
*** Offset = 0 ClusterId = 12 ProcId = 0
GridJobId = "batch pbs ce1.example.org_9619_ce1.example.org#13.0#1795190000 pbs/20261120/2"
QDate = {at}
x509userproxysubject = "/CN=Bob"
x509UserProxyFQAN = "/CN=Bob,/atlas/Role=production"
*** Offset = 0 ClusterId = 13 ProcId = 0
"""


def _comparable_texts(folder: Path, form: str) -> dict[str, str]:
    found = texts(folder)
    return {name: _without_serials(text) for name, text in found.items()} if form == "delimited" else found


def _without_serials(text: str) -> str:
    return "\n".join(line.partition(":")[2] for line in text.splitlines())


def test_a_site_continues_from_what_was_imported(tmp_path: Path) -> None:
    site = rich_site(tmp_path)
    site.publisher.maintenance.export(tmp_path / "out", "json-lines")
    before = site.publisher.status()
    (tmp_path / "moved").mkdir()
    services = [RecordReceiver("sgas"), RecordReceiver("apel", "ams"), SummaryReceiver("sums")]
    other = Site(tmp_path / "moved", [site.sources["ce1"]], services)
    other.publisher.import_store(tmp_path / "out")
    assert msgspec.structs.replace(other.publisher.status(), not_latest=None) == before
    if other.store_url.startswith("sqlite"):  # hosts that share a server may not have sent anything yet
        with pytest.raises(StoreRestoredError, match="moved without that file"):
            other.publish()
        other.publisher.maintenance.accept_restored()
    other.publish()
    assert set(other.receivers["sgas"].held) == {make_job(40).record_id}
    assert other.collect()["ce1"].new == 0
    assert all(found.level != "red" for found in other.publisher.maintenance.check())


def test_into_a_store_that_holds_something_nothing_is_imported(tmp_path: Path) -> None:
    site = rich_site(tmp_path)
    site.publisher.maintenance.export(tmp_path / "out", "json-lines")
    with pytest.raises(UsageError, match="is not empty"):
        site.publisher.import_store(tmp_path / "out")
    with pytest.raises(UsageError, match="is not an empty folder"):
        site.publisher.maintenance.export(tmp_path / "out", "json-lines")


@pytest.mark.parametrize("form", FILE_FORMATS)
def test_an_altered_or_missing_job_is_not_imported(tmp_path: Path, form: str) -> None:
    site = rich_site(tmp_path)
    site.publisher.maintenance.export(tmp_path / "out", form)
    altered = 0
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file() and "/CN=Ada" in file.read_text() and not altered:
            file.write_text(file.read_text().replace("/CN=Ada", "/CN=Eve", 1))
            altered += 1
    assert altered
    store = fresh(tmp_path)
    with pytest.raises(SpoolError):
        import_(store, tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    site.publisher.maintenance.export(tmp_path / "out", form)
    _lose_one(tmp_path / "out", form)
    with pytest.raises(SpoolError):
        import_(store, tmp_path / "out")
    with store.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM sources").scalar_one() == 0
    store.close()


def _lose_one(folder: Path, form: str) -> None:
    if form in {"classic", "xml"}:
        first = min((folder / "deliveries").glob("*/*"))
        shutil.rmtree(first) if first.is_dir() else first.unlink()
        return
    file = next(folder.glob("deliveries.*"))
    file.write_text("\n".join(file.read_text().splitlines()[:-1]) + "\n")


def test_an_export_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    site = rich_site(tmp_path)
    site.publisher.maintenance.export(tmp_path / "out", "classic")
    (tmp_path / "out" / "context").unlink()
    for folder in (tmp_path / "out", tmp_path / "nothing"):
        with pytest.raises(UsageError, match="not contain a complete export"):
            import_(fresh(tmp_path), folder)
    with pytest.raises(UsageError, match="unknown format"):
        site.publisher.maintenance.export(tmp_path / "new", "database")

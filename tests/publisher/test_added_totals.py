"""An add-on's format of totals through the whole path: sent, changed, vanished, erased, reconciled, purged, shown."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from formats.calendar import month_bounds
from formats.job import Job
from publisher import plugins
from publisher.errors import ConfigError, TargetError
from publisher.preview.diff import DiffRendering
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.add_on import install
from tests.publisher.added_totals import accounts_of, newest, point_of
from tests.publisher.reconcile.reconciled_site import NOV, OCT, reconciled
from tests.publisher.site import ListSource, Site, make_job

HOUR = 3600
pytestmark = pytest.mark.either_store


@pytest.fixture(autouse=True)
def gpu_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formats of an installed package."""
    points = {"gpu-hours": "GPU_HOURS", "forgetting": "FORGOTTEN", "unreadable": "UNREADABLE", "odd": "SYNC_COUNTS"}
    found = {name: point_of(value) for name, value in points.items()}
    install(tmp_path, monkeypatch, plugins.FORMATS, **found, torn="no_such_module:X")


def gpu_job(number: int, user: str, account: str | None = "p1", *, gpus: int = 1, hours: int = 1, **facts: Any) -> Job:
    facts = {"account": account, "gpus": gpus, "local_id": str(number), **facts}
    return make_job(number, user_dn=f"/DC=org/CN={user}", wall_s=hours * HOUR, **facts)


def site_of(folder: Path, records: str = "gpu-hours", **settings: object) -> Site:
    source = ListSource("ce1")
    site = Site(folder, [source], [])
    site.table["targets"]["apel"] = {
        "type": "directory", "path": "out", "layout": "files", "records": records, **settings,
    }  # fmt: skip
    return site


def start(folder: Path, records: str = "gpu-hours") -> Site:
    site = site_of(folder, records)
    site.sources["ce1"].add(gpu_job(1, "Ada", gpus=3), gpu_job(2, "Bo"), gpu_job(3, "Ada", "p2"))
    site.collect()
    site.publish()
    return site


def users_of(folder: Path, account: str) -> dict[str, Decimal]:
    return {name.rpartition("=")[2]: hours for name, hours in newest(folder / "out")[account].users.items()}


def test_totals_are_sent_changed_and_emptied(tmp_path: Path) -> None:
    """A vanished account gets 0.00 for each of its users."""
    site = start(tmp_path)
    assert site.counted("apel") == {State.ACCEPTED: 3}
    assert users_of(tmp_path, "p1") == {"Ada": Decimal(3), "Bo": Decimal(1)}
    site.publish()
    assert len(list((tmp_path / "out").iterdir())) == 1, "nothing changed"
    site.sources["ce1"].add(gpu_job(3, "Ada", "p1"), gpu_job(4, "Bo", "p1", hours=2))
    site.collect()
    site.publish()
    assert users_of(tmp_path, "p1") == {"Ada": Decimal(4), "Bo": Decimal(3)}
    assert users_of(tmp_path, "p2") == {"Ada": Decimal(0)}
    assert site.counted("apel") == {State.ACCEPTED: 4}
    assert site.publisher.status().targets["apel"].groups == {"accepted": 2}
    site.assert_counters_right()


def test_a_run_that_the_fold_fails_at_is_held_alone(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    broken = gpu_job(2, "Bo", wall_ms=None)
    site.sources["ce1"].add(gpu_job(1, "Ada"), broken, gpu_job(3, "Bo", None))
    site.collect()
    assert site.publish_to("apel").sent.held == 2
    reasons = site.reasons("apel")
    assert (reasons[broken.record_id] or "").startswith("gpu-hours: the add-on failed for this record: TypeError")
    assert users_of(tmp_path, "p1") == {"Ada": Decimal(1)}


def test_what_the_receiver_drops_by_itself_is_forgotten(tmp_path: Path) -> None:
    site = start(tmp_path, "forgetting")
    site.sources["ce1"].add(gpu_job(3, "Ada", "p1"))
    site.collect()
    site.publish()
    assert users_of(tmp_path, "p1") == {"Ada": Decimal(4), "Bo": Decimal(1)}
    assert users_of(tmp_path, "p2") == {"Ada": Decimal(1)}, "it is not sent again"
    assert site.publisher.status().targets["apel"].groups == {"accepted": 1}


def test_the_files_are_compared_and_what_lacks_is_written_again(tmp_path: Path) -> None:
    site = start(tmp_path)
    found, differences = reconciled(site, OCT, NOV)
    assert (found.agrees, differences, found.evidence) == (True, [], "files")
    assert site.publisher.status().targets["apel"].groups == {"accepted": 2, "confirmed": 2}
    (file,) = (tmp_path / "out").iterdir()
    file.write_bytes(file.read_bytes().replace(b'"jobs":2', b'"jobs":1'))
    found, differences = reconciled(site, OCT, NOV)
    assert [(one.kind, one.record) for one in differences] == [("differs", "jobs: site example-site, account p1")]
    assert found.again_groups == 1


def test_numbers_of_a_portal_are_compared_by_what_both_have(tmp_path: Path) -> None:
    site = start(tmp_path)
    file = tmp_path / "portal.csv"
    file.write_text("month,site,jobs\n2026-11,EXAMPLE-SITE,3\n")
    assert reconciled(site, OCT, NOV, file=file)[0].agrees
    file.write_text("month,site,vo,jobs\n2026-11,EXAMPLE-SITE,atlas,2\n2026-11,EXAMPLE-SITE,cms,2\n")
    _, differences = reconciled(site, OCT, NOV, file=file)
    assert [one.kind for one in differences] == ["differs"]


def test_what_cannot_be_read_back_is_judged_by_receipts(tmp_path: Path) -> None:
    site = start(tmp_path, "unreadable")
    found, _ = reconciled(site, OCT, NOV)
    assert found.evidence == "receipts"
    assert found.unavailable == "unreadable cannot be read back"


def test_a_person_who_is_erased_stays_in_what_the_service_has(tmp_path: Path) -> None:
    """The total that names the person stays as it is there; the ledger has the pseudonym."""
    site = start(tmp_path)
    site.publisher.maintenance.forget("/DC=org/CN=Bo", pseudonym="/CN=erased x")
    bodies = [bytes(body) for (body,) in site.rows("SELECT body FROM groups")]
    assert not any(b"CN=Bo" in body for body in bodies)
    assert any(b"/CN=erased x" in body for body in bodies)
    site.publish()
    assert len(list((tmp_path / "out").iterdir())) == 1, "nothing is sent under the pseudonym"
    site.sources["ce1"].add(gpu_job(4, "Ada", "p1"), gpu_job(5, "Ada", "p2"))
    site.collect()
    site.publish()
    assert users_of(tmp_path, "p2") == {"Ada": Decimal(2)}
    assert site.counted("apel")[State.HELD] == 1, "p1 names the person: it would count twice"


def test_the_store_knows_the_totals_and_says_so_without_the_add_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = start(tmp_path)
    kinds = {kind for (kind,) in site.rows("SELECT kind FROM groups")}
    assert kinds == {"add-on gpu-hours"}

    def reds() -> list[str]:
        return [found.message for found in site.publisher.maintenance.check() if found.level == "red"]

    assert reds() == []
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE groups SET jobs = 7")
    assert any("is not what was stored" in message for message in reds())
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path != str(tmp_path)])
    assert any("of the unknown kind add-on gpu-hours" in message for message in reds())


def test_what_would_change_is_shown(tmp_path: Path) -> None:
    site = start(tmp_path)
    site.sources["ce1"].add(gpu_job(3, "Ada", "p1"))
    site.collect()
    rendering = DiffRendering(site.publisher.store, site.config, "gpu-hours", "apel", Window(), site.now)
    changes = {change.record: change.kind for change in rendering.changes()}
    kinds = {record.rpartition('"p')[2][:1]: kind for record, kind in changes.items()}
    assert kinds == {"1": "changed", "2": "gone"}
    messages = list(site.publisher.rendering("gpu-hours", "apel", Window()).messages())
    assert {each.total.key.account for message in messages for each in accounts_of(message.payload)} == {"p1", "p2"}


def test_a_format_that_cannot_be_loaded_stops_before_anything_is_planned(tmp_path: Path) -> None:
    """Planned as records, a run that changed would leave the sums of its month as they are."""
    site = start(tmp_path)
    assert not [found for found in site.publisher.maintenance.check() if found.level == "red"]
    site.configure("apel", records="torn")
    with pytest.raises(ConfigError, match="cannot be loaded: ModuleNotFoundError"):
        site.collect()


def test_other_shapes_are_refused_where_they_are_sent(tmp_path: Path) -> None:
    site = site_of(tmp_path, "odd")
    site.sources["ce1"].add(gpu_job(1, "Ada"))
    site.collect()
    with_error = site.publish_to("apel")
    assert isinstance(with_error.error, TargetError)
    assert "not one of records or totals" in str(with_error.error)


def test_a_month_is_sent_again_and_purged(tmp_path: Path) -> None:
    site = start(tmp_path)
    plan = site.publisher.plan_republish("apel", Window(*month_bounds(NOV)))
    assert (plan.groups.unchanged, plan.sync.total) == (2, 0)
    site.republish("apel", *month_bounds(NOV))
    assert len(list((tmp_path / "out").iterdir())) == 1, "the same message, under the same id"
    assert site.counted("apel") == {State.ACCEPTED: 3}
    site.now += 100 * 86_400
    assert site.publisher.maintenance.purge(NOV.following).runs == 3
    site.publish()
    assert users_of(tmp_path, "p1") == {"Ada": Decimal(3), "Bo": Decimal(1)}, "a purged month is not sent with less"


@pytest.mark.parametrize("step", range(1, 7))
def test_a_kill_at_any_event_loses_and_doubles_nothing(tmp_path: Path, step: int) -> None:
    site = start(tmp_path)
    site.sources["ce1"].add(gpu_job(3, "Ada", "p1"), gpu_job(4, "Bo", "p2", hours=2))
    site.collect()
    site.killed_at(step, site.publish)
    site.publish()
    assert users_of(tmp_path, "p1") == {"Ada": Decimal(4), "Bo": Decimal(1)}
    assert users_of(tmp_path, "p2") == {"Ada": Decimal(0), "Bo": Decimal(2)}, "the service keeps who is not named"
    assert site.counted("apel") == {State.ACCEPTED: 4}
    site.assert_counters_right()

"""A store that was restored from an earlier state is recognised before anything is sent from it."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from publisher.config.schema import StoreSettings
from publisher.errors import StoreError, StoreFullError, StoreRestoredError
from publisher.events import BatchInFlight
from publisher.maintenance import copy_store
from publisher.store.database import open_store
from publisher.store.schema import State
from publisher.store.sent_mark import SentMark, SentMarkFile, count_messages
from tests.publisher.publish.waiting_site import site_of
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

BATCH = 10


def _mark(site: Site) -> Path:
    return site.folder / "store.db.sent"


def _with_backup(folder: Path, *, after: int, jobs: int = 50) -> tuple[Site, RecordReceiver, bytes]:
    """A site of which a backup was made after this number of messages was sent, and which then sent the rest."""
    site, service = site_of(folder, jobs, batch_records=BATCH)
    backup = b""

    def copy(event: object) -> None:
        nonlocal backup
        if isinstance(event, BatchInFlight) and service.posts == after and not backup:
            site.publisher.maintenance.backup(folder / "backup.db")
            backup = (folder / "backup.db").read_bytes()

    site.watch = copy
    site.publish()
    site.watch = lambda _event: None
    assert backup
    return site, service, backup


def _put_in_place(site: Site, backup: bytes) -> None:
    site.reopen()
    for file in site.folder.glob("store.db-*"):
        file.unlink()
    site.store_file.write_bytes(backup)


@pytest.mark.parametrize("after", range(4))
def test_a_backup_that_lacks_any_number_of_messages_is_recognised_and_sends_nothing(tmp_path: Path, after: int) -> None:
    site, service, backup = _with_backup(tmp_path, after=after)
    _put_in_place(site, backup)
    posts = service.posts
    with pytest.raises(StoreRestoredError, match="was restored from an earlier state") as refused:
        site.publish()
    assert f"does not know of {4 - after} message" in str(refused.value)
    assert "accept-restored" in refused.value.hint
    assert "accept-restored" in (site.publisher.status().not_latest or "")
    with pytest.raises(StoreRestoredError):
        site.republish("neic", NOVEMBER, NOVEMBER + 86_400)
    assert service.posts == posts
    assert {finding.level for finding in site.publisher.check() if "restored" in finding.message} == {"red"}
    assert {finding.level for finding in site.publisher.maintenance.check() if "restored" in finding.message} == {"red"}


def test_collecting_goes_on_in_a_restored_store_and_after_accepting_it_is_sent_from(tmp_path: Path) -> None:
    site, service, backup = _with_backup(tmp_path, after=2)
    _put_in_place(site, backup)
    site.sources["ce1"].add(make_job(51))
    site.collect()
    why = site.publisher.maintenance.accept_restored()
    assert why is not None
    (entry,) = [each for each in site.publisher.audit() if each.action == "accept restored"]
    assert entry.detail == why
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 51}
    assert set(service.held) == {make_job(number).record_id for number in range(1, 52)}
    assert site.publisher.maintenance.accept_restored() is None, "it is the latest now"
    assert site.publisher.status().not_latest is None


def test_the_state_that_was_given_up_is_recognised_as_well(tmp_path: Path) -> None:
    site, _service, backup = _with_backup(tmp_path, after=2)
    site.publisher.maintenance.backup(tmp_path / "given-up.db")
    _put_in_place(site, backup)
    site.publisher.maintenance.accept_restored()
    site.publish()
    _put_in_place(site, (tmp_path / "given-up.db").read_bytes())
    with pytest.raises(StoreRestoredError):
        site.publish()


def test_a_backup_of_the_last_state_is_sent_from_at_once(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 20)
    site.publish()
    site.publisher.maintenance.backup(tmp_path / "backup.db")
    _put_in_place(site, (tmp_path / "backup.db").read_bytes())
    site.sources["ce1"].add(make_job(21))
    site.collect()
    site.publish()
    assert len(service.held) == 21


def test_a_new_store_where_one_was_lost_is_recognised(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 20)
    site.publish()
    site.reopen()
    for file in tmp_path.glob("store.db*"):
        if file != _mark(site):
            file.unlink()
    site.collect()
    posts = service.posts
    with pytest.raises(StoreRestoredError, match="of another store"):
        site.publish()
    assert service.posts == posts
    site.publisher.maintenance.accept_restored()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 20}


def test_a_store_that_was_made_anew_before_anything_was_sent_is_sent_from(tmp_path: Path) -> None:
    def begin(*, sends: bool) -> None:
        with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
            store.require_latest()
            if sends:
                with store.write() as connection:
                    mark = count_messages(connection, 1, NOVEMBER)
                store.mark_sent(mark)
        for file in tmp_path.glob("store.db*"):
            if file.suffix != ".sent":
                file.unlink()

    begin(sends=False)
    begin(sends=True)
    with pytest.raises(StoreRestoredError, match="of another store"):
        begin(sends=False)


def test_a_backup_on_a_new_host_where_the_mark_is_missing_is_recognised(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 20)
    site.publish()
    posts = service.posts
    site.sources["ce1"].add(make_job(21))
    site.collect()
    _mark(site).unlink()
    with pytest.raises(StoreRestoredError, match="moved without that file"):
        site.publish()
    assert service.posts == posts
    site.publisher.maintenance.accept_restored()
    site.publish()
    assert service.posts == posts + 1


def test_the_mark_is_private_and_ahead_of_nothing_at_any_kill(tmp_path: Path) -> None:
    step, killed = 0, True
    while killed:
        (tmp_path / str(step)).mkdir()
        site, _service = site_of(tmp_path / str(step), 30, batch_records=BATCH)
        killed = site.killed_at(step, site.publish)
        site.publish()
        assert site.counted("neic") == {State.ACCEPTED: 30}
        assert _mark(site).stat().st_mode & 0o777 == 0o600
        step += 1
    assert step > BATCH


def test_two_targets_and_two_publishers_that_begin_at_once_do_not_take_each_other_for_a_restored_store(
    tmp_path: Path,
) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(100))
    receivers = [RecordReceiver(f"t{number}") for number in range(6)]
    site = Site(tmp_path, [source], receivers)
    for receiver in receivers:
        site.configure(receiver.name, batch_records=5)
    site.collect()
    others = [site.another_publisher() for _ in range(2)]
    wrong: list[BaseException] = []

    def publish(number: int) -> None:
        try:
            others[number].publish()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            wrong.append(error)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(len(others))]
    for thread in threads:
        thread.start()
    site.publish()
    for thread in threads:
        thread.join()
    for other in others:
        other.close()
    assert not wrong
    site.publish()
    ((counted,),) = site.rows("SELECT messages FROM sent_mark")
    marked = SentMarkFile(_mark(site), is_shared=False).read()
    assert marked is not None
    assert marked.messages == counted == sum(receiver.posts for receiver in receivers)


def test_a_copy_of_the_store_is_sent_from_at_once_and_a_copy_of_a_backup_is_not(tmp_path: Path) -> None:
    site, service, backup = _with_backup(tmp_path, after=2)
    (tmp_path / "old.db").write_bytes(backup)
    (tmp_path / "old.db").chmod(0o600)
    site.reopen()
    for name in ("store", "old"):
        copy_store(
            f"sqlite:///{tmp_path}/{name}.db", f"sqlite:///{tmp_path}/copy-of-{name}.db", 1.0, lambda _table: None
        )
        site.table["store"] = {"url": f"sqlite:///copy-of-{name}.db"}
        site.reopen()
        if name == "store":
            posts = service.posts
            site.publish()
        else:
            with pytest.raises(StoreRestoredError):
                site.publish()
        assert service.posts == posts


def test_the_mark_may_lie_elsewhere_so_that_a_snapshot_of_the_whole_folder_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "elsewhere").mkdir()
    site, service = site_of(tmp_path / "host", 10)
    site.table["store"]["sent_mark"] = str(tmp_path / "elsewhere" / "mark")
    site.reopen()
    site.snapshot(tmp_path / "snapshot")
    site.publish()
    site.restore(tmp_path / "snapshot")
    posts = service.posts
    with pytest.raises(StoreRestoredError):
        site.publish()
    assert service.posts == posts


def test_without_a_place_for_the_mark_nothing_is_sent(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 10)
    site.table["store"]["sent_mark"] = "no-such-folder/mark"
    site.reopen()
    with pytest.raises(StoreError, match="cannot be written") as refused:
        site.publish()
    assert refused.value.exit_code == 5
    assert not service.messages


@pytest.mark.parametrize("content", [b"{", b'{"store": 1}', b"\xff" * 256])
def test_a_damaged_mark_stops_sending_and_a_mark_cut_off_at_its_birth_does_not(tmp_path: Path, content: bytes) -> None:
    site, service = site_of(tmp_path, 10)
    _mark(site).write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        site.publish()
    assert {each.level for each in site.publisher.check() if "is damaged" in each.message} == {"red"}
    assert not service.messages
    _mark(site).write_bytes(b"\0" * 256)
    site.publish()
    assert len(service.held) == 10


def test_a_full_disk_for_the_mark_sends_nothing(tmp_path: Path) -> None:
    mark = SentMarkFile(Path("/dev/full"), is_shared=False)
    with pytest.raises(StoreFullError):
        mark.replace(SentMark("a", 1, 2))


@pytest.mark.either_store
def test_a_store_of_either_kind_is_recognised_by_the_mark_on_this_host(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 20, batch_records=BATCH)
    site.publish()
    marked = _mark(site).read_bytes()
    site.snapshot(tmp_path / "snapshot")
    site.sources["ce1"].add(*make_jobs(5, first=21))
    site.collect()
    site.publish()
    later = _mark(site).read_bytes()
    assert later != marked
    site.restore(tmp_path / "snapshot")
    _mark(site).write_bytes(later)
    posts = service.posts
    site.collect()
    with pytest.raises(StoreRestoredError):
        site.publish()
    assert service.posts == posts
    site.publisher.maintenance.accept_restored()
    site.publish()
    assert len(service.held) == 25


@pytest.mark.either_store
@pytest.mark.parametrize("had_sent", [True, False])
def test_a_copy_of_a_restored_store_of_either_kind_sends_nothing(tmp_path: Path, *, had_sent: bool) -> None:
    site, service = site_of(tmp_path, 20, batch_records=BATCH)
    site.table["store"]["sent_mark"] = "mark"
    site.reopen()
    if had_sent:
        site.publish()
        site.sources["ce1"].add(*make_jobs(5, first=21))
        site.collect()
    site.snapshot(tmp_path / "snapshot")
    site.publish()
    later = (tmp_path / "mark").read_bytes()
    site.restore(tmp_path / "snapshot")
    (tmp_path / "mark").write_bytes(later)
    copied = copy_store(
        site.config.store.url, f"sqlite:///{tmp_path}/copy.db", 1.0, lambda _table: None, mark=tmp_path / "mark"
    )
    assert copied.why_not_latest is not None
    site.reopen()
    server, site._server = site._server, None
    for store in ({"url": "sqlite:///copy.db"}, {"url": "sqlite:///copy.db", "sent_mark": "mark"}):
        site.table["store"] = store
        site.reopen()
        posts = service.posts
        with pytest.raises(StoreRestoredError):
            site.publish()
        assert service.posts == posts
    site.reopen()
    site._server = server


@pytest.mark.either_store
def test_a_second_host_of_a_shared_store_has_no_mark_yet_and_one_file_store_always_has(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 20)
    site.publish()
    _mark(site).unlink()
    site.sources["ce1"].add(make_job(21))
    site.collect()
    if site.store_url.startswith("postgresql"):
        site.publish()
        assert _mark(site).exists()
        assert len(service.held) == 21
    else:
        with pytest.raises(StoreRestoredError):
            site.publish()


def test_a_store_on_a_server_has_its_mark_in_the_state_folder_and_a_file_beside_itself(tmp_path: Path) -> None:
    given = StoreSettings(url="postgresql://db/usage", sent_mark=tmp_path / "mark")
    assert given.mark_file == tmp_path / "mark"
    assert StoreSettings(url="sqlite:///store.db").mark_file is None
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as store:
        assert store.mark_file is not None
        assert store.mark_file.path == tmp_path / "store.db.sent"


def test_a_shadow_counts_nothing(tmp_path: Path) -> None:
    site, _service = site_of(tmp_path, 3, shadow=True)
    site.publish()
    assert site.rows("SELECT * FROM sent_mark") == []
    assert not _mark(site).exists()

"""A changed bit in a row of a source, target, or group: nothing is sent again, and a run and the check say so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from formats.job import Job
from publisher.errors import StoreCorruptError
from publisher.store import batches, groups, ledger_entries
from publisher.store.row_checks import state_check
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job, make_jobs


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Five jobs that were sent to a service of records and to one of summaries."""
    found = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), SummaryReceiver("sums")])
    found.sources["ce1"].add(*make_jobs(5))
    found.collect()
    found.publish()
    return found


def _damage(site: Site, statement: str) -> None:
    """Change a row past the program, as a disk does."""
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        assert connection.execute(statement).rowcount == 1
        connection.commit()


def _posts(site: Site) -> int:
    return sum(receiver.posts for receiver in site.receivers.values())


def _red(site: Site) -> set[str]:
    return {finding.subject for finding in site.publisher.maintenance.check() if finding.level == "red"}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE targets SET name = 'sgac' WHERE name = 'sgas'",
        "UPDATE targets SET name = 'sges' WHERE name = 'sgas'",
        "UPDATE targets SET filter_settings = filter_settings || ' ' WHERE name = 'sums'",
        "UPDATE targets SET assumes = '[\"ce2\"]' WHERE name = 'sgas'",
        "UPDATE targets SET kind = 'sgat' WHERE name = 'sgas'",
        "UPDATE targets SET row_digest = x'00' WHERE name = 'sgas'",
        "UPDATE sources SET name = 'ce3' WHERE name = 'ce1'",
        "UPDATE sources SET kind = 'liss' WHERE name = 'ce1'",
    ],
)
def test_a_source_or_target_with_another_name_or_settings_is_not_taken_for_a_new_one(
    site: Site, statement: str
) -> None:
    before = _posts(site)
    _damage(site, statement)
    assert _red(site) == {"rows"}
    with pytest.raises(StoreCorruptError, match="is not what was stored") as caught:
        site.publisher.run()
    assert caught.value.exit_code == 5
    assert _posts(site) == before
    assert _red(site) == {"rows"}


def test_a_change_of_the_settings_is_no_damage(site: Site) -> None:
    site.configure("sgas", vo=["atlas"])
    site.publish()
    site.configure("sgas")
    site.publish()
    assert not _red(site)


@pytest.mark.parametrize("kind", ["summary", "sync"])
def test_a_group_of_another_kind_is_neither_sent_as_new_nor_taken_for_vanished(site: Site, kind: str) -> None:
    before = site.receivers["sums"].posts
    _damage(site, f"UPDATE groups SET kind = '{kind[:-1]}~' WHERE kind = '{kind}'")
    assert _red(site) == {"groups"}
    job = site.sources["ce1"].log[0]
    assert isinstance(job, Job)
    site.sources["ce1"].add(msgspec.structs.replace(job, vo="other"))  # which may empty the group
    site.collect()
    with pytest.raises(StoreCorruptError, match=f"is of the kind '{kind[:-1]}~', not that stored"):
        site.publish("sums")
    assert site.receivers["sums"].posts == before
    assert _red(site) >= {"groups"}


def test_groups_of_an_add_on_that_was_removed_are_no_damage_to_a_run(site: Site) -> None:
    ((target_id, month),) = site.rows("SELECT target_id, month FROM groups WHERE kind = 'sync'")
    check = state_check(State.ACCEPTED, target_id, "added", month)
    added = f"kind = 'added', state_check = {check}, body = CAST('[1]' AS BLOB), digest = x'00'"
    _damage(site, f"UPDATE groups SET {added} WHERE kind = 'sync'")
    site.sources["ce1"].add(make_job(6))
    site.collect()
    site.publish("sums")


@pytest.mark.parametrize(
    "change",
    [
        "month = month + 8 WHERE kind = 'summary'",
        "month = month - 4096 WHERE kind = 'sync'",
        "target_id = target_id + 64 WHERE kind = 'summary'",
        "target_id = (SELECT id FROM targets WHERE name = 'sgas') WHERE kind = 'summary'",
        "kind = 'sync' WHERE kind = 'summary'",
        "kind = 'summary' WHERE kind = 'sync'",
    ],
)
def test_a_group_in_another_place_is_neither_sent_as_new_nor_taken_for_vanished(site: Site, change: str) -> None:
    before = site.receivers["sums"].posts
    _damage(site, f"UPDATE groups SET {change}")
    assert _red(site) >= {"groups"}
    site.sources["ce1"].add(make_job(6))
    site.collect()
    with pytest.raises(StoreCorruptError):
        site.publish()
    assert site.receivers["sums"].posts == before
    assert _red(site) >= {"groups"}


def test_a_change_of_its_state_leaves_a_damaged_group_damaged(site: Site) -> None:
    _damage(site, "UPDATE groups SET month = month + 8 WHERE kind = 'summary'")
    with site.publisher.store.write() as connection:
        for target_id in (1, 2):
            groups.send_again(connection, target_id, range(30_000), [])
            groups.put_back(connection, target_id, 0)
    assert _red(site) >= {"groups"}


_BATCH = "UPDATE batches SET {} WHERE id = (SELECT min(id) FROM batches)"


@pytest.mark.parametrize(
    "change",
    [
        "uid = 'x' || uid", "target_id = 2", "format = 'emi-cas'", "records = records + 64", "bytes = bytes + 1",
        "latest_end = latest_end - 65536", "latest_end = NULL", "created_at = created_at + 1",
    ],
)  # fmt: skip
def test_a_batch_that_is_not_what_was_recorded_is_found(site: Site, change: str) -> None:
    before = _posts(site)
    _damage(site, _BATCH.format(change))
    site.publish()
    assert _posts(site) == before
    assert "batches" in _red(site)
    with pytest.raises(StoreCorruptError, match="not what was recorded"), site.publisher.store.read() as reading:
        batches.require_recorded(reading)


@pytest.mark.parametrize(
    "change",
    ["state = 1", "state = 3", "state = 6", "closed_at = NULL", "answer = 'x'"],
)
def test_a_batch_in_another_state_changes_nothing_and_is_found(site: Site, change: str) -> None:
    before = _posts(site)
    _damage(site, _BATCH.format(change))
    site.publish()
    assert _posts(site) == before
    assert "batches" in _red(site)
    with pytest.raises(StoreCorruptError, match="batch 1 is in another state"), site.publisher.store.read() as reading:
        batches.get(reading, 1)
    with site.publisher.store.read() as reading:  # what was accepted stays so for what depends on it
        assert dict(ledger_entries.receipts(reading, [1]))


@pytest.mark.parametrize("state", [state for state in State if state is not State.ACCEPTED])
def test_a_summary_in_another_state_is_neither_sent_again_nor_given_up_in_silence(site: Site, state: State) -> None:
    before = site.receivers["sums"].posts
    _damage(site, f"UPDATE groups SET state = {int(state)} WHERE kind = 'summary'")
    assert _red(site) == {"groups"}
    site.sources["ce1"].add(make_job(6))
    site.collect()
    with pytest.raises(StoreCorruptError, match="the state"):
        site.publish("sums")
    assert site.receivers["sums"].posts == before
    assert _red(site) >= {"groups"}


def test_the_state_of_a_sync_count_is_checked_where_it_is_sent(site: Site) -> None:
    _damage(site, "UPDATE groups SET state_check = state_check + 4 WHERE kind = 'summary'")
    with pytest.raises(StoreCorruptError):
        site.publish("sums")


def test_a_schema_without_the_columns_of_this_version_is_damage(site: Site) -> None:
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        connection.execute("ALTER TABLE deliveries RENAME COLUMN revision TO revisioo")
    with pytest.raises(StoreCorruptError, match=r"is damaged: no such column: .*lost-store\.md"):
        site.publish()

"""A setting in a service's key cannot change under records that were delivered: they would count twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.errors import ConfigError
from publisher.text import iso
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, NOW, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


def delivered_site(folder: Path, kind: str, records: str) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(7))
    site = Site(folder, [source], [RecordReceiver("neic", kind)])
    site.table["targets"]["neic"]["records"] = records
    site.reopen()
    site.collect()
    site.publish()
    return site


@pytest.mark.parametrize(
    ("kind", "records", "where", "value"),
    [
        ("sgas", "ogf-ur", ("targets", "neic", "record_id_prefix"), "new-"),
        ("https", "emi-car", ("targets", "neic", "local_id_prefix"), "new-"),
        ("https", "emi-car", ("site", "name"), "OTHER-SITE"),
        ("https", "emi-car", ("sources", "ce1", "local_id_prefix"), "b-"),
        ("https", "emi-car", ("sources", "ce1", "end_time"), "lrms"),
    ],
)
def test_a_changed_key_is_refused_with_the_number_of_records_it_would_double(
    tmp_path: Path, kind: str, records: str, where: tuple[str, ...], value: str
) -> None:
    site = delivered_site(tmp_path, kind, records)
    table: Any = site.table
    for part in where[:-1]:
        table = table[part]
    table[where[-1]] = value
    site.reopen()

    with pytest.raises(ConfigError) as refused:
        site.publish()

    assert ".".join(where) in str(refused.value)
    assert "7 records" in str(refused.value)
    assert refused.value.exit_code == 2


def test_the_same_setting_may_change_as_long_as_nothing_was_delivered(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(3))
    service = RecordReceiver("neic", "sgas")
    site = Site(tmp_path, [source], [service])
    site.collect()
    site.table["targets"]["neic"]["record_id_prefix"] = "new-"
    site.reopen()
    site.publish()
    assert all(record_id.startswith("new-ur-") for record_id in service.held)


def test_other_filters_and_other_sources_may_change(tmp_path: Path) -> None:
    site = delivered_site(tmp_path, "https", "emi-car")
    site.table["targets"]["neic"]["since"] = iso(NOVEMBER)
    site.table["targets"]["neic"]["vo"] = ["atlas"]
    site.sources["ce2"] = ListSource("ce2")
    site.table["sources"]["ce2"] = dict(site.table["sources"]["ce1"], local_id_prefix="two-")
    site.reopen()
    site.publish()
    assert site.counted("neic")


def test_names_in_ascii_may_be_switched_on_under_delivered_records(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(make_job(1, user_dn="/CN=Zo\u00eb"), make_job(2, local_id="\u00e9"))
    service = RecordReceiver("apel", "https")
    site = Site(tmp_path, [source], [service])
    site.configure("apel", records="emi-car")
    site.collect()
    site.publish()
    assert b"&#235;" in b"".join(message.payload for message in service.messages)
    service.messages.clear()
    site.configure("apel", ascii_names=True)
    site.republish("apel", NOVEMBER, NOW)
    sent = b"".join(message.payload for message in service.messages)
    assert b"/CN=Zoe" in sent
    assert b"&#" not in sent
    assert {record_id: len(keys) for record_id, keys in service.keys.items()} == {
        make_job(number).record_id: 1 for number in (1, 2)
    }


def test_names_in_ascii_are_for_job_records_at_apel(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("neic", "sgas")])
    site.configure("neic", ascii_names=True)
    with pytest.raises(ConfigError, match=r"ascii_names: is for apel-job and emi-car"):
        site.publish()

"""What was sent is compared as it was made: with the settings of then, whatever the configuration gives now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.collect.settings_text import config_of_text, settings_text
from publisher.config.schema import Config
from publisher.errors import ConfigError
from publisher.simulator import Simulator
from publisher.simulator.faults import Fault
from publisher.simulator.pki import Pki
from publisher.sources.base import Window
from publisher.store import registry
from publisher.store.schema import State
from tests.publisher.reconcile.reconciled_site import DAY, confirmed, files, kinds, month, reconciled, sgas, site_of
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

OTHER_RULE = [{"vo": "cms"}]


def without_vo(*numbers: int) -> list[Any]:
    return [make_job(number, vo=None) for number in numbers]


def sent_under_another_rule(site: Site, *first: Any, later: int) -> None:
    """Send runs of VO atlas by a rule, and one more after the rule gives cms."""
    site.table["sources"]["ce1"]["map"] = [{"vo": "atlas"}]
    site.sources["ce1"].add(*first)
    sent(site)
    site.table["sources"]["ce1"]["map"] = OTHER_RULE
    site.sources["ce1"].add(*without_vo(later))
    sent(site)


def sent(site: Site) -> None:
    site.reopen()
    site.collect()
    site.publish()


def test_a_vo_rule_that_changed_makes_nothing_missing_or_foreign_at_sgas(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    """Its sums are by VO, and it keeps the first version."""
    site = Site(tmp_path, [ListSource("ce1")], [])
    site.table |= site_of(tmp_path, pki, (), neic=sgas(simulator)).table
    sent_under_another_rule(site, *without_vo(1, 2), *make_jobs(2, first=5, vo="cms"), later=3)
    found, differences = reconciled(site)
    assert ([each for each in differences if each.kind != "outdated"], confirmed(site)) == ([], 5)
    assert (month(found).missing, month(found).foreign) == (0, 0)


@pytest.mark.parametrize("stored", [True, False])
def test_a_job_sent_again_after_a_lost_answer_is_found_by_the_settings_of_either_message(
    simulator: Simulator, pki: Pki, tmp_path: Path, stored: bool
) -> None:
    """SGAS keeps the first message that it takes, and the ledger does not know which that was."""
    site = Site(tmp_path, [ListSource("ce1")], [])
    site.table |= site_of(tmp_path, pki, (), neic=sgas(simulator)).table
    sent_under_another_rule(site, *without_vo(1), *make_jobs(2, first=5, vo="cms"), later=2)
    site.table["sources"]["ce1"]["map"] = [{"vo": "atlas"}]
    site.sources["ce1"].add(*without_vo(3, 4))
    simulator.faults.replace([Fault("close", service="sgas", stored=stored)])
    sent(site)
    assert site.counted("neic") == {State.ACCEPTED: 4, State.WAITING: 2}
    simulator.faults.replace([])
    site.table["sources"]["ce1"]["map"] = OTHER_RULE
    sent(site)
    found, differences = reconciled(site)
    assert (kinds(differences).keys() <= {"outdated"}, confirmed(site), found.agrees) == (True, 6, True)
    simulator.sgas.forget([make_job(3).record_id])
    found, differences = reconciled(site)
    assert (month(found).missing, month(found).foreign) == (1, 0)
    assert make_job(3).record_id in kinds(differences)["suspect"], "what is lost is still found"


def test_what_was_requested_again_by_other_settings_is_found_as_the_service_has_it(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [])
    site.table |= site_of(tmp_path, pki, (), neic=sgas(simulator)).table
    sent_under_another_rule(site, *without_vo(1, 2, 3), make_job(5, vo="cms"), make_job(6), later=4)
    simulator.sgas.forget([make_job(3).record_id])
    site.publisher.republish("neic", Window(NOVEMBER, NOVEMBER + DAY))
    found, differences = reconciled(site)
    assert (month(found).missing, month(found).foreign, confirmed(site)) == (0, 0, 6)
    assert kinds(differences).keys() <= {"outdated"}


@pytest.mark.parametrize("stored", [True, False])
def test_a_setting_in_the_key_cannot_change_while_a_record_may_have_been_delivered(
    simulator: Simulator, pki: Pki, tmp_path: Path, stored: bool
) -> None:
    """The record would be sent again by another key, and count twice if it had arrived."""
    site = site_of(tmp_path, pki, [], neic=sgas(simulator))
    site.sources["ce1"].add(make_job(1))
    simulator.faults.replace([Fault("close", service="sgas", stored=stored)])
    sent(site)
    assert site.counted("neic") == {State.WAITING: 1}
    site.configure("neic", record_id_prefix="x-")
    with pytest.raises(ConfigError, match="they would be counted twice"):
        site.collect()


@pytest.mark.parametrize("deselects", [False, True])
def test_a_job_that_is_again_as_sgas_has_it_is_accepted_as_it_was_sent(
    simulator: Simulator, pki: Pki, tmp_path: Path, deselects: bool
) -> None:
    """It is not sent again: by other settings, its sums would be of another machine than SGAS has."""
    site = Site(tmp_path, [ListSource("ce1")], [])
    site.table |= site_of(tmp_path, pki, (), neic=sgas(simulator, vo=["atlas"])).table
    site.sources["ce1"].add(*make_jobs(3))
    sent(site)
    site.sources["ce1"].add(make_job(2, vo="cms") if deselects else make_job(2, wall_s=50))
    sent(site)
    assert site.counted("neic") == {State.ACCEPTED: 2, State.SUPERSEDED: 1}
    site.configure("neic", machine_name="other")
    batches = site.rows("SELECT count(*) FROM batches")
    site.sources["ce1"].add(make_job(2))
    sent(site)
    assert site.counted("neic") == {State.ACCEPTED: 3}
    assert site.rows("SELECT count(*) FROM batches") == batches
    _, differences = reconciled(site)
    assert (differences, confirmed(site)) == ([], 3)


def test_records_that_the_settings_would_give_other_values_are_listed_and_no_difference(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, [], spool=files())
    site.table["site"] = {"name": "EXAMPLE-SITE"}
    sent_under_another_rule(site, *without_vo(1, 2), make_job(3), later=4)
    found, differences = reconciled(site)
    assert [(each.kind, each.record, each.detail) for each in differences] == [
        ("outdated", make_job(number).record_id, "VO atlas, by the present settings cms") for number in (1, 2)
    ]
    assert (found.agrees, month(found).outdated, confirmed(site)) == (True, 2, 4)
    assert any("2 records would have other values by the present settings" in note for note in found.notes)


def test_settings_without_a_message_are_not_kept_and_a_source_has_its_new_name(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files())
    for number, vos in enumerate((["atlas", "cms"], ["atlas"], ["atlas", "alice"]), 2):
        site.configure("spool", vo=vos)
        site.collect()
        site.publish()
        if number == 3:
            site.sources["ce1"].add(make_job(number))
            site.collect()
            site.publish()
    del site.table["sources"]["ce1"]
    site.table["sources"]["ce2"] = {"type": "arc", "path": "x"}
    site.reopen()
    site.publisher.maintenance.rename_source("ce1", "ce2")
    with site.publisher.store.read() as connection:
        row = registry.get_target(connection, "spool")
        assert row is not None
        kept = registry.settings_before(connection, row.id)
    configs = [config_of_text(text, "spool", site.config) for _, text in kept]
    assert [each.targets["spool"].vo for each in configs if each is not None] == [(), ("atlas",)]
    assert all('"ce2"' in text and '"ce1"' not in text for _, text in kept)
    assert {each.level for each in site.publisher.maintenance.check()} == {"green"}


def test_each_setting_is_read_again_as_it_was(tmp_path: Path) -> None:
    """Of every kind of target with every format: the text of what was read is the text."""
    plain: dict[str, Any] = {
        "sgas": {"type": "sgas", "url": "https://x/"},
        "ams": {"type": "ams", "url": "https://x/"},
        "https": {"type": "https", "url": "https://x/", "records": "utilization"},
        "directory": {"type": "directory", "path": "x"},
        "auditor": {"type": "auditor", "url": "https://x/"},
        "waldur": {"type": "waldur", "url": "https://x/", "offering": "0" * 32},
    }
    given: dict[str, dict[str, Any]] = {
        "sgas": {"ur_extensions": ["vo", "exit-code"], "vo": ["atlas"], "jobs": {"user": "!test*"}},
        "ams": {"since": "2026-01-01", "benchmark_type": "Si2k", "statuses": ["completed"], "sources": ["ce1"]},
        "https": {"machine_name": "m", "dn": "hash", "dn_key": "key", "local_id_prefix": "a"},
        "directory": {"delivered_until": "2026-11-01T00:00:00Z", "unknown_vo": "hold", "local_jobs": "skip"},
        "auditor": {
            "components": {"Cores": {"amount": "cores", "scores": {"a": "HEPscore23"}}, "E": {"amount": "energy-j"}}
        },
        "waldur": {"components": {"cpu": {"amount": "core-hours", "divisor": 60}}, "users": False},
    }
    rules = {
        "benchmark": {"type": "HEPscore23", "value": 14.0},
        "benchmarks": [{"type": "Si2k", "value": 1.5, "queue": "a*", "since": "2026-01-01", "until": "2026-02-01"}],
        "map": [{"when": {"local_group": "a*", "queue": ["x", "y"]}, "vo": "atlas", "fqans": ["/atlas/x"]}],
        "complete_since": "2026-01-01",
        "grid_log": {"path": "x", "wait": "1h"},
        "site": "OTHER",
    }
    table = {
        "site": {"name": "A"}, "sources": {"ce1": {"type": "arc", "path": "x", **rules}}, "map": [{"vo": "all"}],
        "energy": {"pue": 1.25, "power": [{"watts_core": 5, "queue": "a*"}]}, "nodes": [{"name": "n1", "cores": 4}],
    }  # fmt: skip
    then = _config(tmp_path, {**table, "targets": {name: plain[name] | given[name] for name in plain}})
    bare = {"site": {"name": "B"}, "sources": {"ce1": {"type": "arc", "path": "x"}}, "targets": plain}
    now = _config(tmp_path, bare)
    for name in plain:
        text = settings_text(then.targets[name], then)
        read = config_of_text(text, name, now)
        assert read is not None, name
        assert settings_text(read.targets[name], read) == text
        assert read.sources["ce1"].benchmarks == then.sources["ce1"].benchmarks
        assert config_of_text(text.replace('"dn":"', '"dn":"un', 1), name, now) is None, name


def _config(folder: Path, table: dict[str, Any]) -> Config:
    site = Site(folder, [], [])
    site.table.update(table)
    return site.config

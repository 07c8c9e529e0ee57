"""check: a target that selects no job is reported with the reason, so that nobody waits for jobs that never come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from formats.job import Job
from publisher.finding import Finding
from publisher.status.check import targets_without_jobs
from publisher.text import iso
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOW, ListSource, Site, make_job

LOCAL: dict[str, Any] = {"user_dn": None, "vo": None, "fqans": ()}


def found(tmp_path: Path, job: Job, **settings: Any) -> list[Finding]:
    """What is found where a source has given this job, and a target with such settings was planned for."""
    source = ListSource("ce1")
    source.add(job)
    site = Site(tmp_path, [source], [RecordReceiver("neic")])
    site.configure("neic", **settings)
    site.collect()
    return list(targets_without_jobs(site.config, site.publisher.store, site.publisher.status()))


@pytest.mark.parametrize(
    ("facts", "settings", "said"),
    [
        (LOCAL, {"local_jobs": "skip"}, '`local_jobs` of the target is not "send"'),
        ({"vo": None, "fqans": ()}, {"unknown_vo": "skip"}, '`unknown_vo` of the target is "skip"'),
        ({"vo": "atlas", "fqans": ()}, {"vo": ["alice"]}, "its VO (atlas) is not in `vo` of the target"),
        (
            {"status": "failed"},
            {"statuses": ["completed"]},
            "its status (failed) is not in `statuses` of the target (completed)",
        ),
        ({}, {"since": iso(NOW)}, f"it ended before `since` of the target, {iso(NOW)}"),
    ],
)
def test_a_target_that_gets_nothing(tmp_path: Path, facts: dict[str, Any], settings: dict[str, Any], said: str) -> None:
    (finding,) = found(tmp_path, make_job(1, **facts), **settings)
    assert (finding.subject, finding.level) == ("target neic", "yellow")
    assert said in finding.message


def test_sources_that_are_not_its_own(tmp_path: Path) -> None:
    given, silent = ListSource("ce1"), ListSource("ce2")
    given.add(make_job(1))
    site = Site(tmp_path, [given, silent], [RecordReceiver("neic")])
    site.configure("neic", sources=["ce2"])
    site.collect()
    (finding,) = targets_without_jobs(site.config, site.publisher.store, site.publisher.status())
    assert ") is not in `sources`" in finding.message


@pytest.mark.parametrize("settings", [{}, {"local_jobs": "skip"}, {"unknown_vo": "hold"}], ids=str)
def test_a_target_that_gets_something(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert found(tmp_path, make_job(1, vo="atlas"), **settings) == []


def test_before_anything_was_collected_nothing_is_missed(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("neic")])
    site.configure("neic", local_jobs="skip")
    site.collect()
    assert list(targets_without_jobs(site.config, site.publisher.store, site.publisher.status())) == []


def test_a_new_target_that_is_not_planned_yet_misses_nothing(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(make_job(1))
    site = Site(tmp_path, [source], [RecordReceiver("neic")])
    site.collect()
    site.table["targets"]["second"] = dict(site.table["targets"]["neic"])
    site.reopen()
    assert site.publisher.status().targets["second"].untouched
    assert list(targets_without_jobs(site.config, site.publisher.store, site.publisher.status())) == []
